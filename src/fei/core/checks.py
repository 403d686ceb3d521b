"""What a caller passes, checked once at the door."""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge

from fei.core.dataflow import tensors_in
from fei.errors import FEIError, InputError, ModelError

_FAR = 0.5  # how far outside of a network's range pixels may lie, in parts of it
# Those of 8 bits are for storage: torch computes next to nothing with them.
FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def kind_of(value: Any) -> str:
    """What to call a value of the wrong kind: the dtype of a tensor, the type of anything else."""
    return str(value.dtype) if isinstance(value, Tensor) else type(value).__name__


def check_call(model: nn.Module, inputs: Any, size: Any, name: str = "batch_size") -> tuple[Tensor, int | None]:
    """What every call begins with: a private copy of the images, and the batch size; a bad model is refused."""
    x = check_inputs(inputs)
    check_mode(model)
    _doubt_range(model, x)
    return x, check_batch_size(size, name)


def _doubt_range(model: nn.Module, x: Tensor) -> None:
    """Warn where a network says what values its pixels have, and images are far from that; noise on top is not."""
    known: tuple[float, float] | None = getattr(model, "pixel_range", None)
    if known is None:
        return
    low, high, slack = *known, _FAR * (known[1] - known[0])
    least, most = float(x.min()), float(x.max())
    if least < low - slack or most > high + slack:
        warnings.warn(
            f"The images have values from {least:.3g} to {most:.3g} and this network takes {low:g} to {high:g}; give "
            "them as its preprocess does, neither normalised nor in 0 to 255.",
            stacklevel=2,
        )


def check_inputs(inputs: Any) -> Tensor:
    """A private copy of a batch of images, in or out of a 1-tuple."""
    x = only(inputs, "inputs")
    if not isinstance(x, Tensor):
        raise InputError(f"`inputs` must be a tensor (N, C, H, W); got {type(x).__name__}; convert it first.")
    if x.is_nested or x.layout is not torch.strided:
        raise InputError("`inputs` is a sparse or nested tensor; pass a dense one of shape (N, C, H, W).")
    if x.ndim != 4:
        hint = "; add a batch dimension with inputs[None]" if x.ndim == 3 else ""
        raise InputError(f"`inputs` must have shape (N, C, H, W); got {tuple(x.shape)}{hint}.")
    if not x.numel():
        raise InputError(f"`inputs` is empty, shape {tuple(x.shape)}; pass at least one image.")
    if x.dtype not in FLOATING:
        hint = "" if x.dtype.is_floating_point else " / 255"
        raise InputError(f"`inputs` must be floating point; got {x.dtype}; convert with inputs.float(){hint}.")
    if x.is_meta:
        raise InputError("`inputs` is on the meta device and has no values; pass real images.")
    # a copy made here is an ordinary tensor even if the original was made under inference_mode
    x = x.detach().clone(memory_format=torch.preserve_format)
    if not all_finite(x):
        raise InputError("`inputs` holds NaN or infinite pixels; replace them before the call.")
    return x


def only(value: Any, name: str) -> Any:
    """A value, or the one in a 1-tuple: captum passes tuples."""
    if isinstance(value, tuple):
        if len(value) != 1:
            raise InputError(f"`{name}` must be one tensor or a 1-tuple; got a tuple of {len(value)}.")
        return value[0]
    return value


def underlying(model: nn.Module) -> nn.Module:
    """The network inside wrappers that only run it: torch.compile, DataParallel and DistributedDataParallel."""
    while True:
        if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            model = model.module
        elif isinstance(compiled := getattr(model, "_orig_mod", None), nn.Module):
            model = compiled
        else:
            return model


def check_mode(model: nn.Module) -> None:
    """Refuse a model that trains, or that no gradient can pass."""
    if any(base.__module__.startswith("torch.export.") for base in type(model).__mro__):
        raise ModelError(
            "`model` is an exported program, which cannot be put into evaluation mode; pass the module it was exported "
            "from."
        )
    for name, module in model.named_modules():
        # before the mode, which torch 2.4 leaves as it was where a module is compiled
        if not hasattr(torch.compiler, "set_stance") and _is_compiled(module):
            raise ModelError(
                f"The module {name!r} is compiled, which hides what it computes; pass the model as it was before "
                "torch.compile, or use torch 2.6 or newer."
            )
        if getattr(module, "training", False):  # a frozen scripted module has no mode
            where = f"; its module {name!r} is in training mode" if name else ""
            raise InputError(f"`model` must be in evaluation mode{where}; call model.eval() first.")
    for name, parameter in model.named_parameters():
        if parameter.is_meta:
            raise ModelError(
                f"The model's parameter {name!r} is on the meta device and has no values; load the weights first."
            )
        if parameter.is_inference():
            raise ModelError(
                f"The model's parameter {name!r} was made under torch.inference_mode() and cannot take part in "
                "back-propagation; build or load the model outside of it."
            )


def _is_compiled(module: nn.Module) -> bool:
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None


