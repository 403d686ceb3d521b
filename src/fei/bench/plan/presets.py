"""The paper's tables and figures as plans, at the paper's scale or quick ones to try."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fei.bench.plan._plan import parse_plan
from fei.bench.plan._text import to_toml
from fei.bench.plan.confident import surest_draw
from fei.common.words import suggestion
from fei.errors import InputError

_OURS, _ALONE = "ours", "unconstrained"
_RELU = {"relu": True}  # the published map, with which the paper's tables were made
# A row of the paper: the method, its options, and what a quick plan changes and says about it.
_BASELINES: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "FG-VCE": ("fgvce", {}, {"permutations": 8}, "8 permutations"),
    "GradCAM": ("gradcam", _RELU, {}, ""),
    "GradCAM++": ("gradcam++", _RELU, {}, ""),
    "Lift-CAM": ("liftcam", _RELU, {}, ""),
    "ScoreCAM": ("scorecam", _RELU, {}, ""),
    "IIA": ("iia", {}, {"outer": 3, "inner_steps": 3}, "3×3 steps"),
    "RISE": ("rise", {"samples": 4000}, {"samples": 100}, "100 masks"),
    "Extremal Perturbation": ("extremal-perturbation", {}, {"steps": 10}, "10 steps"),
    "Saliency": ("saliency", {}, {}, ""),
    "SmoothGrad": ("smoothgrad", {}, {"samples": 10}, "10 samples"),
    "Integrated Gradients": ("integrated-gradients", {}, {"steps": 10}, "10 steps"),
    "FGVis": ("fgvis", {"preset": "paper"}, {"preset": "fast"}, "fast"),
}
_SPELLINGS = {
    "EP": "Extremal Perturbation",
    "IG": "Integrated Gradients",
    "Integrated Gradient": "Integrated Gradients",
    "Smoothgrad": "SmoothGrad",
}
_TABLE_1 = {
    "baselines": (
        "FG-VCE", "GradCAM", "Extremal Perturbation", "Lift-CAM", "GradCAM++", "ScoreCAM", "IIA", "RISE", "Saliency",
        "Smoothgrad", "Integrated Gradient",
    ),
    _OURS: ("FEI-IBM", "FEI-AVM", "FEI-VM", "FEI-IVM"),
    _ALONE: ("FEI-NONE",),
}  # fmt: skip
_TABLE_3 = {
    "activation and perturbation": (
        "GradCAM++", "ScoreCAM", "Lift-CAM", "GradCAM", "FG-VCE", "IIA", "RISE", "Extremal Perturbation",
    ),
    "gradient": ("SmoothGrad", "Saliency", "Integrated Gradients"),
    _OURS: ("FEI-VM", "FEI-IVM", "FEI-IBM", "FEI-AVM"),
    _ALONE: ("FEI-NONE",),
}  # fmt: skip
_TABLE_2 = {"": ("FGVis", "FEI-IBM", "FEI-IVM", "FEI-AVM", "FEI-VM", "FEI-NONE")}
_FIGURE_1 = {"": ("FEI-NONE", "EP", "FEI-VM")}
_VISUAL = {
    _OURS: ("FEI-IBM", "FEI-IVM", "FEI-AVM", "FEI-VM"),
    _ALONE: ("FEI-NONE",),
    "baselines": ("EP", "RISE", "IIA", "Lift-CAM", "FG-VCE"),
}
# On VGG16 these are features.1 to .4, .8, .16 and .16 to .30: 2, 4, 7 and the other 6 of its 13 convolutions.
_SCOPES = {"1-4": "first:2/13", "1-8": "first:4/13", "1-16": "first:7/13", "16-30": "last:6/13"}
_ABLATION: dict[str, dict[str, dict[str, Any]]] = {
    "": {"FEI-VM (full method)": {}},
    "Quantile levels": {
        "(0.1,0.5,0.9)": {"quantiles": [0.1, 0.5, 0.9]},
        "(0.1,0.2,...,0.9)": {"quantiles": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]},
    },
    "Regularization schedule (β)": {
        f"Constant (β=10^{power})": {"beta": beta} for power, beta in ((0, 1.0), (-2, 0.01), (-3, 0.001))
    },
    "Gradient clipping scope": {
        f"{'Later' if layers == '16-30' else 'Early'} layers only ({layers})": {"sites": sites}
        for layers, sites in _SCOPES.items()
    },
    "Area Regulation": {
        # from 1 in small steps: from α = 0 on, the sum over all pixels would never let a mask begin
        **{
            f"L1(β=1e{power})": {"constraint": "l1", "beta": beta, "init": 1.0, "lr": 0.05}
            for power, beta in ((-1, 0.1), (-2, 0.01), (-3, 0.001))
        },
        "No Constraint": {"constraint": "none"},
    },
    "Optimization Step": {f"epochs({steps})": {"steps": steps} for steps in (300, 200, 50)},
}
_NETWORKS = {
    "AlexNet": "torchvision:alexnet",
    "ResNet50": "torchvision:resnet50",
    "VGG16": "torchvision:vgg16",
    "GoogLeNet": "torchvision:googlenet",
}
_SETS = {"ImageNet": "imagenet:PATH", "CUB-200-2011": "cub:PATH@test"}
_QUICK_SAMPLE, _FEWER = 2, 10
_FAST, _FAST_SUFFIX = {"preset": "fast"}, "fast"
_QUICK_NETWORK = "efficientnet_lite0"
# A cup of coffee and a man with a tripod, which come with scikit-image: the network gives them .95 and .94.
_QUICK_IMAGES = "c[ao][mf][ef]*.png"

_Rows = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class _Preset:
    """A table or figure of the paper.

    Attributes:
        about: What it is, for the head of the file.
        layout: What the report shows first.
        rows: The methods by group; of the ablation and the clipping scope, see `_rows`.
        networks: The paper's networks.
        sets: Its data sets, in the order of the columns; none for black images.
        sample: Images of each.
        more: Other keys of the plan.
    """

    about: str
    layout: str
    rows: _Rows = field(default_factory=dict)
    networks: tuple[str, ...] = ("VGG16", "ResNet50")
    sets: tuple[str, ...] = ("ImageNet",)
    sample: int = 1000
    more: Mapping[str, Any] = field(default_factory=dict)


_BOTH = ("CUB-200-2011", "ImageNet")
_PICTURES = {"seeds": [0], "keep_maps": True}
_PRESETS = {
    "table-external": _Preset("Table 1: insertion and deletion", "external", _TABLE_1, sets=_BOTH),
    "table-black-image": _Preset(
        "Table 2: who finds evidence in a black image",
        "black-image",
        _TABLE_2,
        networks=("AlexNet", "ResNet50", "VGG16", "GoogLeNet"),
        sets=(),
        more={"black_image": {"trials": 1000}},
    ),
    "table-internal": _Preset("Table 3: activations at the last feature layer", "internal", _TABLE_3),
    "ablation": _Preset("Table 4: the choices of FEI-VM", "ablation", networks=("VGG16",)),
    "layerwise-resnet": _Preset(
        "Table 5: activations layer by layer, ResNet50", "layerwise", _TABLE_3, ("ResNet50",), _BOTH[::-1]
    ),
    "layerwise-vgg": _Preset(
        "Table 6: activations layer by layer, VGG16", "layerwise", _TABLE_3, ("VGG16",), _BOTH[::-1]
    ),
    "figure-1": _Preset(
        "Figure 1: good scores from outside are not enough", "figure-1", _FIGURE_1, ("VGG16",), sample=4, more=_PICTURES
    ),
    "figure-2": _Preset(
        "Figure 2: activations layer by layer, and maps", "figure-2", _TABLE_3, ("VGG16",), more={"keep_maps": True}
    ),
    "visual-comparison": _Preset("Figure 3: maps side by side", "visual", _VISUAL, sample=3, more=_PICTURES),
    "sanity": _Preset(
        "Figure 4: maps while layers are randomised from the top",
        "sanity",
        {"": ("FEI-IBM",)},
        networks=("VGG16",),
        sample=4,
        more={**_PICTURES, "metrics": {"external": False, "internal": False}, "sanity": {"images": 4, "layers": 6}},
    ),
    "clipping-scope": _Preset(
        "Figure 5: maps by the layers that are clipped", "clipping-scope", networks=("VGG16",), sample=4, more=_PICTURES
    ),
}


def names() -> list[str]:
    """The presets."""
    return list(_PRESETS)


def describe(name: str) -> str:
    """What a preset is, in a few words."""
    return _preset(name).about


def preset(
    name: str,
    *,
    quick: bool = False,
    models: Sequence[str] = (),
    data: Sequence[str] = (),
    methods: Sequence[str] = (),
) -> str:
    """A plan for a table or figure of the paper, as TOML.

    Args:
        name: One of `names`.
        quick: A few images, one seed and less work for each map, which the labels say; maps are kept.
        models: Networks instead of the paper's.
        data: Data sets instead of the paper's, each with every network. The paper's networks are loaded with their
            ImageNet weights, and on "cub:DIR" with those that `fei finetune` writes. A quick plan takes photographs of
            them that the networks are sure of, and looks at some to find out.
        methods: Methods instead of the paper's, with their default options.

    Raises:
        InputError: If there is no such preset, it has no data set, or the plan would not be valid.
        DataError, ModelError: If data or networks of a quick plan cannot be used.
    """
    chosen, sure = _preset(name), dict[str, float]()
    if data and not chosen.sets:
        raise InputError(f"The preset '{name}' has no data set: its images are black; leave --data out.")
    document = {
        "name": name,
        "seeds": [0] if quick else [0, 1, 2],
        "target": "predicted",
        "layout": chosen.layout,
        "pairs": _pairs(chosen, quick, models, data, sure),
        "methods": [{"name": method} for method in methods] or _rows(chosen, quick),
        **({"metrics": {"protocols": ["fei-paper"], "external": True, "internal": True}} if chosen.sets else {}),
        **chosen.more,
        **(_reduced_parts(chosen) if quick else {}),
    }
    text = "\n".join(f"# {line}".rstrip() for line in _head(chosen, quick, document, sure)) + "\n\n" + to_toml(document)
    parse_plan(text)
    return text


def _preset(name: str) -> _Preset:
    if name not in _PRESETS:
        raise InputError(f"There is no preset '{name}'; {suggestion(name, _PRESETS, most=2)}")
    return _PRESETS[name]


def _head(chosen: _Preset, quick: bool, document: Mapping[str, Any], sure: Mapping[str, float]) -> list[str]:
    """What a reader of the file should know; `sure` is how sure networks are of the photographs of each data set."""
    lines = [f"{chosen.about}{', reduced to try it out' if quick else ''}."]
    specs = [spec for pair in document["pairs"] for spec in (pair["model"], pair.get("data", ""))]
    if any("PATH" in spec for spec in specs):
        lines.append("Put the places of the data sets where PATH stands.")
    if any(spec.endswith("-cub.safetensors") for spec in specs):
        lines.append("The networks on CUB come from: fei finetune --whole --data cub:PATH --model … --out …")
    if any(row["name"] == "fgvce" for row in document["methods"]):
        lines.append("FG-VCE is its saliency part, Shapley values of feature points; see: fei methods fgvce")
    for spec, least in sure.items():
        lines.append(f"Of {spec} a draw is taken in which every network gives its best class {least:.2f} or more.")
    if document.get("keep_maps"):
        lines.append("Maps are kept: 200 KB each at 224 × 224 pixels.")
    return [*lines, "Run it, as PLAN.toml:  fei bench run PLAN.toml --out run"]


def _pairs(
    chosen: _Preset, quick: bool, models: Sequence[str], data: Sequence[str], sure: dict[str, float]
) -> list[dict[str, Any]]:
    """Networks with data sets, in the order of the paper's columns; `sure` is filled, see `_head`."""
    pairs = []
    count = min(chosen.sample, _QUICK_SAMPLE) if quick else chosen.sample
    for spec in (data or _default_data(chosen, quick)) if chosen.sets else [None]:
        finetuned = spec is not None and spec.startswith("cub:")
        networks = models or ([_QUICK_NETWORK] if quick else [_paper_network(n, finetuned) for n in chosen.networks])
        drawn: dict[str, Any] = {"sample": count} if spec else {}
        if quick and data and spec:
            drawn["sample_seed"], sure[spec] = surest_draw(networks, spec, count)
        for network in networks:
            heading = ", ".join(part for part in (_data_name(spec), _network_name(network)) if part)
            pair: dict[str, Any] = {"model": network, "data": spec, "name": heading, **drawn}
            pairs.append({key: value for key, value in pair.items() if value is not None})
    return pairs


