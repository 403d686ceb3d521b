"""What the golden values are of: every registered method and every metric on the embedded network, with few steps.

Everything is exact up to the network: the photograph is cut and thinned, not resampled, and the map that metrics score
is made of whole numbers, divided. The network runs in double precision, in which processors, thread counts and memory
layouts differ by round-off alone; a few entries in single precision stand for the kernels that are used in practice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from _golden_transformer import Transformer
from torch import Tensor
from torch.nn import functional as F

import fei
from fei import metrics
from fei.data import demo_image
from fei.models import Classifier

Series = dict[str, list[float]]
"""The numbers of an entry, by name."""

FACE = (slice(10, 234), slice(113, 337))  # rows and columns of the photograph
POOLED = 7  # maps are stored as their means over a grid of 7×7
FEW = {"steps": 3, "quantiles": (0.3, 0.7)}
SHALLOW = "network._blocks.2"  # 24 channels, where Score-CAM would need 1280 passes for the last layer
ATTENTION = ("attention-rollout", "generic-attention", "legrad", "libra-fullgrad", "vit-cx")  # which need a transformer
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, FEW) for name in fei.methods.available("fei*")},
    "fgvis": ("fgvis", FEW),
    "fei-vm/paper": ("fei-vm", FEW | {"preset": "paper"}),
    "fei-vm/l1": ("fei-vm", {"steps": 3, "constraint": "l1", "init": 0.5, "lr": 0.1, "score": "logit"}),
    "fei-vm/cumulative": ("fei-vm", FEW | {"nesting": "cumulative"}),
    "fei-vm/deletion": ("fei-vm", FEW | {"objective": "deletion", "score": "logit"}),
    "fei-vm/conv": ("fei-vm", FEW | {"sites": "conv", "residual": "both"}),
    "saliency": ("saliency", {}),
    "smoothgrad": ("smoothgrad", {"samples": 3}),
    "integrated-gradients": ("integrated-gradients", {"steps": 4}),
    "guided-backprop": ("guided-backprop", {}),
    "gradient-shap": ("gradient-shap", {"samples": 3}),
    "gradcam": ("gradcam", {}),
    "gradcam++": ("gradcam++", {}),
    "layercam": ("layercam", {}),
    "xgradcam": ("xgradcam", {}),
    "scorecam": ("scorecam", {"layer": SHALLOW}),
    "liftcam": ("liftcam", {}),
    "iia": ("iia", {"outer": 2, "inner_steps": 2}),
    "fgvce": ("fgvce", {"permutations": 2}),
    "rise": ("rise", {"samples": 12}),
    "extremal-perturbation": ("extremal-perturbation", {"steps": 3, "areas": (0.2,)}),
    "occlusion": ("occlusion", {"window": 28, "stride": 14}),
    "kernel-shap": ("kernel-shap", {"samples": 20, "segments": 8}),
    **{name: (name, {}) for name in ("random", "smooth-noise", "centre", "brightness", "edges")},
    **{name: (name, {}) for name in ATTENTION},
}
# whose scores differ between processors by more than round-off, as their `caution` says
NO_TWO_ALIKE = ("quantus-pixelflipping/1",)
# read the last feature map, which has one pixel where the image has 56
ON_LARGE = ("fei", "gradcam", "gradcam++", "layercam", "xgradcam", "liftcam", "iia", "fgvce")


@dataclass
class Setup:
    """The network, the photograph and the map, in one precision."""

    model: Classifier
    image: Tensor
    large: Tensor
    transformer: Transformer

    @classmethod
    def make(cls, precision: torch.dtype) -> Setup:
        """The embedded network on a cat's face of 56×56 pixels, and of 112×112."""
        pixels = torch.from_numpy(np.asarray(demo_image("chelsea"))[FACE].copy()).permute(2, 0, 1)[None]
        image, large = (pixels[..., ::step, ::step].to(precision).contiguous() / 255 for step in (4, 2))
        network = fei.models.load("efficientnet_lite0").to(precision)
        return cls(network, image, large, Transformer().to(precision))

    @property
    def map(self) -> Tensor:
        """A bright spot with a pattern over it: what metrics score."""
        side = self.image.shape[-1]
        i, j = torch.arange(side)[:, None], torch.arange(side)
        spot = 1 / (1 + ((i - 30) ** 2 + (j - 22) ** 2).double() / 100)
        return (spot + ((7 * i + 13 * j) % 17) / 68)[None, None].to(self.image)


def method(name: str) -> Callable[[Setup], Series]:
    """The map of a method, pooled, and what pooling hides."""
    registered, options = METHODS[name]

    def compute(at: Setup) -> Series:
        image = at.large if registered in ON_LARGE else at.image
        network = at.transformer if registered in ATTENTION else at.model
        return pooled(fei.methods.create(registered, **options)(network, image, generator=_seeded()))

    return compute


