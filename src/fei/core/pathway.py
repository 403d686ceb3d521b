"""The computational pathway: what the network did on the original image, and gradients held to it.

`Pathway.record` keeps each site's activation h on the original image; `Pathway.run` evaluates the network on a
perturbed one and hangs a tensor hook on each site that clips the gradient against h. Tensor hooks live and die with
the values of one pass, so the caller's modules are never touched.

The pattern A of an attention is a site like any other, clipped behind its softmax (docs/transformers.md has the trial
against clipping before it); for binary rules an entry is active where A > 1/N, N being the number of keys the row may
attend to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fei.core.attention import FUSED, attend, even_share
from fei.core.clipgrad import Rule
from fei.core.dataflow import CallKey, CountingMode, tensors_in, uncompiled
from fei.core.folding import FirstPass, Folding, Ramp, can_fold, find_folding, is_watched
from fei.core.holding import Hold
from fei.core.sites import AttentionSite, Site
from fei.errors import ModelError

Visitor = Callable[[int, Tensor], None]


class _SiteVisitor(CountingMode):
    """Calls `visit(i, value)` when the i-th site's value has just been computed."""

    def __init__(
        self, sites: Sequence[Site], visit: Visitor, rows: int, folding: Folding, unseen: Mapping[int, Ramp]
    ) -> None:
        super().__init__()
        self._sites, self._visit, self._rows, self._folding, self._unseen = sites, visit, rows, folding, unseen
        self._wanted: dict[CallKey, int] = {site.key: i for i, site in enumerate(sites)}
        self.visited = 0

    def make(self, key: CallKey, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        site = self._wanted.get(key)
        if site is not None and isinstance(self._sites[site], AttentionSite) and key[0] == FUSED:
            result, value = attend(*args, **kwargs)
        elif site is not None and site in self._unseen:
            result = value = self._unseen[site].unseen(args, kwargs)
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
    model: nn.Module,
    sites: Sequence[Site],
    inputs: Tensor,
    visit: Visitor,
    folding: Folding | None = None,
    unseen: Mapping[int, Ramp] | None = None,
) -> Any:
    """Run a network and call `visit(i, value)` on each site's value when it has just been computed.

    The value may be overwritten in place by what follows: whoever keeps it keeps a copy.

    Args:
        model: The network.
        sites: What is visited.
        inputs: Images (N, C, H, W).
        visit: Called with the site's place in `sites` and its value.
        folding: What is exchanged in the pass.
        unseen: Of some sites, the ReLU that makes their value; the graph will not know of it, so who visits such a
            site applies its slope.
    """
    folding = Folding() if folding is None else folding
    images = inputs.clone()  # a network may change its input in place
    with uncompiled():
        if not sites and not folding.exchanged:
            return model(images)
        with _SiteVisitor(sites, visit, len(inputs), folding, unseen or {}) as mode:
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


def folding_that_holds(model: nn.Module, seen: FirstPass, sites: Sequence[Site]) -> Folding:
    """What can be folded in a network, if its output and gradient on one image then are what they were; else nothing.

    Code that computes a part again in the pass backwards (checkpoints) makes calls that are not exchanged, and there
    may be other code that one cannot see through.

    Args:
        model: The network.
        seen: A pass on the image.
        sites: Values that are to stay as they are.
    """
    if not can_fold(seen.image):
        return Folding()
    folding = find_folding(model, seen, sites)
    if not folding.exchanged:
        return folding
    leaf = seen.image.detach().clone().requires_grad_()
    try:
        folded = _behaviour(visit_sites(model, [], leaf, lambda _, __: None, folding), leaf)
        plain = _behaviour(seen.output, seen.image)
    except RuntimeError:  # what is wrong with the network itself, the pass to come will tell
        return Folding()
    alike = ((a - b).norm() <= most * a.norm() for a, b, most in zip(plain, folded, _MOST_APART, strict=True))
    return folding if all(alike) else Folding()


