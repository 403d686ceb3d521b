"""What can go wrong, as a caller sees it: one sentence that says what was wrong, what was expected and what to do."""


class FEIError(Exception):
    """The base of every error this package raises on purpose."""


class InputError(FEIError, ValueError):
    """Something the caller passed cannot be used. The command line exits with 2."""


class ModelError(FEIError, RuntimeError):
    """A network cannot be loaded, read or explained. The command line exits with 1."""


class DataError(FEIError, RuntimeError):
    """A file was found but its content cannot be used. The command line exits with 1."""
