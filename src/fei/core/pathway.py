"""The computational pathway: what the network did on the original image, and gradients held to it.

`Pathway.record` keeps each site's activation h on the original image; `Pathway.run` evaluates the network on a
perturbed one and hangs a tensor hook on each site that clips the gradient against h. Tensor hooks live and die with
the values of one pass, so the caller's modules are never touched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fei.core.clipgrad import Rule
from fei.core.dataflow import CallKey, function_name, tensors_in, uncompiled
from fei.core.sites import Site
from fei.errors import ModelError

Visitor = Callable[[int, Tensor], None]


class _SiteVisitor(TorchFunctionMode):
    """Calls `visit(i, value)` when the i-th site's value has just been computed."""

    def __init__(self, sites: Sequence[Site], visit: Visitor, rows: int) -> None:
        super().__init__()
        self._sites, self._rows = sites, rows
        self._wanted: dict[CallKey, int] = {site.key: i for i, site in enumerate(sites)}
        self._functions = {site.key[0] for site in sites}
        self._counts: Counter[str] = Counter()
        self._visit = visit
        self.visited = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = function_name(func)
        if name in self._functions and next(tensors_in(result), None) is not None:
            site = self._wanted.get((name, self._counts[name]))
            self._counts[name] += 1
            if site is not None:
                self._check_units(self._sites[site], result)
                self._visit(site, result)
                self.visited += 1
        return result

    def _check_units(self, site: Site, value: Tensor) -> None:
        if site.units and value.numel() != site.units * self._rows:
            raise ModelError(
                f"{site.name} has {value.numel()} units for {self._rows} image(s), expected {site.units} an image: the "
                "network does not compute a batch as it computes one image; use a batch size of 1"
            )


def visit_sites(model: nn.Module, sites: Sequence[Site], inputs: Tensor, visit: Visitor) -> Any:
    """Run a network and call `visit(i, value)` on each site's value when it has just been computed.

    The value may be overwritten in place by what follows: whoever keeps it keeps a copy.
    """
    images = inputs.clone()  # a network may change its input in place
    with uncompiled():
        if not sites:
            return model(images)
        with _SiteVisitor(sites, visit, len(inputs)) as mode:
            output = model(images)
    if mode.visited != len(sites):
        raise ModelError(
            f"the network computed differently from one pass to the next: {mode.visited} of {len(sites)} sites were "
            "reached; a deterministic network is needed"
        )
    return output


class Pathway:
    """A network, the sites at which it is held to its original computation, and the rule that holds it.

    Args:
        model: The network; only ever called.
        sites: Where gradients are clipped.
        rule: What is clipped.
    """

    def __init__(self, model: nn.Module, sites: Sequence[Site], rule: Rule) -> None:
        self.model = model
        self.sites = list(sites) if rule.constrains else []
        self.rule = rule
        self._reference: list[Tensor] = []

    def record(self, inputs: Tensor) -> Any:
        """Keep h, or for binary rules just its state, at every site, and return the network's output.

        `inputs` has the shape of the batches that follow: kernels differ by batch size, and then equal images would
        give unequal h and h̃.
        """
        reference: dict[int, Tensor] = {}

        def keep(site: int, value: Tensor) -> None:
            h = value.detach()
            # the comparison, or the copy, happens now: a following in-place operation overwrites the value
            reference[site] = self.rule.ceiling(h, h) if self.rule.binary and self.rule.ceiling else h.clone()

        # with a gradient, as in `run`: kernels may differ without one too
        output = visit_sites(self.model, self.sites, inputs.detach().requires_grad_(), keep)
        self._reference = [reference[i] for i in range(len(self.sites))]
        return output

    def run(self, inputs: Tensor, shares: dict[int, Tensor] | None = None) -> Any:
        """The network's output on `inputs`, whose back-propagation is clipped at every site.

        Args:
            inputs: A batch of the recorded shape.
            shares: If given, filled during back-propagation: for each site and row, the share of units with a
                gradient that lost it.
        """
        rule = self.rule

        def hold(site: int, value: Tensor) -> None:
            reference = self._reference[site]
            if value.shape != reference.shape:
                raise ModelError(
                    f"the network computed differently from one pass to the next: {self.sites[site].name} has shape "
                    f"{tuple(value.shape)}, expected {tuple(reference.shape)}; a deterministic network is needed"
                )
            if not value.requires_grad or rule.ceiling is None:
                return
            ceiling = reference if rule.binary else rule.ceiling(reference, value.detach())
            rows = len(inputs)

            def clip(grad: Tensor | None) -> Tensor | None:
                if grad is None:  # what uses the value passes no gradient on
                    return None
                clipped = rule.clip(grad, ceiling)
                if shares is not None:
                    shares[site] = _lost_share(grad, clipped, rows)
                return clipped

            value.register_hook(clip)

        return visit_sites(self.model, self.sites, inputs, hold)


def _lost_share(before: Tensor, after: Tensor, rows: int) -> Tensor:
    had = (before != 0).reshape(rows, -1).sum(1)
    has = (after != 0).reshape(rows, -1).sum(1)
    return (had - has) / had.clamp(min=1)  # where there was no gradient, none was lost