def _default_data(chosen: _Preset, quick: bool) -> list[str]:
    if not quick:
        return [_SETS[name] for name in chosen.sets]
    import skimage  # which has more photographs

    return [str(Path(skimage.__file__).parent / "data" / _QUICK_IMAGES)]


def _paper_network(name: str, finetuned: bool) -> str:
    spec = _NETWORKS[name]
    return f"{spec}:{name.lower()}-cub.safetensors" if finetuned else spec


def _network_name(spec: str) -> str:
    known = {architecture: name for name, architecture in _NETWORKS.items()}
    plain = ":".join(spec.split(":")[:2])
    return known.get(plain, spec)


def _data_name(spec: str | None) -> str:
    if spec is None:
        return ""
    known = {place.partition(":")[0]: name for name, place in _SETS.items()}
    word, colon, rest = spec.partition(":")
    if colon and word in known:
        return known[word]
    return "photographs" if spec.endswith(_QUICK_IMAGES) else Path(rest or spec).name or spec


def _rows(chosen: _Preset, quick: bool) -> list[dict[str, Any]]:
    if chosen.layout == "ablation":
        return [_ablated(*row, group, quick) for group, rows in _ABLATION.items() for row in rows.items()]
    if chosen.layout == "clipping-scope":  # the figure calls the last range 17-30: the same layers
        scopes = {f"FEI-VM({layers.replace('16-', '17-')})": {"sites": sites} for layers, sites in _SCOPES.items()}
        return [_ablated(label, options, "", quick) for label, options in {"FEI-VM": {}, **scopes}.items()]
    return [_row(label, group, quick) for group, labels in chosen.rows.items() for label in labels]


