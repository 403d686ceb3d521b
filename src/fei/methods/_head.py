"""The part of a network behind a feature layer, run on features of the caller's own without the part before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fei.core.dataflow import CallKey, CountingMode, tensors_in
from fei.core.sites import Site
from fei.core.tokens import Grid
from fei.errors import ModelError

# Makes a call behind the site in its own way: called with the function's name, the function and its arguments.
Rewrite = Callable[[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


class Head:
    """From the features at a site to the network's output.

    The forward pass on one image is recorded. When the head runs, calls that depend on the image and come before the
    site are not computed again: their recorded results are handed back, repeated along the batch; at the site the given
    features take the place of the computed ones; what follows is computed as usual. This works for any network whose
    values have the batch as their first dimension, and is checked against the recorded output.

    Args:
        model: The network; only ever called.
        image: One image (1, C, H, W).
        site: The feature layer.

    Attributes:
        features: The features of the image at the site, its rows being the first dimension.
    """

    def __init__(self, model: nn.Module, image: Tensor, site: Site) -> None:
        self._model, self._image, self._site = model, image.detach(), site
        recorder = _Recorder(site)
        with torch.no_grad():
            leaf = self._image.clone()
            recorder.depend(leaf)
            with recorder:
                output = model(leaf)
        if recorder.features is None:
            raise ModelError(
                f"The network computed differently from one pass to the next ({site.name} was not reached); pass a "
                "deterministic network."
            )
        self.features: Tensor = recorder.features
        self._recorded = recorder.recorded
        with torch.no_grad():
            again = self(self.features.expand(2, *self.features.shape[1:]))
        if not _same(output, again):
            raise ModelError(
                f"The part of the network behind {site.name} cannot be run on its own, because it mixes images along "
                "the batch or changes earlier values in place; name another layer."
            )

    def __call__(self, features: Tensor, rewrite: Rewrite | None = None) -> Any:
        """The network's output for features of R rows."""
        image = self._image.expand(len(features), *self._image.shape[1:])
        player = _Player(self._site, self._recorded, features, rewrite)
        player.depend(image)
        with player:
            return self._model(image)


class MapHead:
    """A head that takes maps, whatever the layout of the features at the site; tokens that are no patches are kept.

    Attributes:
        features: The features of the image as a map, (1, C, h, w).
    """

    def __init__(self, head: Head, grid: Grid) -> None:
        self._head, self._grid = head, grid
        self.features = grid.to_map(head.features)

    def __call__(self, features: Tensor, rewrite: Rewrite | None = None) -> Any:
        """The network's output for maps (R, C, h, w)."""
        values = self._grid.from_map(features)
        if self._grid.layout == "tokens":
            patches, own = self._grid.patches, self._head.features.expand(len(features), -1, -1)
            values = torch.cat([own[:, : patches.start], values[:, patches], own[:, patches.stop :]], 1)
        return self._head(values, rewrite)


class _Following(CountingMode):
    """Knows which values depend on the image, and when the site is reached."""

    def __init__(self, site: Site) -> None:
        super().__init__()
        self._site = site
        self._dependent: dict[int, Tensor] = {}
        self.reached = False

    def depend(self, value: Any) -> None:
        """Mark the tensors in a value as depending on the image, and keep them alive so that no identity is reused."""
        for tensor in tensors_in(value):
            self._dependent[id(tensor)] = tensor

    def depends(self, *arguments: Any) -> bool:
        return any(id(tensor) in self._dependent for tensor in tensors_in(arguments))

    def arrives(self, key: CallKey) -> bool:
        """Whether a call that returned tensors is the site's."""
        here = key == self._site.key
        self.reached |= here
        return here


class _Recorder(_Following):
    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self.recorded: list[Any] = []
        self.features: Tensor | None = None

    def make(self, key: CallKey, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        depends = self.depends(args, kwargs)
        result = func(*args, **kwargs)
        if self.reached:
            return result
        has_tensors = next(tensors_in(result), None) is not None
        here = has_tensors and self.arrives(key)
        if depends:
            self.depend(result)
            # copies: what follows may overwrite the value in place
            self.recorded.append(_mapped(result, lambda t: t.detach().clone()) if has_tensors else None)
        if here:
            self.features = result.detach().clone()
        return result


class _Player(_Following):
    def __init__(self, site: Site, recorded: list[Any], features: Tensor, rewrite: Rewrite | None) -> None:
        super().__init__(site)
        self._recorded, self._features, self._rewrite = iter(recorded), features, rewrite

    def make(self, key: CallKey, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.reached:
            return func(*args, **kwargs) if self._rewrite is None else self._rewrite(key[0], func, args, kwargs)
        if not self.depends(args, kwargs):
            return func(*args, **kwargs)
        kept = next(self._recorded, None)
        if kept is None:  # a question about a value, such as its shape
            return func(*args, **kwargs)
        if self.arrives(key):
            return self._features.clone()  # what follows may work in place
        result = _mapped(kept, self._repeated)
        self.depend(result)
        return result

    def _repeated(self, value: Tensor) -> Tensor:
        rows = len(self._features)
        if value.ndim == 0 or value.shape[0] == 1:
            return value.expand(rows, *value.shape[1:]) if value.ndim else value
        return value.repeat(rows, *(1,) * (value.ndim - 1))


def _mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(item, change) for item in value)
    return value


def _same(once: Any, twice: Any) -> bool:
    pairs = list(
        zip(tensors_in(getattr(once, "logits", once)), tensors_in(getattr(twice, "logits", twice)), strict=True)
    )
    return all(
        b.shape == (2, *a.shape[1:]) and torch.allclose(a.expand_as(b), b, rtol=1e-3, atol=1e-4) for a, b in pairs
    )
