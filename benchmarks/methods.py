"""What a map takes, against the peers' implementations of the same method on the same work, in one run.

    python benchmarks/methods.py [--networks squeezenet,mobilenet_v1,resnet50] [--repeats 5] [--work …] [--table]

Grad-CAM: eight images in one batch; one image. Integrated gradients: one image, as many points. Score-CAM and RISE: one
image, the same number of masked copies. A ratio above 1 says that the peer takes longer. With one thread it is CPU time
that counts, so that other work on the machine does not; set OMP_NUM_THREADS on purpose.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from _common import PHOTOS, Results, alternated, load, photo
from torch import Tensor

import fei
from fei.models import Classifier
from fei.models.sources import import_torchvision

SAMPLES = 128
POINTS = 20


def loop_rise(model: Classifier, x: Tensor, target: int, samples: int) -> Tensor:
    """RISE as one would write it first: a mask, a forward pass, add."""
    generator = torch.Generator().manual_seed(0)
    total = torch.zeros(x.shape[2:])
    side = x.shape[2]
    cell = -(-side // 7)
    with torch.no_grad():
        for _ in range(samples):
            grid = (torch.rand(1, 1, 7, 7, generator=generator) < 0.5).float()
            large = F.interpolate(grid, 8 * cell, mode="bilinear", align_corners=False)
            top, left = (int(torch.randint(cell, (), generator=generator)) for _ in range(2))
            mask = large[..., top : top + side, left : left + side]
            shown = x * mask + model.mean * (1 - mask)
            total += model(shown).softmax(1)[0, target] * mask[0, 0]
    return total


def rivals(model: Classifier, images: Tensor) -> dict[str, dict[str, Callable[[], Any]]]:
    """For each piece of work, the libraries that can do it; "fei" is ours."""
    import_torchvision()
    import torchcam.methods
    from captum.attr import IntegratedGradients, LayerGradCam
    from pytorch_grad_cam import GradCAM, ScoreCAM
    from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget

    name = model.feature_layers[-1].partition("#")[0]
    layer = model.get_submodule(name)
    with torch.no_grad():
        targets = model(images).argmax(1).tolist()
    ours = {method: fei.methods.create(method) for method in ("gradcam", "scorecam")}
    rise = fei.methods.create("rise", samples=SAMPLES)
    integrated = fei.methods.create("integrated-gradients", steps=POINTS)

    def torchcam_gradcam(x: Tensor, classes: list[int]) -> Any:
        with torchcam.methods.GradCAM(model, name) as extractor:
            return extractor(classes, model(x.clone().requires_grad_()))

    def grad_cam(kind: Any, x: Tensor, classes: list[int], **options: Any) -> Any:
        with kind(model, [layer]) as cam:
            for key, value in options.items():
                setattr(cam, key, value)
            return cam(x, [ClassifierOutputTarget(c) for c in classes])

    def torchcam_scorecam() -> Any:
        with torchcam.methods.ScoreCAM(model, name, batch_size=8) as extractor, torch.no_grad():
            return extractor(targets[:1], model(images[:1]))

    def captum_gradcam(x: Tensor, classes: list[int]) -> Any:
        return LayerGradCam(model, layer).attribute(x, classes)

    one = images[:1]
    black = torch.zeros_like(one)

    def captum_integrated() -> Any:
        return IntegratedGradients(model).attribute(one, black, targets[:1], n_steps=POINTS, internal_batch_size=8)

    return {
        "Grad-CAM, 8 images": {
            "fei": lambda: ours["gradcam"](model, images, targets, batch_size=8),
            "torchcam": lambda: torchcam_gradcam(images, targets),
            "pytorch-grad-cam": lambda: grad_cam(GradCAM, images, targets),
            "captum": lambda: captum_gradcam(images, targets),
        },
        "Grad-CAM, 1 image": {
            "fei": lambda: ours["gradcam"](model, one, targets[:1]),
            "torchcam": lambda: torchcam_gradcam(one, targets[:1]),
            "pytorch-grad-cam": lambda: grad_cam(GradCAM, one, targets[:1]),
            "captum": lambda: captum_gradcam(one, targets[:1]),
        },
        f"Integrated gradients, 1 image, {POINTS} points": {
            "fei": lambda: integrated(model, one, targets[:1], reference=black, batch_size=8),
            "captum": captum_integrated,
        },
        "Score-CAM, 1 image": {
            "fei": lambda: ours["scorecam"](model, one, targets[:1], batch_size=8),
            "torchcam": torchcam_scorecam,
            "pytorch-grad-cam": lambda: grad_cam(ScoreCAM, one, targets[:1], batch_size=8),
        },
        f"RISE, 1 image, {SAMPLES} masks": {
            "fei": lambda: rise(model, one, targets[:1], batch_size=8),
            "a loop": lambda: loop_rise(model, one, targets[0], SAMPLES),
        },
    }


def table(results: Results) -> str:
    """The last run of each piece of work, as ratios to ours with their range over the repeats."""
    lines = ["| network | work | against | its time / ours | range |", "|---|---|---|---|---|"]
    latest = {(row["network"], row["work"], row["peer"]): row for row in results.rows}
    for (network, work, peer), row in latest.items():
        lines.append(f"| {network} | {work} | {peer} | {row['ratio']:.2f} | {row['low']:.2f}–{row['high']:.2f} |")
    return "\n".join(lines)


def main() -> None:
    """Time all libraries in turns, several times, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default="squeezenet,mobilenet_v1,resnet50")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--work", default="", help="only work whose name contains this")
    parser.add_argument("--table", action="store_true", help="only print what has been measured")
    options = parser.parse_args()
    results = Results("methods")
    for network in [] if options.table else options.networks.split(","):
        model = load(network)
        images = torch.cat([photo(model, synset) for synset in PHOTOS] * 2)
        for work, who in rivals(model, images).items():
            if options.work not in work:
                continue
            times = alternated(who, options.repeats)
            for peer in list(who)[1:]:
                ratios = [theirs / ours for theirs, ours in zip(times[peer], times["fei"], strict=True)]
                row = {"network": network, "work": work, "peer": peer, "ratio": statistics.median(ratios)}
                row |= {"low": min(ratios), "high": max(ratios), "repeats": options.repeats}
                results.append(row | {"threads": torch.get_num_threads()})
                print(row, flush=True)
    print(table(results))


if __name__ == "__main__":
    main()
