"""What can go wrong, as a caller sees it: one sentence that says what was wrong, what was expected and what to do."""

_HEAD, _TAIL = 900, 400  # signs of a message of which some file made too much; its end says what to do


class FEIError(Exception):
    """The base of every error this package raises on purpose: a printable line of bearable length, always."""

    def __str__(self) -> str:
        text = super().__str__()
        text = text if len(text) <= _HEAD + _TAIL else f"{text[:_HEAD]} … {text[-_TAIL:]}"
        if text.isprintable():
            return text
        return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


class InputError(FEIError, ValueError):
    """Something the caller passed cannot be used. The command line exits with 2."""


class ModelError(FEIError, RuntimeError):
    """A network cannot be loaded, read or explained. The command line exits with 1."""


class DataError(FEIError, RuntimeError):
    """A file was found but its content cannot be used. The command line exits with 1."""


class PackageError(FEIError, ImportError):
    """A package that an extra of the installation brings is not installed. The command line exits with 1."""
