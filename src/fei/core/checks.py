"""What a caller passes, checked once at the door."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fei.errors import InputError, ModelError


def check_inputs(inputs: Any) -> Tensor:
    """A private copy of a batch of images, in or out of a 1-tuple."""
    x = only(inputs, "inputs")
    if not isinstance(x, Tensor):
        raise InputError(f"`inputs` must be a tensor (N, C, H, W); got {type(x).__name__}")
    if x.ndim != 4:
        hint = "; add a batch dimension with inputs[None]" if x.ndim == 3 else ""
        raise InputError(f"`inputs` must have shape (N, C, H, W); got {tuple(x.shape)}{hint}")
    if not x.numel():
        raise InputError(f"`inputs` is empty, shape {tuple(x.shape)}; pass at least one image")
    if not x.dtype.is_floating_point:
        raise InputError(f"`inputs` must be floating point; got {x.dtype}; convert with inputs.float() / 255")
    # a copy made here is an ordinary tensor even if the original was made under inference_mode
    x = x.detach().clone(memory_format=torch.preserve_format)
    if not x.isfinite().all():
        raise InputError("`inputs` holds NaN or infinite pixels; replace them before the call")
    return x


def only(value: Any, name: str) -> Any:
    """A value, or the one in a 1-tuple: captum passes tuples."""
    if isinstance(value, tuple):
        if len(value) != 1:
            raise InputError(f"`{name}` must be one tensor or a 1-tuple; got a tuple of {len(value)}")
        return value[0]
    return value


def check_mode(model: nn.Module) -> None:
    """Refuse a model that trains, or that no gradient can pass."""
    for name, module in model.named_modules():
        if module.training:
            where = f"; its module {name!r} is in training mode" if name else ""
            raise InputError(f"`model` must be in evaluation mode{where}; call model.eval() first")
    for name, parameter in model.named_parameters():
        if parameter.is_inference():
            raise ModelError(
                f"the model's parameter {name!r} was made under torch.inference_mode() and cannot take part in "
                "back-propagation; build or load the model outside of it"
            )


def check_batch_size(size: Any, name: str = "batch_size") -> int | None:
    """A number of rows, or ``None``."""
    if size is None or (isinstance(size, int) and not isinstance(size, bool) and size >= 1):
        return size
    raise InputError(f"`{name}` must be a whole number of at least 1, or None; got {size!r}")


def default_rows(inputs: Tensor) -> int:
    """Rows of a forward pass where the caller does not say: on a CPU, more than fit its cache make it slower."""
    return 8 if inputs.device.type == "cpu" else 64


def first_output(model: nn.Module, x: Tensor) -> Any:
    """The network's output on the first image, or one sentence about why there is none."""
    with explained_failure(x):
        return model(x[:1])


@contextmanager
def explained_failure(x: Tensor) -> Iterator[None]:
    """Turn a runtime error of the network on the first image into a sentence; what else it raises passes as it is."""
    try:
        yield
    except ModelError:
        raise
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(f"the model failed on an input of shape {tuple(x[:1].shape)}: {reason}") from error
