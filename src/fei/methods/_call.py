"""How every attribution method is called, said once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from fei.core.scoring import Target
    from fei.progress import Progress
    from fei.references import ReferenceSpec

_P = ParamSpec("_P")
_Self = TypeVar("_Self")
_Arguments = TypeVar("_Arguments")
_Result = TypeVar("_Result")


def called_with(
    arguments: Callable[_P, _Arguments],
) -> Callable[[Callable[[_Self, _Arguments], _Result]], Callable[Concatenate[_Self, _P], _Result]]:
    """Decorate a method that is written as ``f(self, call)``, so that callers pass what `call` is made from.

    Examples:
        >>> class Mean:
        ...     @fei.methods.called_with(fei.methods.MethodCall)
        ...     def __call__(self, call):
        ...         return call.inputs.mean(1, keepdim=True)
        >>> tuple(Mean()(model, images, target=0).shape)
        (2, 1, 16, 16)
    """

    def decorate(method: Callable[[_Self, _Arguments], _Result]) -> Callable[Concatenate[_Self, _P], _Result]:
        @functools.wraps(method)
        def wrapper(self: _Self, /, *args: _P.args, **kwargs: _P.kwargs) -> _Result:
            return method(self, arguments(*args, **kwargs))

        written, taken = inspect.signature(method), inspect.signature(arguments).parameters.values()
        parameters = [written.parameters["self"], *taken]
        wrapper.__signature__ = written.replace(parameters=parameters)  # type: ignore[attr-defined]
        return wrapper

    return decorate


@dataclass(frozen=True)
class MethodCall:
    """What a method is called with.

    Attributes:
        model: The classifier; never changed.
        inputs: Images (N, C, H, W).
        target: As in `fei.FEI.explain`.
        reference: R, for methods that replace pixels.
        generator: Supplies the seed of whatever is random.
        batch_size: Rows in one forward pass.
        progress: ``True`` for a progress bar, or a callable on (done, total).

    Examples:
        >>> call = fei.methods.MethodCall(model, images, "bright")
        >>> call.target, call.batch_size
        (1, None)
    """

    model: nn.Module
    inputs: Tensor
    target: Target = None
    _: KW_ONLY
    reference: ReferenceSpec = None
    generator: torch.Generator | None = None
    batch_size: int | None = None
    progress: bool | Progress = False

    def __post_init__(self) -> None:
        """Turn names of classes into indices."""
        from fei.core.scoring import named_target  # torch is not loaded to list methods

        object.__setattr__(self, "target", named_target(self.model, self.target))


class Method(Protocol):
    """What every attribution method can be called as.

    Examples:
        >>> def seen(method: fei.methods.Method) -> tuple[int, ...]:
        ...     return tuple(method(model, images, target=None, batch_size=2).shape)
        >>> seen(fei.methods.create("saliency"))
        (2, 1, 16, 16)
    """

    @called_with(MethodCall)
    def __call__(self, call: MethodCall) -> Tensor:
        """Attribution maps (N, 1, H, W), higher where a pixel matters more; the arguments are those of `MethodCall`."""
        ...
