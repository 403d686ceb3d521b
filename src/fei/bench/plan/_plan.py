"""What a run computes: a plan in TOML, read strictly, with a mistake told by its place."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from fei.bench.plan._text import refuse_repeats, to_sentence, to_toml
from fei.errors import FEIError, InputError

if TYPE_CHECKING:
    from fei.methods import Method

Layout = Literal[
    "plain", "external", "internal", "black-image", "layerwise", "ablation", "figure-1", "figure-2", "visual", "sanity",
    "clipping-scope",
]  # fmt: skip
LAYOUTS: tuple[str, ...] = get_args(Layout)
_LARGEST = 1_000_000  # bytes of a plan
_MOST, _MOST_SEEDS = 1000, 10_000  # rows or columns, and repetitions
_MOST_BITS = 1024  # of a number; what is beyond 64 is told by its place
# A key of many parts, on which TOML's reader spends the square of their number in time and memory.
_PART = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""
_LONG_KEY = re.compile(rf"(?<![\w-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{16}}")
# Of plans from before metrics went by name; a new metric is none of them.
_SWITCHES = ("external", "internal", "complexity", "localization", "confidence")

_Count = Annotated[int, Field(ge=1)]
_Seed = Annotated[int, Field(ge=0, lt=2**63)]
_Text = Annotated[str, Field(min_length=1)]
# A list becomes a tuple; what is in it is read as strictly as the rest.
_Texts = Annotated[tuple[_Text, ...], Field(strict=False, min_length=1, max_length=_MOST)]


class _Part(BaseModel):
    """A table of the plan: it takes no other keys than its own, and does not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_default=True)


class Pair(_Part):
    """A network with a data set: one group of columns.

    Attributes:
        model: The network, as `fei.models.load` takes it.
        data: The images, as `fei.data.load` takes them; none where only the black-image test is run.
        name: The heading in tables.
        sample: How many of the images; all without.
        sample_seed: Which ones, see `fei.data.Dataset.sample`.
        layers: Where to look inside the network; its feature layers without.
    """

    model: _Text
    data: _Text | None = None
    name: _Text
    sample: _Count | None = None
    sample_seed: int = 0
    layers: _Texts | None = None

    @model_validator(mode="before")
    @classmethod
    def _name_it(cls, given: Any) -> Any:
        words = [given.get(key) for key in ("model", "data")] if isinstance(given, dict) else []
        return _with_default(given, "name", " on ".join(str(word) for word in words if word))

    @field_validator("model")
    @classmethod
    def _check_model(cls, spec: str) -> str:
        """A look at the form alone: whether the network is there turns out when it is loaded."""
        from fei.models import available

        forms = available()
        if ":" not in spec and spec not in forms:
            raise InputError(f"There is no model '{spec}'; give one of: {', '.join(forms)}.")
        return spec

    @field_validator("data")
    @classmethod
    def _check_data(cls, spec: str | None) -> str | None:
        """As for the model, the form alone."""
        from fei.data import check_spec

        if spec is not None:
            check_spec(spec)
        return spec