def pooled(maps: Tensor) -> Series:
    """Means over a grid, and the map's own mean, deviation and extremes."""
    m = maps.double()
    return {
        "pooled": F.adaptive_avg_pool2d(m, POOLED).flatten().tolist(),
        "statistics": [m.mean().item(), m.std().item(), m.min().item(), m.max().item()],
    }


def protocol(name: str) -> Callable[[Setup], Series]:
    """Both curves under a protocol: eight of their points, and the areas."""
    side = 40 if name.startswith(("rise", "quantus")) else 56  # these two take a pass for every row of pixels or values

    def compute(at: Setup) -> Series:
        image, scored = at.image[..., :side, :side].contiguous(), at.map[..., :side, :side]
        network = at.transformer if fei.protocols.get(name).drops_tokens else at.model
        curves = {
            "insertion": metrics.insertion(network, image, scored, protocol=name, generator=_seeded()),
            "deletion": metrics.deletion(network, image, scored, protocol=name, generator=_seeded()),
        }
        areas = [curve.auc.item() for curve in curves.values()]
        return {curve: _some(found.scores[0]) for curve, found in curves.items()} | {"areas": areas}

    return compute


def evaluation(at: Setup) -> Series:
    """Both curves and the last layer from one set of forwards."""
    last = at.model.feature_layers[-1]
    found = metrics.evaluate(at.model, at.image, at.map, layers=[last], protocol="fei-paper", generator=_seeded())
    return {
        "areas": [found.insertion.auc.item(), found.deletion.auc.item()],
        "cosine": found.internal_curves[last].cosine[0].tolist(),
        "target and forwards": [found.target.item(), found.forwards],
    }


def internal(at: Setup) -> Series:
    """Similarity inside the network, layer by layer."""
    found = metrics.internal(at.model, at.image, at.map, protocol="fei-paper", generator=_seeded())
    return {
        f"{kind} at {layer}": getattr(similar, kind).tolist()
        for layer, similar in found.items()
        for kind in ("mse", "cosine", "pearson")
    }


def transformer(at: Setup) -> Series:
    """Tokens apart, and attention, inside a transformer."""
    found = metrics.internal(at.transformer, at.image, at.map, protocol="fei-paper", generator=_seeded())
    apart = metrics.attention_divergence(at.transformer, at.image, at.map, protocol="fei-paper", generator=_seeded())
    kinds = ("cls_mse", "cls_cosine", "patch_mse", "patch_cosine")
    return {
        **{kind: [similar.numbers[kind].item() for similar in found.values()] for kind in kinds},
        **{f"class token's row at {name}": one.cls[0].tolist() for name, one in apart.items() if one.cls is not None},
        **{f"kept rows at {name}": one.kept[0].tolist() for name, one in apart.items()},
    }


def black_image(at: Setup) -> Series:
    """Three trials of a variant on a black image."""
    method = fei.methods.create("fei-none", **FEW)
    black = torch.zeros_like(at.image[0])
    found = metrics.black_image(at.model, method, trials=3, black=black, generator=_seeded())
    return {
        "target": found.target.tolist(),
        "phi": found.phi.tolist(),
        "gains": found.gains.tolist(),
        "rate and interval": [found.rate, *found.interval],
    }


def randomization(mode: str) -> Callable[[Setup], Series]:
    """Two stages of randomised weights; the maps as well as their similarities."""

    def compute(at: Setup) -> Series:
        gradcam = fei.methods.create("layercam", layer=SHALLOW)
        found = metrics.cascading_randomization(at.model, gradcam, at.image, layers=2, mode=mode, generator=_seeded())
        similar = {name: values.flatten().tolist() for name, values in found.similarity.items()}
        return similar | {"last stage": pooled(found.maps[-1])["pooled"]}

    return compute


def trust(at: Setup) -> Series:
    """Maps of other classes, seeds, weights, and of a mosaic of the image in four forms, each of another class."""
    cam = fei.methods.create("layercam", layer=SHALLOW)
    noisy = fei.methods.create("smoothgrad", samples=2)
    classes = metrics.class_sensitivity(at.model, cam, at.image, generator=_seeded())
    rise = metrics.emprt(at.model, cam, at.image, generator=_seeded())
    weights = metrics.weight_sensitivity(at.model, cam, at.image, stages=3, generator=_seeded())
    forms = torch.cat([at.image, at.image.flip(1), at.image.flip(2), 1 - at.image])
    grid = metrics.grid_pointing_game(at.model, cam, forms, confidence=0.001, generator=_seeded())
    return {
        "classes": [classes.targets.item(), classes.random_class.item(), classes.runner_up_class.item()],
        "class_sensitivity": [classes.random.correlation.item(), classes.runner_up.correlation.item()],
        "stability": metrics.stability(at.model, noisy, at.image, generator=_seeded()).correlation.tolist(),
        "classifier_randomization": metrics.classifier_randomization(
            at.model, cam, at.image, generator=_seeded()
        ).correlation.tolist(),
        "emprt": [rise.rise.item(), rise.before.item(), rise.after.item()],
        "weight_sensitivity": [weights.classifier.correlation.item(), weights.cascade.correlation.item()],
        "grid_pointing_game": [*grid.energy[0].tolist(), *grid.rank[0].tolist(), *grid.classes[0].tolist()],
    }