def _row(label: str, group: str, quick: bool) -> dict[str, Any]:
    if label.startswith("FEI-"):
        name, options, reduced, suffix = label.lower(), {"preset": "paper"}, _FAST, _FAST_SUFFIX
    else:
        name, options, reduced, suffix = _BASELINES[_SPELLINGS.get(label, label)]
    return _entry(name, label, group, options, reduced if quick else {}, suffix if quick else "")


def _ablated(label: str, changes: Mapping[str, Any], group: str, quick: bool) -> dict[str, Any]:
    """FEI-VM with something changed; also a quick plan keeps the paper's penalty, which is what is changed."""
    options = {"preset": "paper", **changes}
    steps = max(2, options.get("steps", 100) // _FEWER)
    return _entry("fei-vm", label, group, options, {"steps": steps} if quick else {}, f"{steps} steps" if quick else "")


def _entry(
    name: str, label: str, group: str, options: Mapping[str, Any], reduced: Mapping[str, Any], suffix: str
) -> dict[str, Any]:
    entry = {"name": name, "label": f"{label} [{suffix}]" if suffix else label, "group": group}
    options = {**options, **reduced}
    return {key: value for key, value in (entry | {"options": options}).items() if value}


def _reduced_parts(chosen: _Preset) -> dict[str, Any]:
    few = {"black_image": {"trials": 4}, "sanity": {"images": 1, "layers": 3}}
    return {"seeds": [0], "keep_maps": True} | {part: few[part] for part in chosen.more if part in few}