class PlannedMethod(_Part):
    """A method with its options: one row of a table.

    Attributes:
        name: The method, as `fei.methods.create` takes it.
        label: The heading of the row.
        group: Rows of one group stand together.
        options: What the method is told.
    """

    name: _Text
    label: _Text
    group: str = ""
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _label_it(cls, given: Any) -> Any:
        return _with_default(given, "label", given.get("name", "") if isinstance(given, dict) else "")

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str, info: ValidationInfo) -> str:
        from fei.methods import describe

        return name if _of_a_run(info) and not _is_known(name) else describe(name).name

    @field_validator("options")
    @classmethod
    def _check_options(cls, options: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        """Make the method once: it knows best what it takes."""
        if "name" in info.data and not _is_foreign(info.data["name"]) and _is_known(info.data["name"]):
            _make(info.data["name"], options)
        return options

    @property
    def is_foreign(self) -> bool:
        """Whether the method is code from elsewhere: to read a plan is not to run what it names.

        So is the plug-in of a run that was made where it is installed.
        """
        return _is_foreign(self.name) or not _is_known(self.name)

    def make(self) -> Method:
        """The method; InputError if it cannot be made with these options."""
        return _make(self.name, self.options)


class Metrics(_Part):
    """What is measured on each map; a list of names for short.

    Attributes:
        protocols: How insertion and deletion are measured, see `fei.protocols`.
        external: Insertion and deletion.
        internal: MSE, cosine and Pearson correlation of activations, layer by layer.
        complexity: Gini index and variation of the ranks.
        localization: Pointing game and energy inside the boxes, where the data set has them.
        confidence: Average drop, increase in confidence and ROAD.
        batch_size: Rows in one forward pass.
        measure: Names of metrics or of their groups, see `fei.metrics.declared`; a metric is measured with its whole
            group. With such a list, nothing else is measured but what the switches above say. Once the plan is read,
            the groups without a switch are left in it.
    """

    protocols: _Texts = ("fei-paper",)
    external: bool = True
    internal: bool = True
    complexity: bool = False
    localization: bool = False
    confidence: bool = False
    batch_size: _Count | None = None
    measure: Annotated[tuple[_Text, ...], Field(strict=False, max_length=_MOST)] = ()

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups of metrics, in the order in which they are measured."""
        return (*(name for name in _SWITCHES if getattr(self, name)), *self.measure)

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, given: Any, info: ValidationInfo) -> Any:
        given = {"measure": given} if isinstance(given, (list, tuple)) else given
        names = given.get("measure") if isinstance(given, dict) else None
        if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
            return given
        from fei.metrics import group_of

        groups = {name if _of_a_run(info) and not _can(group_of, name) else group_of(name) for name in names}
        switched = dict.fromkeys(_SWITCHES, False) | given | dict.fromkeys(groups.intersection(_SWITCHES), True)
        return switched | {"measure": sorted(groups.difference(_SWITCHES))}

    @model_serializer(mode="wrap")
    def _without_nothing(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A plan of switches alone is written, and has the key, as before metrics went by name."""
        return {name: value for name, value in write(self).items() if name != "measure" or value}

    @field_validator("protocols")
    @classmethod
    def _check_protocols(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        """The ids with their versions: a plan that says no more than a name means today's newest one."""
        from fei.protocols import get

        ids = tuple(get(name).id for name in names)
        refuse_repeats(ids, "protocol")
        return ids


class BlackImagePart(_Part):
    """The black-image test.

    Attributes:
        trials: How many for each seed.
        methods: The labels of the methods; all of this package's that optimise, if none are named.
    """

    trials: _Count
    methods: _Texts | None = None


class SanityPart(_Part):
    """Cascading randomisation: of how many images, which methods (all without), and how many layers from the top."""

    images: _Count
    methods: _Texts | None = None
    layers: _Count = 6


class Plan(_Part):
    """All that a run computes.

    Attributes:
        name: What the run is about.
        pairs: Networks with their data sets: the columns.
        methods: The rows.
        seeds: Of the reference and of whatever is random; each is one repetition.
        target: "predicted", or "label" for the class that the data set names.
        keep_maps: Whether maps are kept as files.
        retries: How often a unit that failed is tried again.
        layout: What the report shows first.
        metrics: What is measured.
        black_image: The black-image test, if wanted.
        sanity: The sanity check, if wanted.

    Examples:
        >>> plan = fei.bench.Plan.model_validate(
        ...     {
        ...         "name": "tiny",
        ...         "pairs": [{"model": "net.py:net", "data": "photos"}],
        ...         "methods": [{"name": "saliency"}],
        ...     }
        ... )
        >>> plan.seeds, plan.methods[0].label
        ((0,), 'saliency')
    """

    name: _Text
    pairs: Annotated[tuple[Pair, ...], Field(strict=False, min_length=1, max_length=_MOST)]
    methods: Annotated[tuple[PlannedMethod, ...], Field(strict=False, min_length=1, max_length=_MOST)]
    seeds: Annotated[tuple[_Seed, ...], Field(strict=False, min_length=1, max_length=_MOST_SEEDS)] = (0,)
    target: Literal["predicted", "label"] = "predicted"
    keep_maps: bool = False
    retries: Annotated[int, Field(ge=0)] = 1
    layout: Layout = "plain"
    metrics: Metrics = Field(default_factory=Metrics)
    black_image: BlackImagePart | None = None
    sanity: SanityPart | None = None
    _text: str | None = PrivateAttr(default=None)

    @property
    def text(self) -> str:
        """The TOML the plan was read from, to the letter; written anew if it was made in Python."""
        return self._text if self._text is not None else to_toml(self.model_dump(exclude_none=True))

    def black_image_methods(self) -> list[int]:
        """Indices of the methods that the black-image test is run on."""
        fitting = [row.label for row in self.methods if self.black_image and not row.is_foreign and _optimises(row)]
        return self._indices(self.black_image, "black_image.methods", fitting)

    def sanity_methods(self) -> list[int]:
        """Indices of the methods that the sanity check is run on."""
        return self._indices(self.sanity, "sanity.methods", [row.label for row in self.methods])

    @model_validator(mode="after")
    def _check_whole(self) -> Self:
        refuse_repeats([row.label for row in self.methods], "label", "methods[{}].label")
        refuse_repeats([pair.name for pair in self.pairs], "name", "pairs[{}].name")
        refuse_repeats(self.seeds, "seed", "seeds[{}]")
        without = [index for index, pair in enumerate(self.pairs) if pair.data is None]
        if without and self.black_image is None:
            raise InputError(
                f"`pairs[{without[0]}].data` is missing; give a data set, which only a plan with [black_image] can do "
                "without."
            )
        if self.sanity is not None and len(without) == len(self.pairs):
            raise InputError("`sanity` finds no pair with a data set; give one of them data.")
        self.sanity_methods()
        tested = self.black_image_methods()
        known = [index for index in tested if not self.methods[index].is_foreign]
        unfit = next((index for index in known if not _optimises(self.methods[index])), None)
        if unfit is not None:
            raise InputError(
                f"`black_image.methods` has '{self.methods[unfit].label}', which optimises no perturbed image; name "
                "methods such as fei-vm or fgvis."
            )
        if self.black_image is not None and not tested:
            raise InputError("`black_image` finds no method that optimises a perturbed image; add one such as fei-vm.")
        return self

    def _indices(self, part: BlackImagePart | SanityPart | None, place: str, default: Sequence[str]) -> list[int]:
        known = [row.label for row in self.methods]
        labels = () if part is None else default if part.methods is None else part.methods
        refuse_repeats(labels, "label", place + "[{}]")
        for index, label in enumerate(labels):
            if label not in known:
                raise InputError(
                    f"`{place}[{index}]` is '{label}', the label of no method; the labels are {', '.join(known)}."
                )
        return [known.index(label) for label in labels]


def load_plan(path: str | Path) -> Plan:
    """Read a plan from a TOML file; InputError, with the place of the mistake, if it cannot be used.

    Examples:
        >>> fei.bench.load_plan("plan.toml").name
        'tiny'
    """
    file = Path(path)
    try:
        with file.open("rb") as stream:
            text = stream.read(_LARGEST + 1).decode("utf-8")
    except OSError as error:
        raise InputError(f"The plan '{file}' cannot be read ({error.strerror}); check the path.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"The plan '{file}' is no text in UTF-8; give a TOML file.") from error
    try:
        return parse_plan(text)
    except InputError as error:
        raise InputError(f"'{file}': {error}") from error


@lru_cache(maxsize=64)
def parse_plan(text: str, *, of_a_run: bool = False) -> Plan:
    """A plan from TOML text; it keeps the text. A plan does not change, so the same text gives the same one.

    Args:
        text: The TOML.
        of_a_run: Whether a run has it, which may have been made where there are plug-ins that are not here: to read
            what they found, it is enough to know their names.
    """
    if len(text) > _LARGEST:
        raise InputError(f"The plan is larger than {_LARGEST // 1_000_000} MB; give a TOML file.")
    try:
        if _LONG_KEY.search(text):
            raise ValueError("a key has too many parts")
        document = tomllib.loads(text)
        _refuse_long_numbers(document)
    except (ValueError, RecursionError) as error:  # of thousands of digits, or of nested brackets, too
        raise InputError(f"This is no valid TOML ({error}); correct it there.") from error
    try:
        plan = Plan.model_validate(document, context={"of_a_run": of_a_run})
    except ValidationError as error:
        raise InputError(to_sentence(error, Plan)) from error
    plan._text = text
    return plan


def _refuse_long_numbers(document: dict[str, Any]) -> None:
    """Refuse numbers beyond TOML's own: in hexadecimal they may be longer than Python writes."""
    rest: list[Any] = [document]
    while rest:
        value = rest.pop()
        if isinstance(value, int) and value.bit_length() > _MOST_BITS:
            raise ValueError("a number has too many digits")
        rest += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _is_foreign(name: str) -> bool:
    return ":" in name


def _is_known(name: str) -> bool:
    from fei.methods import describe

    return _can(describe, name)


def _can(look_up: Callable[[str], object], name: str) -> bool:
    try:
        look_up(name)
    except InputError:
        return False
    return True


def _of_a_run(info: ValidationInfo) -> bool:
    return bool(info.context and info.context.get("of_a_run"))


def _make(name: str, options: dict[str, Any]) -> Method:
    from fei.methods import create

    try:
        return create(name, **options)
    except FEIError as error:
        raise InputError(str(error)) from error
    except Exception as error:
        raise InputError(f"'{name}' cannot be made ({type(error).__name__}: {error}); give other options.") from error


def _optimises(row: PlannedMethod) -> bool:
    return callable(getattr(row.make(), "explain", None))


def _with_default(given: Any, key: str, value: str) -> Any:
    return {key: value} | given if isinstance(given, dict) and value else given