def reliance(at: Setup) -> Series:
    """What the network loses with each place."""
    found = metrics.reliance(at.model, at.image, 3)
    return {name: values.flatten().tolist() for name, values in vars(found).items()}


def sensitivity(at: Setup) -> Series:
    """Infidelity and the largest change of a map."""
    saliency = fei.methods.create("saliency")
    return {
        "infidelity": metrics.infidelity(at.model, at.image, at.map, samples=4, generator=_seeded()).tolist(),
        "max_sensitivity": metrics.max_sensitivity(
            at.model, saliency, at.image, samples=2, generator=_seeded()
        ).tolist(),
    }


def confidence(at: Setup) -> Series:
    """Drop and increase of the score under the map as a mask, and ROAD in both orders."""
    given = (at.model, at.image, at.map)
    return {
        "average_drop": metrics.average_drop(*given).tolist(),
        "average_increase": metrics.average_increase(*given).tolist(),
        **{
            f"road {order}": metrics.road(*given, order=order, percentiles=(20, 50, 80), generator=_seeded())
            .scores.flatten()
            .tolist()
            for order in ("morf", "lerf")
        },
    }


def of_maps(at: Setup) -> Series:
    """The metrics that need no network: complexity, localisation, agreement."""
    m, other = at.map, at.image.mean(1, keepdim=True)
    box = [(10.0, 20.0, 30.0, 40.0)]
    similar = metrics.map_similarity(m, other)
    return {
        "gini": metrics.gini(m).tolist(),
        "rank_total_variation": metrics.rank_total_variation(m).tolist(),
        "pointing_game": metrics.pointing_game(m, box, tolerance=2).tolist(),
        "energy_pointing_game": metrics.energy_pointing_game(m, box).tolist(),
        "rank_correlation": [
            *metrics.rank_correlation(m, other).tolist(),
            *metrics.rank_correlation(m - 0.5, other - 0.5, absolute=True).tolist(),
        ],
        "iou_at": metrics.iou_at(m, other, 0.2).tolist(),
        "agreement_matrix": metrics.agreement_matrix({"map": m, "grey": other}).flatten().tolist(),
        **{f"map_similarity {name}": values.tolist() for name, values in similar.items()},
    }


def summaries(at: Setup) -> Series:
    """What becomes of per-image numbers, and what a call costs in rows."""
    numbers = torch.arange(12, dtype=torch.float64) ** 2 / 7
    mean = metrics.Mean(resamples=200)
    mean.update(numbers)
    found = mean.compute()
    smoothgrad = fei.methods.create("smoothgrad", samples=3)
    _, cost = metrics.measure_cost(at.model, lambda: smoothgrad(at.model, at.image))
    return {
        "mean": [found.mean, found.std, found.low, found.high],
        "bootstrap_interval": list(metrics.bootstrap_interval(numbers, resamples=200)),
        "wilson_interval": list(metrics.wilson_interval(3, 20)),
        "rows": [float(cost.forwards), float(cost.backwards)],
    }


def logits(at: Setup) -> Series:
    """The network itself, every tenth class."""
    with torch.no_grad():
        return {"logits": at.model(at.image)[0, ::10].double().tolist()}


DOUBLE: dict[str, Callable[[Setup], Series]] = {
    "network": logits,
    **{f"method {name}": method(name) for name in METHODS},
    **{f"protocol {name}": protocol(name) for name in fei.protocols.available() if name not in NO_TWO_ALIKE},
    "evaluation": evaluation,
    "internal": internal,
    "transformer": transformer,
    "black image": black_image,
    "randomization cascading": randomization("cascading"),
    "randomization independent": randomization("independent"),
    "trust": trust,
    "reliance": reliance,
    "sensitivity": sensitivity,
    "confidence": confidence,
    "maps": of_maps,
    "summaries": summaries,
}
SINGLE: dict[str, Callable[[Setup], Series]] = {
    "network": logits,
    **{f"method {name}": method(name) for name in ("fei-vm", "gradcam", "integrated-gradients")},
    "protocol fei-paper/1": protocol("fei-paper/1"),
    "internal": internal,
}


def _some(values: Tensor, most: int = 8) -> list[float]:
    """At most that many of the values, evenly apart."""
    return values[torch.linspace(0, len(values) - 1, min(most, len(values))).round().long()].tolist()


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(3)