def is_number(value: Any) -> bool:
    """Whether a value is a finite number, and no boolean; a whole number beyond all floats counts as infinite."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def is_count(value: Any, least: int = 1) -> bool:
    """Whether a value is a whole number of at least `least`, and no boolean."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def check_batch_size(size: Any, name: str = "batch_size") -> int | None:
    """A number of rows, or ``None``."""
    if size is None or is_count(size):
        return size  # type: ignore[no-any-return]
    raise InputError(f"`{name}` must be a whole number of at least 1, or None; got {size!r}.")


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Refuse what is no whole number of at least `least`."""
    if not is_count(value, least):
        raise InputError(f"`{name}` must be a whole number of at least {least}; got {value!r}.")


def check_size(name: str, value: Any) -> None:
    """Refuse what is no finite number of at least 0."""
    if not is_number(value) or value < 0:
        raise InputError(f"`{name}` must be a finite number of at least 0; got {value!r}.")


def check_between(name: str, value: Any) -> None:
    """Refuse what is no number strictly between 0 and 1."""
    if not is_number(value) or not 0 < value < 1:
        raise InputError(f"`{name}` must be a number strictly between 0 and 1; got {value!r}.")


def check_shares(name: str, values: Any, *, increasing: bool = False) -> tuple[float, ...]:
    """A non-empty sequence of numbers strictly between 0 and 1, as floats."""
    if not isinstance(values, Sequence) or isinstance(values, str) or not values or not all(map(is_number, values)):
        raise InputError(f"`{name}` must be a non-empty sequence of numbers; got {values!r}.")
    shares = tuple(float(value) for value in values)
    if not all(0 < 1 - share < 1 for share in shares):
        raise InputError(f"`{name}` must lie strictly between 0 and 1; got {list(shares)}.")
    if increasing and any(a >= b for a, b in itertools.pairwise(shares)):
        raise InputError(f"`{name}` must be in increasing order without repeats; got {list(shares)}.")
    return shares


def check_choice(name: str, value: Any, allowed: Iterable[str], otherwise: str = "") -> None:
    """Refuse a word that is not among those allowed; `otherwise` is appended to them in the message."""
    allowed = tuple(allowed)
    if value not in allowed:
        raise InputError(f"Unknown {name} {value!r}; choose one of {', '.join(allowed)}{otherwise}.")


def one_of(*allowed: str) -> Callable[[str, Any], None]:
    """A check that refuses every word but these."""
    return lambda name, value: check_choice(name, value, allowed)


def default_rows(inputs: Tensor) -> int:
    """Rows of a forward pass where the caller does not say: on a CPU, more than fit its cache make it slower."""
    return 8 if inputs.device.type == "cpu" else 64


@contextmanager
def explained_failure(x: Tensor) -> Iterator[None]:
    """Turn a runtime error, a refused value or a failed assertion of the network on the first image into a sentence.

    What else it raises passes as it is.
    """
    try:
        yield
    except FEIError:
        raise
    except (RuntimeError, ValueError, AssertionError) as error:
        raise ModelError(
            f"The model failed on an input of shape {tuple(x[:1].shape)} ({_reason(error)}); pass what it takes."
        ) from error


def layout_of(x: Tensor) -> torch.memory_format:
    """How a batch of images is stored: channels last, or, where that is the same or it is neither, contiguously."""
    last = x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    return torch.channels_last if last else torch.contiguous_format


def all_finite(values: Tensor) -> bool:
    """Whether no number is NaN or infinite: the sum says so in a tenth of the time; one that overflows is doubted.

    Examples:
        >>> from fei.core.checks import all_finite
        >>> largest = torch.full((2,), torch.finfo(torch.float32).max)
        >>> all_finite(largest), all_finite(largest / 0)
        (True, False)
    """
    return bool(values.sum().isfinite()) or bool(values.isfinite().all())


def check_finite(output: Any) -> Any:
    """The output of a network, refused if a number in it is not finite."""
    if not all(map(all_finite, tensors_in(getattr(output, "logits", output)))):
        raise ModelError("The model's output holds NaN or infinite values; check its weights and its input range.")
    return output


def image_gradient(score: Tensor, image: Tensor, *, again: bool = False) -> Tensor:
    """The gradient of a score with respect to the image it was computed from, or one sentence about why there is none.

    Args:
        score: A number.
        image: The leaf it was computed from.
        again: Whether the same pass will be gone back through once more.
    """
    (gradient,) = gradients(score, [image], again=again)
    if gradient is None:
        raise ModelError(
            "No gradient of the score reaches the image, because the model is quantised, computes without gradients or "
            "detaches a value on the way; pass it as it was trained."
        )
    return gradient


def gradients(
    score: Tensor, places: Sequence[Tensor] | Sequence[GradientEdge], *, again: bool = False
) -> Sequence[Tensor | None]:
    """The gradient of a score at each of some places in its graph; ``None`` where none arrives."""
    if not score.requires_grad or not places:
        return [None] * len(places)
    try:
        return torch.autograd.grad(score, places, allow_unused=True, retain_graph=again)
    except RuntimeError as error:
        raise ModelError(
            f"Back-propagation through the model failed ({_reason(error)}); pass a model that has gradients."
        ) from error


def _reason(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
