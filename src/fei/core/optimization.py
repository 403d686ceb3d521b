"""Ensemble quantile optimisation of a group of images (paper, algorithm 1), all quantiles in one batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fei.core.checks import image_gradient, layout_of
from fei.core.focus import Focus
from fei.core.pathway import Pathway
from fei.core.quantiles import AdamUpdate, ProjectedUpdate, SharedUpdate, Update
from fei.core.relevance import evidence_ranks, evidence_weights
from fei.core.scoring import Target, evaluate, logits_of, relative_score
from fei.core.settings import Settings
from fei.references import gaussian_blur

Watcher = Callable[[int, Tensor], None]

_SETTLE = 10  # early stopping compares masks this many steps apart
_RIVALS = 0.6  # how much other classes count in a class's evidence, see `fei.core.scoring.relative_score`
_REACH = 2.5  # of a Gaussian, in σ


@dataclass(frozen=True)
class Group:
    """Images that are optimised together.

    Attributes:
        images: (n, C, H, W).
        reference: R of some rows (images × masks), by their numbers, at a given step, broadcastable to them.
        target: As the caller gave it; a callable scores the network's output itself.
        chosen: Explained class of each image, or ``None`` to take the network's top class.
        rows: How many images one forward pass takes.
        mask_channels: 1 where the colour channels share a mask, else as many as there are channels.
    """

    images: Tensor
    reference: Callable[[int, Sequence[int]], Tensor]
    target: Target
    chosen: Tensor | None
    rows: int
    mask_channels: int = 1


@dataclass
class Result:
    """The masks of a group and how they came about; see `fei.core.explanation.Trace`."""

    alphas: Tensor
    chosen: Tensor
    phi: Tensor
    area: Tensor
    stopped: Tensor
    shares: dict[int, Tensor]
    ranks: Tensor | None


@dataclass(frozen=True)
class _Chunk:
    """Rows that go through the network together; the last one of a group may repeat its final row to keep the shape.

    Their numbers are kept where they are read, on the host and on the device: to ask a device for them would wait for
    all that it has still to do.
    """

    numbers: Sequence[int]
    rows: Tensor
    real: int
    whole: bool

    def of(self, values: Tensor) -> Tensor:
        """Its rows of some values, not to be changed: a copy only where it does not have them all."""
        return values if self.whole else values[self.rows]


class Optimization:
    """One group's masks, moved step by step against the clipped gradient of its loss; `focus` is the pathway's."""

    def __init__(self, pathway: Pathway, group: Group, settings: Settings, focus: Focus | None = None) -> None:
        self._pathway, self._group, self._settings = pathway, group, settings
        x = group.images
        self._masks = settings.masks
        # in the usual layout, in which images blend several times as fast; the network gets them in their own
        self._x, self._layout = x.repeat_interleave(self._masks, 0).contiguous(), layout_of(x)
        self._chunks = self._cut(range(len(self._x)))
        self._turns: dict[int, list[_Chunk]] = {}
        self._last_phi = torch.zeros(len(self._x), dtype=torch.promote_types(x.dtype, torch.float32), device=x.device)
        # every chunk of a group repeats the same images in the same rows, so one recording serves them all
        output = pathway.record(self._tried(0)[0].of(self._x).contiguous(memory_format=self._layout))
        self._chosen = group.chosen if group.chosen is not None else self._top_class(output)
        self._ranks: Tensor | None = None
        if focus is not None:
            self._focus(focus)
        self._update = self._start()

    def run(self, tick: Callable[[], None], on_step: Watcher | None = None, *, told: bool = True) -> Result:
        """All steps, calling `tick` and `on_step` after each.

        Unless how it went is `told`, the score after the last step is not computed, and that before it stands there.
        """
        s, n = self._settings, len(self._group.images)
        phi, area = [], []
        stopped = torch.full((n, self._masks), -1, device=self._group.images.device)
        moving: list[_Chunk] | None = None
        shares: dict[int, Tensor] = {}
        settled = self._update.alpha
        for step in range(s.steps):
            last = step == s.steps - 1
            # the last time that each mask is tried, it is told what it lost
            telling = told and step >= s.steps - -(-self._masks // s.tried)
            chunks = self._tried(step) if moving is None or last else moving
            score, grad = self._gradient(step, chunks, shares if telling else None)
            phi.append(score)
            area.append(self._area())
            self._update.step(grad, stopped >= 0 if s.early_stop is not None else None)
            tick()
            if on_step is not None:
                on_step(step + 1, self._update.alpha)
            if s.early_stop is not None and (step + 1) % _SETTLE == 0:
                moved = (self._update.alpha - settled).abs().flatten(2).mean(-1)
                settled = self._update.alpha
                still = moved < s.early_stop
                if s.nesting == "cumulative":
                    still = still.all(1, keepdim=True).expand_as(still)
                stopped = torch.where((stopped < 0) & still, step + 1, stopped)
                if last:
                    break
                if bool((stopped >= 0).all()):
                    if told:
                        self._gradient(step + 1, self._chunks, shares)
                    break
                if n == 1 and bool((stopped == step + 1).any()):
                    # its rows are all the same image, so any of them can go through the network together
                    moving = self._cut((stopped[0] < 0).nonzero()[:, 0].tolist())
                    self._last_phi = self._scores(step + 1).flatten()
        phi.append(self._scores(s.steps) if told else phi[-1])
        area.append(self._area())
        missing = s.steps + 1 - len(phi)
        phi, area = phi + phi[-1:] * missing, area + area[-1:] * missing
        scores = torch.stack(phi, -1)
        for mask in range(s.tried, self._masks):  # before it was first tried it had no score
            begun = mask // s.tried
            scores[:, mask, :begun] = scores[:, mask, begun : begun + 1]
        lost = {site: share.view(-1, self._masks) for site, share in shares.items()}
        return Result(self._update.alpha, self._chosen, scores, torch.stack(area, -1), stopped, lost, self._ranks)

    def _start(self) -> Update:
        s, x = self._settings, self._group.images
        dtype = torch.promote_types(x.dtype, torch.float32)
        areas = None if s.one_mask else torch.tensor(s.areas, dtype=dtype, device=x.device)
        level = 0.0 if isinstance(s.init, str) else float(s.init)
        alpha = torch.full(
            (len(x), self._masks, self._group.mask_channels, *x.shape[2:]), level, dtype=dtype, device=x.device
        )
        if s.init == "area" and areas is not None:
            alpha += areas.view(1, -1, 1, 1, 1)
        nested = s.nesting == "cumulative"
        if s.nesting == "shared" and areas is not None:
            return SharedUpdate(alpha, areas, lr=s.lr, steps=s.steps)
        if s.constraint == "projection" and areas is not None:
            return ProjectedUpdate(alpha, areas, lr=s.lr, steps=s.steps, nested=nested)
        beta = 0.0 if s.constraint == "none" else s.beta
        return AdamUpdate(alpha, areas, lr=s.lr, beta=beta, reduction=s.reduction, nested=nested)

    def _focus(self, focus: Focus) -> None:
        """Weight the gradient at a site by where the class has its evidence; tokens that are no patches keep theirs."""

        def score(output: object) -> Tensor:
            return relative_score(output, self._group.target, self._chosen, self._settings.score, _RIVALS)

        images = self._group.images
        evidence, share = focus.evidence(self._pathway.model, images, score), self._settings.focus
        weights = focus.grid.from_map((1 - share) + share * evidence_weights(evidence), fill=1.0)
        self._pathway.weight(weights[self._tried(0)[0].rows // self._masks])
        self._ranks = evidence_ranks(evidence, images.shape[2:])

    def _tried(self, step: int) -> list[_Chunk]:
        """Chunks of the masks that are tried at a step: all, or so many at a time in turns, the same of each image."""
        tried, masks = self._settings.tried, self._masks
        if tried == masks:
            return self._chunks
        first = step * tried % masks
        if first not in self._turns:
            which = [(first + number) % masks for number in range(tried)]
            images = range(len(self._group.images))
            self._turns[first] = self._cut([masks * image + mask for image in images for mask in which])
        return self._turns[first]

    def _cut(self, rows: Sequence[int]) -> list[_Chunk]:
        """Chunks of one shape that hold these rows."""
        size, chunks = self._group.rows, []
        for start in range(0, len(rows), size):
            real = rows[start : start + size]
            numbers = [*real, *[rows[-1]] * (size - len(real))]
            whole = numbers == list(range(len(self._x)))
            chunks.append(_Chunk(numbers, torch.tensor(numbers, device=self._x.device), len(real), whole))
        return chunks

    def _top_class(self, output: object) -> Tensor:
        if callable(self._group.target):
            return torch.full((len(self._group.images),), -1, device=self._x.device)
        classes = logits_of(output, self._group.rows).argmax(1)
        return classes[:: self._settings.tried] if len(self._group.images) > 1 else classes[:1]

    def _terms(self) -> list[tuple[bool, float]]:
        """(does α say what to delete?, sign of φ in the loss): −φ when inserting, +φ when deleting."""
        return {"insertion": [(False, -1.0)], "deletion": [(True, 1.0)], "both": [(False, -1.0), (True, 1.0)]}[
            self._settings.objective
        ]

    def _blend(self, chunk: _Chunk, step: int, deletes: bool) -> tuple[Tensor, Tensor, Tensor]:
        """The two images that α goes between, and the blend x̃ at α."""
        x = chunk.of(self._x)
        r = self._group.reference(step, chunk.numbers).to(x).expand_as(x)
        start, end = (x, r) if deletes else (r, x)
        alpha = chunk.of(self._update.alpha.flatten(0, 1))
        # lerp is exact at both ends: with α = 1, x̃ is x to the bit
        blend = torch.lerp(start.to(alpha), end.to(alpha), alpha).to(x.dtype)
        return start, end, blend.contiguous(memory_format=self._layout)

    def _gradient(self, step: int, chunks: list[_Chunk], shares: dict[int, Tensor] | None) -> tuple[Tensor, Tensor]:
        """φ of each mask, and the clipped gradient of the loss with respect to those in `chunks`.

        Where `shares` is given, it takes what each row lost at each site.
        """
        alpha = self._update.alpha.flatten(0, 1)
        grad, phi = torch.zeros_like(alpha), self._last_phi.clone()
        strength = self._settings.contrast
        for first, (deletes, sign) in zip((True, False), self._terms(), strict=False):
            for chunk in chunks:
                start, end, image = self._blend(chunk, step, deletes)
                chunk_shares: dict[int, Tensor] | None = {} if first and shares is not None else None
                output = self._pathway.run(image.requires_grad_(), chunk_shares)
                score = self._phi(output, chunk.rows)
                way = end.to(alpha) - start.to(alpha)
                # the sign that the pathway asks for
                along = _along(image_gradient(-sign * score.sum(), image, again=strength > 0), way, alpha)
                if strength > 0:
                    against = _along(image_gradient(sign * score.sum(), image), way, alpha)
                    along = contrasted(along, against, strength)
                if (sigma := self._settings.smoothing(step)) > 0:
                    along = gaussian_blur(along, sigma, max(1, round(_REACH * sigma)))
                real = chunk.rows[: chunk.real]
                grad[real] -= along[: chunk.real]
                if first:
                    phi[real] = score.detach()[: chunk.real].to(phi)
                if shares is not None:
                    for site, share in (chunk_shares or {}).items():
                        shares.setdefault(site, share.new_zeros(len(self._x)))[real] = share[: chunk.real]
        self._last_phi = phi
        return phi.view(-1, self._masks), grad.view_as(self._update.alpha)

    @torch.no_grad()
    def _scores(self, step: int) -> Tensor:
        deletes = self._terms()[0][0]
        phi = self._update.alpha.new_zeros(len(self._x))
        for chunk in self._chunks:
            output = self._pathway.score(self._blend(chunk, step, deletes)[2])
            phi[chunk.rows] = self._phi(output, chunk.rows).to(phi)
        return phi.view(-1, self._masks)

    def _phi(self, output: object, rows: Tensor) -> Tensor:
        return evaluate(output, self._group.target, self._chosen[rows // self._masks], self._settings.score)

    def _area(self) -> Tensor:
        return self._update.alpha.flatten(2).mean(-1)


def _along(gradient: Tensor, way: Tensor, alpha: Tensor) -> Tensor:
    """The gradient with respect to the masks, of which each pixel moves the image along its way from start to end."""
    return (gradient.to(alpha).contiguous() * way).sum_to_size(len(gradient), *alpha.shape[1:])


def contrasted(towards: Tensor, against: Tensor, strength: float) -> Tensor:
    """The direction that masks take: g⁺ − λ·g⁻.

    g⁺ comes from back-propagating φ, g⁻ from −φ, both clipped on their whole way. Either holds only ways *home*, to the
    photograph's own activations: those that help the class, and those that hurt it. What speaks for any class is in
    both, and cancels. It is not free: −g⁻ leads away from home, so the contrast trades a part of the constraint for
    the class. With a single clip site under VM, λ = 1 gives the gradient that was never clipped.

    Args:
        towards: g⁺ for each mask, (rows, channels, H, W).
        against: g⁻, likewise.
        strength: λ.
    """
    return towards - strength * against
