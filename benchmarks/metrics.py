"""Speed of the metrics: against torchcam's and Quantus', rows through the network, and the layout of these rows.

    python benchmarks/metrics.py [--network mobilenet_v1] [--repeats 5]

Same network, image, map and number of points, in turns, in one run:

- torchcam: `DeletionInsertionMetric` (both curves, 20 intervals) against our `evaluate` under the same protocol, which
  measures internal faithfulness in the same forwards as well.
- Quantus: `PixelFlipping` (deletion only, 21 points) against our `deletion` with as many points, and against all of
  `evaluate`.

Rows: how many pass the network for insertion, deletion and internal faithfulness together, against one after the other,
under each protocol. Layout: `evaluate` with rows channels last, as it computes on a CPU, against contiguous ones.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import torch
from _common import NETWORKS, PHOTOS, TOY, Results, alternated, latest, load, markdown, photo, spread

import fei
from fei.common.layout import Layout
from fei.models import Classifier


class FixedMaps:
    """What torchcam's metric needs of an extractor, with maps made elsewhere."""

    def __init__(self, model: torch.nn.Module, maps: torch.Tensor) -> None:
        self.model, self.maps = model, maps

    def __call__(self, *args: Any, **kwargs: Any) -> list[torch.Tensor]:
        return [self.maps[:, 0]]

    def fuse_cams(self, cams: list[torch.Tensor]) -> torch.Tensor:
        return cams[0]

    def _hooks_off(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


def noise_maps(x: torch.Tensor) -> torch.Tensor:
    """Maps without ties, so that nothing depends on how ties are broken."""
    return torch.rand(len(x), 1, *x.shape[2:], generator=torch.Generator().manual_seed(0))


def passes(protocol: str, side: int) -> dict[str, float]:
    """Rows per image through the network, counted at the network, for the three metrics together and apart.

    They depend on the size of the image alone, so the network is the toy.
    """
    model, x = load(TOY), torch.rand((1, 3, side, side), generator=torch.Generator().manual_seed(0))
    maps, target = noise_maps(x), model(x).argmax(1)
    metrics = fei.metrics
    result, together = metrics.measure_cost(model, lambda: metrics.evaluate(model, x, maps, protocol=protocol))
    apart = [
        metrics.measure_cost(model, call)[1].forwards
        for call in (
            lambda: metrics.insertion(model, x, maps, target, protocol=protocol),
            lambda: metrics.deletion(model, x, maps, target, protocol=protocol),
            lambda: metrics.internal(model, x, maps, protocol=protocol),
        )
    ]
    return {
        "points": len(result.insertion.fractions),
        "reported": result.forwards,
        "together": together.forwards / len(x),
        "apart": sum(apart) / len(x),
    }


@contextlib.contextmanager
def contiguous_rows() -> Iterator[None]:
    """Rows laid out as they were before channels last."""
    with mock.patch.object(Layout, "run", lambda _, network, rows: network(rows.contiguous())):
        yield


def layout(model: Classifier, x: torch.Tensor, repeats: int) -> dict[str, float]:
    """`evaluate` channels last over contiguous: time, and how far the numbers are apart."""
    maps = noise_maps(x)
    found: dict[str, fei.metrics.Evaluation] = {}

    def evaluate(way: str) -> None:
        with contiguous_rows() if way == "contiguous" else contextlib.nullcontext():
            found[way] = fei.metrics.evaluate(model, x, maps)

    taken = alternated({way: lambda way=way: evaluate(way) for way in ("contiguous", "last")}, repeats)
    before, after = found["contiguous"], found["last"]
    curves = [(getattr(before, c).scores - getattr(after, c).scores).abs().max() for c in ("insertion", "deletion")]
    pairs = [(before.internal[name], after.internal[name]) for name in before.internal]
    ratios = [last / first for last, first in zip(taken["last"], taken["contiguous"], strict=True)]
    return {
        "seconds": statistics.median(taken["last"]) / len(x),
        **spread(ratios, "ratio"),
        "score_difference": float(max(curves)),
        "mse_difference": max(float(((a.mse - b.mse) / a.mse).abs().max()) for a, b in pairs),
        "cosine_difference": max(float((a.cosine - b.cosine).abs().max()) for a, b in pairs),
    }


def against(model: Classifier, x: torch.Tensor, repeats: int) -> dict[str, float]:
    """Seconds per image of each library."""
    import quantus
    from torchcam.metrics import DeletionInsertionMetric

    maps, target = noise_maps(x), model(x).argmax(1)
    values = x[0].numel()
    step = values // 3 // 7  # divides the pixels of an image, as Quantus demands: 21 points
    points = -(-values // step)
    flipping = dataclasses.replace(
        fei.protocols.get("quantus-pixelflipping"),
        levels=fei.protocols.WithoutStart(fei.protocols.Intervals(points)),
    )

    def torchcam() -> None:
        metric = DeletionInsertionMetric(FixedMaps(model, maps))
        metric.update(x)
        metric.summary()

    def pixel_flipping() -> None:
        metric = quantus.PixelFlipping(features_in_step=step, perturb_baseline="black", disable_warnings=True)
        metric(model, x.numpy(), target.numpy(), maps.numpy(), device="cpu", softmax=True)

    calls: dict[str, Callable[[], Any]] = {
        "torchcam (both curves)": torchcam,
        "fei evaluate, torchcam protocol (both curves + internal)": lambda: fei.metrics.evaluate(
            model, x, maps, protocol="torchcam"
        ),
        "fei curves only, torchcam protocol": lambda: fei.metrics.evaluate(
            model, x, maps, protocol="torchcam", layers=[]
        ),
        "quantus PixelFlipping (deletion)": pixel_flipping,
        "fei deletion, same points": lambda: fei.metrics.deletion(model, x, maps, target, protocol=flipping),
    }
    return {name: statistics.median(taken) / len(x) for name, taken in alternated(calls, repeats).items()}


def passes_table(results: Results) -> str:
    """The table of rows per image."""
    return markdown(
        ["protocol", "points per curve", "together, as reported", "together, counted", "one after the other", "saved"],
        [
            [
                f"`{protocol}`",
                *(f"{row[c]:.0f}" for c in ("points", "reported", "together", "apart")),
                f"{1 - row['together'] / row['apart']:.0%}",
            ]
            for (protocol,), row in latest(results.rows, "protocol").items()
        ],
    )


def layout_table(results: Results) -> str:
    """The table of channels-last rows relative to contiguous ones."""
    kinds = ("score", "mse", "cosine")
    head = ["largest difference of a score", "of an MSE, relative", "of a cosine"]
    return markdown(
        ["network", "seconds per image", "relative to contiguous rows", *head],
        [
            [
                *(network, f"{row['seconds']:.2f}"),
                f"{row['ratio']:.2f} ({row['ratio_low']:.2f}–{row['ratio_high']:.2f})",
                *(f"{row[f'{kind}_difference']:.0e}" for kind in kinds),
            ]
            for (network,), row in latest(results.rows, "network").items()
        ],
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Time alternately, print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--toy", action="store_true", help="the toy network")
    parser.add_argument("--network", default="mobilenet_v1", help="where libraries are compared")
    parser.add_argument("--networks", default=",".join(NETWORKS), help="where layouts are compared")
    parser.add_argument("--images", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args(arguments)
    network, networks = (TOY, [TOY]) if options.toy else (options.network, options.networks.split(","))
    model = load(network)
    x = torch.cat([photo(model, synset) for synset in PHOTOS[: options.images]])
    about = {"network": network, "repeats": options.repeats, "threads": torch.get_num_threads()}
    results = Results("metrics")
    medians = against(model, x, options.repeats)
    for name, taken in medians.items():
        results.append({"what": name, "seconds": taken, **about})
        print(f"{name:60} {taken:7.3f} s per image")
    torchcam, evaluated, curves, quantus_flipping, ours = medians.values()
    print(f"torchcam / fei evaluate: {torchcam / evaluated:.2f}")
    print(f"torchcam / fei curves only: {torchcam / curves:.2f}")
    print(f"quantus / fei deletion: {quantus_flipping / ours:.2f}")
    counted = Results("passes")
    side = 28 if options.toy else 224
    for protocol in [name for name in fei.protocols.available() if not fei.protocols.get(name).drops_tokens]:
        counted.append({"protocol": protocol, "side": side, **passes(protocol, side)})
    print(passes_table(counted), flush=True)
    layouts = Results("layout")
    for name in networks:
        model = load(name)
        layouts.append(about | {"network": name, **layout(model, photo(model, PHOTOS[0]), options.repeats)})
        print(layout_table(layouts), flush=True)


if __name__ == "__main__":
    main()
