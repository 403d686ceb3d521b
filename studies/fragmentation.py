"""Does the inside measure rerouting or fragmentation? Maps compared at equal fragmentation.

    python -m studies.fragmentation NETWORK PHOTOGRAPHS --name NAME --count 20 --scores FILE

Without a constraint, FEI's masks leave the inside of a network as far from the original as random maps do, and they are
as fragmented. If fragmentation alone does it, maps that are smoothed to the same rank variation are alike inside, and
masks whose connected components are put elsewhere are no worse than before. Each map is measured as it is, smoothed to
given rank variations (left out where it is smoother already), and with the components of its masks shuffled; plainly,
and weighted by what each unit has to say about the class. The references are the held-out ones, the same for all.

Photographs are drawn from a folder with seed 0. Each number is a line of JSON, written as it comes; what a file holds
already is not computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import label
from studies.flagship.measure import asked, begun, drawn, seeded
from torch import Tensor

import fei
from fei import metrics, protocols
from fei.core.settings import PAPER_QUANTILES
from fei.metrics import rank_total_variation
from fei.models import Classifier
from fei.references import gaussian_blur

METHODS = ("fei-none", "fei-vm", "random", "smooth-noise")
VARIATIONS = (0.1, 0.03)  # of ranks: a random map has 1/3
_HALVINGS, _TRIES = 16, 100
_PROTOCOL = "held-out"
Mask = NDArray[np.bool_]


def smoothed(maps: Tensor, variation: float) -> tuple[Tensor, float] | None:
    """A map (1, 1, H, W) blurred until its rank variation is what is asked for, and σ; None if it is smoother already.

    Ranks are blurred, so that the result depends on nothing but the order of the pixels.
    """
    if rank_total_variation(maps).item() <= variation:
        return None
    ranks = maps.flatten().argsort(stable=True).argsort(stable=True).view_as(maps).double()
    low, high = 0.0, float(min(maps.shape[2:]))
    for _ in range(_HALVINGS):
        sigma = (low + high) / 2
        rough = rank_total_variation(_blurred(ranks, sigma)).item() > variation
        low, high = (sigma, high) if rough else (low, sigma)
    return _blurred(ranks, high), high


def _blurred(ranks: Tensor, sigma: float) -> Tensor:
    return gaussian_blur(ranks, sigma, int(4 * sigma + 0.5))


def shuffled(kept: Mask, draw: np.random.Generator) -> tuple[Mask, float]:
    """The connected components of a mask put elsewhere, and the share of its pixels for which there was no room.

    The largest first, each wherever it covers none of the others; what leaves the image comes in at the other side.
    Pixels of components that fit nowhere in a number of tries are put anywhere.
    """
    labels, _ = label(kept)
    order = np.argsort(labels, axis=None, kind="stable")[(~kept).sum() :]  # kept pixels, component by component
    starts = np.flatnonzero(np.diff(labels.ravel()[order], prepend=0))
    pieces = sorted(np.split(order, starts[1:]), key=len, reverse=True)
    taken, homeless = np.zeros_like(kept), 0
    for piece in pieces:
        rows, columns = np.unravel_index(piece, kept.shape)
        for down, right in draw.integers(0, kept.shape, (_TRIES, 2)):
            place = (rows + down) % kept.shape[0], (columns + right) % kept.shape[1]
            if not taken[place].any():
                taken[place] = True
                break
        else:
            homeless += len(piece)
    left = draw.permutation(np.flatnonzero(~taken))[:homeless]
    taken.ravel()[left] = True
    return taken, homeless / max(1, int(kept.sum()))


def borders(mask: Mask) -> float:
    """The share of neighbouring pixels of which one is kept and the other not: how fragmented a mask is."""
    across = [mask[1:] ^ mask[:-1], mask[:, 1:] ^ mask[:, :-1]]
    return float(sum(each.sum() for each in across) / sum(each.size for each in across))


def masks_of(maps: Tensor) -> list[Mask]:
    """What the paper's quantiles keep of a map, (H, W) each; equal values in raster order."""
    order = maps.flatten().argsort(stable=True)
    masks = []
    for quantile in PAPER_QUANTILES:
        mask = torch.ones(len(order), dtype=torch.bool)
        mask[order[: round(quantile * len(order))]] = False
        masks.append(mask.view(maps.shape[2:]).numpy())
    return masks


def inside(model: Classifier, x: Tensor, masks: list[Mask]) -> dict[str, float]:
    """Both inside measures at the last feature layer, the mean over the masks, and how fragmented these are."""
    last = model.feature_layers[-1]
    found = []
    for quantile, mask in zip(PAPER_QUANTILES, masks, strict=True):
        levels = protocols.Quantiles((quantile,))
        protocol = replace(protocols.get(_PROTOCOL), name="one-level", levels=levels)
        maps = torch.from_numpy(mask).to(x)[None, None]
        measured = metrics.internal(model, x, maps, layers=[last], protocol=protocol, relevance=True)
        found.append({name: values.item() for name, values in measured[last].numbers.items()})
    means = {name: float(np.mean([each[name] for each in found])) for name in found[0]}
    return means | {"borders": float(np.mean([borders(mask) for mask in masks]))}


def on_photograph(
    model: Classifier, x: Tensor, method: str, variations: tuple[float, ...] = VARIATIONS
) -> Iterator[tuple[str, Callable[[], dict[str, float]]]]:
    """The measurements of one method on one photograph, by kind."""
    kept: dict[str, Tensor] = {}

    def maps() -> Tensor:
        if "map" not in kept:
            kept["map"] = fei.methods.create(method)(model, x, generator=seeded())
        return kept["map"]

    def as_it_is() -> dict[str, float]:
        return inside(model, x, masks_of(maps())) | {"variation": rank_total_variation(maps()).item()}

    def smooth(variation: float) -> dict[str, float]:
        found = smoothed(maps(), variation)
        if found is None:
            return {"variation": rank_total_variation(maps()).item()}
        blurred, sigma = found
        return inside(model, x, masks_of(blurred)) | {
            "variation": rank_total_variation(blurred).item(),
            "sigma": sigma,
        }

    def shuffle() -> dict[str, float]:
        draw = np.random.default_rng(0)
        others = [shuffled(mask, draw) for mask in masks_of(maps())]
        homeless = float(np.mean([share for _, share in others]))
        return inside(model, x, [mask for mask, _ in others]) | {"homeless": homeless}

    yield "as it is", as_it_is
    for variation in variations:
        yield f"smoothed to {variation:g}", lambda variation=variation: smooth(variation)  # type: ignore[misc]
    yield "shuffled", shuffle


def main() -> None:
    """Run from the command line."""
    options = asked("Compare the inside measures at equal fragmentation.", 20).parse_args()
    model, scores = begun(options)
    photographs = drawn(options.photographs, options.count)
    for number, file in enumerate(photographs):
        x = model.preprocess(file)[None]
        for method in METHODS:
            for kind, compute in on_photograph(model, x, method):
                row = {"network": options.name, "photograph": file.stem, "method": method, "kind": kind}
                scores.add(row, compute)
        print(f"{options.name}: {number + 1} of {len(photographs)} photographs", flush=True)


if __name__ == "__main__":
    main()
