"""The computational pathway: what the network did on the original image, and gradients held to it.

`Pathway.record` keeps each site's activation h on the original image; `Pathway.run` evaluates the network on a
perturbed one and hangs a tensor hook on each site that clips the gradient against h. Tensor hooks live and die with
the values of one pass, so the caller's modules are never touched.

The pattern A of an attention is a site like any other, clipped behind its softmax (docs/transformers.md has the trial
against clipping before it); for binary rules an entry is active where A > 1/N, N being the number of keys the row may
attend to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from fei.core.attention import FUSED, attend, even_share
from fei.core.clipgrad import Rule
from fei.core.dataflow import CallKey, CountingMode, Flow, tensors_in, uncompiled
from fei.core.folding import Folding, Reader, can_fold, find_folding, is_watched
from fei.core.sites import AttentionSite, Site
from fei.errors import ModelError

Visitor = Callable[[int, Tensor], None]


class _SiteVisitor(CountingMode):
    """Calls `visit(i, value)` when the i-th site's value has just been computed."""

    def __init__(self, sites: Sequence[Site], visit: Visitor, rows: int, folding: Folding) -> None:
        super().__init__()
        self._sites, self._visit, self._rows, self._folding = sites, visit, rows, folding
        self._wanted: dict[CallKey, int] = {site.key: i for i, site in enumerate(sites)}
        self.visited = 0

    def make(self, key: CallKey, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        site = self._wanted.get(key)
        if site is not None and isinstance(self._sites[site], AttentionSite) and key[0] == FUSED:
            result, value = attend(*args, **kwargs)
        else:
            result = value = self._folding.call(key, func, args, kwargs)
        if site is not None and isinstance(value, Tensor):  # a site's function may also answer without one
            self._check_units(self._sites[site], value)
            self._visit(site, value)
            self.visited += 1
        return result

    def _check_units(self, site: Site, value: Tensor) -> None:
        if site.units and value.numel() != site.units * self._rows:
            raise ModelError(
                f"{site.name} has {value.numel()} units for {self._rows} image(s) and not {site.units} per image, so "
                "the network does not compute a batch as it computes one image; use a batch size of 1."
            )


def visit_sites(
    model: nn.Module, sites: Sequence[Site], inputs: Tensor, visit: Visitor, folding: Folding | None = None
) -> Any:
    """Run a network and call `visit(i, value)` on each site's value when it has just been computed.

    The value may be overwritten in place by what follows: whoever keeps it keeps a copy.

    Args:
        model: The network.
        sites: What is visited.
        inputs: Images (N, C, H, W).
        visit: Called with the site's place in `sites` and its value.
        folding: What is exchanged in the pass.
    """
    folding = Folding() if folding is None else folding
    images = inputs.clone()  # a network may change its input in place
    with uncompiled():
        if not sites and not folding.exchanged:
            return model(images)
        with _SiteVisitor(sites, visit, len(inputs), folding) as mode:
            output = model(images)
    if mode.visited != len(sites):
        raise ModelError(
            f"The network computed differently from one pass to the next ({mode.visited} of {len(sites)} sites were "
            "reached); pass a deterministic network."
        )
    return output


# Of the norm: how far a folded network's output and gradient may be from its own. Rounding moves some units over a
# kink, which the gradient shows. Seen in single precision on 8 networks with their weights and 5 of timm with random
# ones: at most 2e-6 and 7e-3.
_MOST_APART = (1e-4, 2e-2)


def folding_that_holds(model: nn.Module, flow: Flow, sites: Sequence[Site], image: Tensor) -> Folding:
    """What can be folded in a network, if its output and gradient on one image then are what they were; else nothing.

    Code that computes a part again in the pass backwards (checkpoints) makes calls that are not exchanged, and there
    may be other code that one cannot see through.
    """
    if not can_fold(image):
        return Folding()
    reader = Reader()
    try:
        plain = _behaviour(model, image, Folding(), reader)
        folding = find_folding(model, flow, sites, image, reader)
        if not folding.exchanged:
            return folding
        folded = _behaviour(model, image, folding)
    except RuntimeError:  # what is wrong with the network itself, the pass to come will tell
        return Folding()
    alike = ((a - b).norm() <= most * a.norm() for a, b, most in zip(plain, folded, _MOST_APART, strict=True))
    return folding if all(alike) else Folding()


def _behaviour(
    model: nn.Module, image: Tensor, folding: Folding, watching: AbstractContextManager[object] | None = None
) -> tuple[Tensor, Tensor]:
    leaf = image.detach().clone().requires_grad_()
    with watching or nullcontext():
        output = visit_sites(model, [], leaf, lambda _, __: None, folding)
    value = next(tensors_in(getattr(output, "logits", output)))
    (gradient,) = torch.autograd.grad(value.square().sum(), leaf)
    return value.detach(), gradient


class Pathway:
    """A network, the sites at which it is held to its original computation, and the rule that holds it.

    Args:
        model: The network; only ever called.
        sites: Where gradients are clipped.
        rule: What is clipped.
        folding: What is exchanged in each pass.
        focus: A value whose gradient is weighted, see `weight`.
    """

    def __init__(
        self,
        model: nn.Module,
        sites: Sequence[Site],
        rule: Rule,
        folding: Folding | None = None,
        focus: Site | None = None,
    ) -> None:
        self.model = model
        self.sites = list(sites) if rule.constrains else []
        self.rule = rule
        self.focus, self._weights = focus, torch.ones(())
        apart = focus is not None and all(site.key != focus.key for site in self.sites)
        self._watched = [*self.sites, focus] if focus is not None and apart else self.sites
        self._folding = folding or Folding()
        self._guards: dict[int, Tensor] = {}
        self._recorded: Tensor | None = None
        self._answer: Tensor | None = None
        self._kept: list[Tensor] = []
        self._spends = False

    def record(self, inputs: Tensor) -> Tensor | None:
        """Keep what the rule needs of h at every site, and return the network's logits, if its output has any.

        `inputs` has the shape of the batches that follow: kernels differ by batch size, and then equal images would
        give unequal h and h̃. The batch that was recorded last is not computed again.
        """
        if self._recorded is not None and torch.equal(self._recorded, inputs):
            return self._answer
        kept: dict[int, Tensor] = {}

        def keep(site: int, value: Tensor) -> None:
            value = value.detach()
            if self.rule.binary and isinstance(self.sites[site], AttentionSite):
                value = value - even_share(value)
            # in memory of its own: a following in-place operation overwrites the value
            kept[site] = self.rule.keep(value)

        # with a gradient, as in `run`: kernels may differ without one too
        output = visit_sites(self.model, self.sites, inputs.detach().requires_grad_(), keep, self._folding)
        logits = getattr(output, "logits", output)
        self._answer = logits.detach() if isinstance(logits, Tensor) else None  # a graph would hold all activations
        self._recorded = inputs.detach().clone()
        self._kept = [kept[i] for i in range(len(self.sites))]
        self._guards = {}
        # fresh memory costs time, so gradients go into that of the guards, unless somebody may keep them
        self._spends = self.rule.follows and not is_watched(self.model)
        return self._answer

    def weight(self, weights: Tensor) -> None:
        """Multiply the gradient at the focus by these weights from now on; they broadcast to a recorded batch."""
        self._weights = weights

    def run(self, inputs: Tensor, shares: dict[int, Tensor] | None = None, *, twice: bool = False) -> Any:
        """The network's output on `inputs`, whose back-propagation is clipped at every site.

        What is to be back-propagated is the loss with its sign turned, so that what comes to a site is ρ = −γ, see
        `fei.core.clipgrad`. It must come before the next `run`, which uses the same memory.

        Args:
            inputs: A batch of the recorded shape.
            shares: If given, filled during back-propagation: for each site and row, the share of units with a
                gradient that lost it, the first time.
            twice: Whether it will be back-propagated twice, so that what the second time needs must be kept.
        """
        rule, rows = self.rule, len(inputs)
        spend = self._spends and shares is None and not twice

        def hold(site: int, value: Tensor) -> None:
            if self.focus is not None and self._watched[site].key == self.focus.key and value.requires_grad:
                value.register_hook(lambda rho: None if rho is None else rho * self._weights)
            if site == len(self.sites):
                return
            kept = self._kept[site]
            if value.shape != kept.shape:
                raise ModelError(
                    f"The network computed differently from one pass to the next ({self.sites[site].name} has shape "
                    f"{tuple(value.shape)}, expected {tuple(kept.shape)}); pass a deterministic network."
                )
            if not value.requires_grad:
                return
            guard = self._guards[site] = rule.guard(kept, value.detach(), self._guards.get(site))

            def clip(rho: Tensor | None) -> Tensor | None:
                if rho is None:  # what uses the value passes no gradient on
                    return None
                clipped = rule.clip(rho, guard, spend=spend)
                if shares is not None and site not in shares:
                    shares[site] = _lost_share(rho, clipped, rows)
                return clipped

            value.register_hook(clip)

        return visit_sites(self.model, self._watched, inputs, hold, self._folding)

    def score(self, inputs: Tensor) -> Any:
        """The network's output on `inputs`, to look at: nothing is clipped."""
        return visit_sites(self.model, [], inputs, lambda _, __: None, self._folding)


def _lost_share(before: Tensor, after: Tensor, rows: int) -> Tensor:
    had = (before != 0).reshape(rows, -1).sum(1)
    has = (after != 0).reshape(rows, -1).sum(1)
    return (had - has) / had.clamp(min=1)  # where there was no gradient, none was lost