def _behaviour(output: Any, image: Tensor) -> tuple[Tensor, Tensor]:
    value = next(tensors_in(getattr(output, "logits", output)))
    (gradient,) = torch.autograd.grad(value.square().sum(), image)
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
        exchanged = self._folding.exchanged
        found = ((number, exchanged.get(site.key)) for number, site in enumerate(self.sites))
        self._ramps = {number: each for number, each in found if isinstance(each, Ramp)}
        self._recorded: Tensor | None = None
        self._answer: Tensor | None = None
        self._kept: list[Tensor] = []
        self._lasting: set[int] = set()
        self._memory: dict[int, Tensor] = {}
        self._reuses = False

    def record(self, inputs: Tensor) -> Tensor | None:
        """Keep what the rule needs of h at every site, and return the network's logits, if its output has any.

        `inputs` has the shape of the batches that follow: kernels differ by batch size, and then equal images would
        give unequal h and h̃. The batch that was recorded last is not computed again.
        """
        if self._recorded is not None and torch.equal(self._recorded, inputs):
            return self._answer
        kept: dict[int, Tensor] = {}
        values: dict[int, tuple[Tensor, int]] = {}

        def keep(site: int, value: Tensor) -> None:
            value = value.detach()
            values[site] = (value, value._version)
            rows = _one_for_all(value, inputs) if self.rule.local else value
            if self.rule.binary and isinstance(self.sites[site], AttentionSite):
                rows = rows - even_share(rows)
            # in memory of its own: a following in-place operation overwrites the value
            kept[site] = self.rule.keep(rows)

        # with a gradient, as in `run`: kernels may differ without one too
        output = visit_sites(self.model, self.sites, inputs.detach().requires_grad_(), keep, self._folding)
        logits = getattr(output, "logits", output)
        self._answer = logits.detach() if isinstance(logits, Tensor) else None  # a graph would hold all activations
        self._recorded = inputs.detach().clone()
        self._kept = [kept[i] for i in range(len(self.sites))]
        self._lasting = {site for site, (value, version) in values.items() if value._version == version}
        self._memory = {}
        # fresh memory costs time, so gradients go into that of the last pass, unless somebody may keep them
        self._reuses = not is_watched(self.model)
        return self._answer

    def weight(self, weights: Tensor) -> None:
        """Multiply the gradient at the focus by these weights from now on; they broadcast to a recorded batch."""
        self._weights = weights

    def run(self, inputs: Tensor, shares: dict[int, Tensor] | None = None) -> Any:
        """The network's output on `inputs`, whose back-propagation is clipped at every site.

        What is to be back-propagated is the loss with its sign turned, so that what comes to a site is ρ = −γ, see
        `fei.core.clipgrad`. It must come before the next `run`, which uses the same memory.

        Args:
            inputs: A batch of the recorded shape.
            shares: If given, filled during back-propagation: for each site and row, the share of units with a
                gradient that lost it, the first time.
        """

        def visit(site: int, value: Tensor) -> None:
            if self.focus is not None and self._watched[site].key == self.focus.key and value.requires_grad:
                value.register_hook(lambda rho: None if rho is None else rho * self._weights)
            if site < len(self.sites):
                self._hold(site, value, shares, len(inputs))

        return visit_sites(self.model, self._watched, inputs, visit, self._folding, self._ramps)

    def _hold(self, site: int, value: Tensor, shares: dict[int, Tensor] | None, rows: int) -> None:
        """Clip the gradient that will come to a site's value."""
        kept, now = self._kept[site], value.detach()
        if value.shape[1:] != kept.shape[1:] or kept.shape[:1] not in ((1,), value.shape[:1]):
            raise ModelError(
                f"The network computed differently from one pass to the next ({self.sites[site].name} has shape "
                f"{tuple(value.shape)}, expected {tuple(kept.shape)}); pass a deterministic network."
            )
        if not value.requires_grad:
            return
        guard = None
        if not self.rule.follows:
            guard = kept
        elif site not in self._lasting:  # it will be overwritten: what is needed of it is taken now
            guard = self.rule.guard(kept.expand_as(now), now)
        hold, version = Hold(self.rule, kept, now, guard, self._ramps.get(site)), now._version

        def clip(rho: Tensor | None) -> Tensor | None:
            if rho is None:  # what uses the value passes no gradient on
                return None
            if now._version != version and (guard is None or hold.ramp is not None):
                raise ModelError(
                    f"The network overwrites {self.sites[site].name} in one pass and not in another; pass a "
                    "deterministic network."
                )
            if shares is not None and site not in shares:
                clipped = hold.clip(rho)
                shares[site] = _lost_share(rho, clipped, rows)
                return hold.slope(clipped)
            passed = hold.pass_on(rho, self._memory.get(site))
            if self._reuses and passed.is_cpu:
                self._memory[site] = passed
            return passed

        value.register_hook(clip)

    def score(self, inputs: Tensor) -> Any:
        """The network's output on `inputs`, to look at: nothing is clipped."""
        return visit_sites(self.model, [], inputs, lambda _, __: None, self._folding)


def _one_for_all(value: Tensor, inputs: Tensor) -> Tensor:
    """The first row where the rows are equal to the bit, as the images are that make a batch of masks; else all."""
    if not inputs.is_cpu or value.shape[:1] != inputs.shape[:1] or not torch.equal(value, value[:1].expand_as(value)):
        return value
    return value[:1]


def _lost_share(before: Tensor, after: Tensor, rows: int) -> Tensor:
    had = (before != 0).reshape(rows, -1).sum(1)
    has = (after != 0).reshape(rows, -1).sum(1)
    return (had - has) / had.clamp(min=1)  # where there was no gradient, none was lost
