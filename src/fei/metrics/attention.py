"""Inside a transformer: how far attention patterns on perturbed images are from those on the photograph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fei.common.layout import Layout
from fei.core.attention import find_attention
from fei.core.checks import check_batch_size, check_inputs, check_mode, default_rows, explained_failure
from fei.core.dataflow import trace
from fei.core.pathway import visit_sites
from fei.core.randomness import seed_of
from fei.core.stream import Stream, find_stream
from fei.errors import InputError
from fei.metrics.declaration import Metric, Need, Subject
from fei.metrics.perturbation import Perturbations, check_maps
from fei.progress import Progress, reporter
from fei.protocols import Protocol, default_protocol, get
from fei.references import ReferenceSpec


@dataclass(frozen=True)
class Divergence:
    """Jensen–Shannon divergence of a block's attention from that on the photograph, head by head.

    JS(A, Ã) = ½ Σ A·ln(A/M) + ½ Σ Ã·ln(Ã/M) with M = ½(A + Ã), of a row: from 0, for equal rows, to ln 2 ≈ .693.

    Attributes:
        cls: Of the class token's row, (N, heads); ``None`` where there is no class token.
        kept: Mean over the rows of kept patches, those of which at least half the pixels are kept, (N, heads); NaN
            where no perturbed image keeps one.

    Examples:
        >>> (first, *_) = fei.metrics.attention_divergence(transformer, images[:, :, :12], maps[:, :, :12]).values()
        >>> bool((first.cls >= 0).all() and (first.cls <= 0.694).all())
        True
    """

    cls: Tensor | None
    kept: Tensor


def attention_divergence(
    model: nn.Module,
    inputs: Tensor,
    maps: Tensor,
    *,
    protocol: str | Protocol | None = None,
    reference: ReferenceSpec = None,
    generator: torch.Generator | None = None,
    batch_size: int | None = None,
    progress: bool | Progress = False,
) -> dict[str, Divergence]:
    """How far attention along the insertion curve is from the original's: the mean over the curve, its ends left out.

    Args:
        model: The classifier, a transformer whose blocks attend over all patches; only ever called.
        inputs: Images (N, C, H, W).
        maps: Their attribution maps (N, 1, H, W).
        protocol: Id or object, see `fei.protocols`; as for `internal`.
        reference: R, where the protocol leaves it to the call.
        generator: Supplies the seed of R and of the order of ties; 0 without.
        batch_size: Rows in one forward pass.
        progress: ``True`` for a progress bar, or a callable on (forwards done, in all).

    Returns:
        By the module that attends, from shallow to deep.

    Examples:
        >>> found = fei.metrics.attention_divergence(transformer, images[:, :, :12], maps[:, :, :12])
        >>> {block: tuple(divergence.kept.shape) for block, divergence in found.items()}  # two images, two heads
        {'blocks.0.attn': (2, 2), 'blocks.1.attn': (2, 2)}
    """
    x = check_inputs(inputs)
    check_mode(model)
    size = check_batch_size(batch_size) or default_rows(x)
    chosen = get(protocol or default_protocol(reference))
    if chosen.drops_tokens:
        raise InputError(f"Protocol {chosen.id} leaves patches out, and their attention with them; choose another.")
    flat = check_maps(maps, x)
    with explained_failure(x):
        flow, _ = trace(model, x[:1])
    stream = find_stream(model, flow)
    perturbed = Perturbations(chosen, model, x, flat, reference, seed_of(generator), ["insertion"])
    counts = perturbed.counts["insertion"]
    pending = [[row for row in perturbed.rows(i) if counts[row.point] < perturbed.total] for i in range(len(x))]
    if not pending[0]:
        raise InputError(
            f"Protocol {chosen.id} replaces none or all of the pixels, which leaves no point at which to compare "
            "attention; use another."
        )
    found: list[list[tuple[Tensor, Tensor]]] = [[] for _ in stream.patterns]
    layout = Layout()
    with reporter(progress, sum(map(len, pending))) as tick, torch.no_grad():
        for image, rows in enumerate(pending):
            originals = _read(model, stream, layout, x[image : image + 1], lambda _, pattern: pattern.clone())
            parts: list[list[tuple[Tensor, Tensor]]] = [[] for _ in stream.patterns]
            for batch in perturbed.batches(rows, size):
                kept = _kept_patches(perturbed.kept_pixels(batch), stream)

                def compare(block: int, pattern: Tensor, originals: list[Tensor] = originals) -> Tensor:
                    return _divergence(originals[block], pattern)

                for block, divergence in enumerate(_read(model, stream, layout, perturbed.make(batch), compare)):
                    parts[block].append((divergence, kept))
                for _ in batch:
                    tick()
            for block, of_block in enumerate(parts):
                found[block].append(_summary(of_block, stream))
    return {
        name: Divergence(
            None if stream.grid.class_token is None else torch.stack([cls for cls, _ in of_images]),
            torch.stack([kept for _, kept in of_images]),
        )
        for name, of_images in zip(_names(stream), found, strict=True)
    }


def _names(stream: Stream) -> list[str]:
    """The modules that attend; with the function, where one of them does so twice."""
    modules = [site.name.partition(":")[0] for site in stream.patterns]
    return modules if len(set(modules)) == len(modules) else [site.name for site in stream.patterns]


def _read(
    model: nn.Module, stream: Stream, layout: Layout, images: Tensor, take: Callable[[int, Tensor], Tensor]
) -> list[Tensor]:
    """What `take` makes of each block's number and its A, (rows, heads, T, T), in double precision where there is one.

    One pattern at a time is there: those of all blocks of a large network would fill the memory.
    """
    seen: dict[int, Tensor] = {}

    def visit(block: int, pattern: Tensor) -> None:
        wide = pattern if pattern.device.type == "mps" else pattern.double()
        seen[block] = take(block, stream.of_heads(wide, len(images)))

    with explained_failure(images):
        layout.run(lambda rows: visit_sites(model, stream.patterns, rows, visit), images)
    return [seen[block] for block in range(len(stream.patterns))]


def _kept_patches(pixels: Tensor, stream: Stream) -> Tensor:
    """Which patches are kept, (rows, patches), from the kept share of each pixel (rows, H, W)."""
    shares = F.adaptive_avg_pool2d(pixels[:, None], (stream.grid.height, stream.grid.width))
    return shares.flatten(1) >= 0.5


def _divergence(original: Tensor, perturbed: Tensor) -> Tensor:
    """JS of each row, (rows, heads, T)."""
    middle = ((original + perturbed) / 2).clamp(min=torch.finfo(original.dtype).tiny)  # 0 where both are
    return (torch.xlogy(original, original / middle) + torch.xlogy(perturbed, perturbed / middle)).sum(-1) / 2


def _summary(parts: list[tuple[Tensor, Tensor]], stream: Stream) -> tuple[Tensor, Tensor]:
    """Of one image, the mean over its perturbed ones: the class token's row, and the rows of kept patches, (heads,)."""
    divergence, kept = (torch.cat(each) for each in zip(*parts, strict=True))
    token = stream.grid.class_token
    cls = divergence[:, :, 0 if token is None else token].mean(0)
    shares = kept.to(divergence) / kept.sum(1, keepdim=True).clamp(min=1)
    some = kept.any(1)
    of_kept = (divergence[:, :, stream.grid.patches] * shares[:, None]).sum(-1)
    return cls.cpu(), of_kept[some].mean(0).cpu()


def _measured(subject: Subject) -> dict[str, Divergence]:
    """By block; nothing where the network has no attention."""
    flow, _ = trace(subject.model, subject.inputs[:1])
    if not find_attention(subject.model, flow).reached:
        return {}
    return attention_divergence(
        subject.model, subject.inputs, subject.maps, protocol=subject.protocol, **subject.options
    )


def _mean(name: str) -> Callable[[Subject], dict[str, Tensor]]:
    def measure(subject: Subject) -> dict[str, Tensor]:
        found = {block: getattr(one, name) for block, one in subject.once(_measured).items()}
        return {block: heads.mean(1) for block, heads in found.items() if heads is not None}

    return measure


_NEEDS: tuple[Need, ...] = ("network", "protocol")
METRICS = (
    Metric("cls_divergence", "class JS", False, "attention", _mean("cls"), _NEEDS, format=".4f"),
    Metric("kept_divergence", "patch JS", False, "attention", _mean("kept"), _NEEDS, format=".4f"),
)
