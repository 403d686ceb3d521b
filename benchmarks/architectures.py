"""The table behind docs/models.md: FEI on many architectures of torchvision, timm and transformers, random weights.

    python benchmarks/architectures.py [--only resnet] [--table]

Each network is explained for two steps, and what could go wrong without a word is looked at: sites that no gradient
reaches or that are not the module they are named after, hooks left behind, a changed model, a map without content.
Results go to benchmarks/results/architectures.jsonl, one row per network; a second run computes only what is missing.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from typing import Any

import torch
from _common import Results
from torch import Tensor, nn

import fei
from fei.core.attention import FUSED, find_attention
from fei.core.clipgrad import get_rule
from fei.core.dataflow import trace
from fei.core.pathway import Pathway, visit_sites
from fei.core.sites import Site, find_layer, find_sites
from fei.models.layers import feature_layers
from fei.models.sources import import_torchvision

QUANTILES = [0.3, 0.7]
CLASSES = 1000
# family: (library, network, side of its input)
ARCHITECTURES: dict[str, tuple[str, str, int]] = {
    "AlexNet": ("torchvision", "alexnet", 96),
    "VGG": ("torchvision", "vgg11", 64),
    "VGG 16": ("torchvision", "vgg16", 64),
    "VGG with BatchNorm": ("torchvision", "vgg16_bn", 64),
    "ResNet": ("torchvision", "resnet18", 96),
    "ResNet, bottlenecks": ("torchvision", "resnet50", 96),
    "ResNeXt": ("torchvision", "resnext50_32x4d", 96),
    "Wide ResNet": ("torchvision", "wide_resnet50_2", 96),
    "GoogLeNet": ("torchvision", "googlenet", 96),
    "Inception v3": ("torchvision", "inception_v3", 139),
    "DenseNet": ("torchvision", "densenet121", 96),
    "MobileNet V2": ("torchvision", "mobilenet_v2", 96),
    "MobileNet V3": ("torchvision", "mobilenet_v3_small", 96),
    "SqueezeNet": ("torchvision", "squeezenet1_1", 96),
    "ShuffleNet V2": ("torchvision", "shufflenet_v2_x0_5", 96),
    "MNASNet": ("torchvision", "mnasnet0_5", 96),
    "EfficientNet": ("torchvision", "efficientnet_b0", 96),
    "EfficientNet V2": ("torchvision", "efficientnet_v2_s", 96),
    "RegNetX": ("torchvision", "regnet_x_400mf", 96),
    "ConvNeXt": ("torchvision", "convnext_tiny", 96),
    "Swin": ("torchvision", "swin_t", 96),
    "Swin V2": ("torchvision", "swin_v2_t", 96),
    "ViT": ("torchvision", "vit_b_16", 224),
    "MaxViT": ("torchvision", "maxvit_t", 224),
    "ResNet (timm)": ("timm", "resnet10t", 96),
    "ResNet V2, pre-activation": ("timm", "resnetv2_18", 96),
    "ResNet V2, standardised weights and GroupNorm": ("timm", "resnetv2_50x1_bit", 96),
    "SE-ResNet": ("timm", "seresnet18", 96),
    "ECA-ResNet": ("timm", "ecaresnet26t", 96),
    "SK-ResNet": ("timm", "skresnet18", 96),
    "ResNet with anti-aliasing": ("timm", "resnetblur18", 96),
    "Res2Net": ("timm", "res2net50_14w_8s", 96),
    "TResNet": ("timm", "tresnet_m", 96),
    "DenseNet (timm)": ("timm", "densenet121", 96),
    "DPN": ("timm", "dpn48b", 96),
    "VoVNet": ("timm", "ese_vovnet19b_dw", 96),
    "DLA": ("timm", "dla34", 96),
    "HRNet": ("timm", "hrnet_w18_small", 96),
    "CSPDarkNet": ("timm", "cs3darknet_focus_s", 96),
    "SelecSLS": ("timm", "selecsls42", 96),
    "RepVGG": ("timm", "repvgg_a0", 96),
    "GhostNet": ("timm", "ghostnet_100", 96),
    "RepGhost": ("timm", "repghostnet_050", 96),
    "HardCoRe-NAS": ("timm", "hardcorenas_a", 96),
    "MobileNet V4": ("timm", "mobilenetv4_conv_small", 96),
    "MixNet": ("timm", "mixnet_s", 96),
    "EfficientNet of TensorFlow": ("timm", "tf_efficientnet_b0", 96),
    "EfficientNet V2 (timm)": ("timm", "efficientnetv2_rw_t", 96),
    "ReXNet": ("timm", "rexnet_100", 96),
    "LCNet": ("timm", "lcnet_050", 96),
    "NFNet, scaled standardised weights": ("timm", "eca_nfnet_l0", 96),
    "NF-RegNet": ("timm", "nf_regnet_b1", 96),
    "RegNetY": ("timm", "regnety_002", 96),
    "Xception": ("timm", "legacy_xception", 96),
    "Inception-ResNet": ("timm", "inception_resnet_v2", 139),
    "InceptionNeXt": ("timm", "inception_next_atto", 96),
    "ConvNeXt V2": ("timm", "convnextv2_atto", 96),
    "ConvMixer": ("timm", "convmixer_1024_20_ks9_p14", 56),
    "StarNet": ("timm", "starnet_s050", 96),
    "MambaOut": ("timm", "mambaout_femto", 96),
    "FocalNet": ("timm", "focalnet_tiny_srf", 96),
    "PoolFormer": ("timm", "poolformer_s12", 96),
    "EdgeNeXt": ("timm", "edgenext_xx_small", 96),
    "MobileViT": ("timm", "mobilevit_xxs", 128),
    "EfficientFormer V2": ("timm", "efficientformerv2_s0", 224),
    "EfficientViT": ("timm", "efficientvit_b0", 96),
    "FastViT": ("timm", "fastvit_t8", 96),
    "RepViT": ("timm", "repvit_m0_9", 96),
    "LeViT": ("timm", "levit_128s", 224),
    "CoAtNet": ("timm", "coatnet_nano_rw_224", 224),
    "MaxViT (timm)": ("timm", "maxvit_pico_rw_256", 256),
    "BoTNet": ("timm", "botnet26t_256", 256),
    "HaloNet": ("timm", "halonet26t", 256),
    "PVT V2": ("timm", "pvt_v2_b0", 96),
    "PiT": ("timm", "pit_ti_224", 224),
    "VOLO": ("timm", "volo_d1_224", 224),
    "ViT (timm)": ("timm", "vit_tiny_patch16_224", 224),
    "DeiT, distilled": ("timm", "deit_tiny_distilled_patch16_224", 224),
    "EVA-02": ("timm", "eva02_tiny_patch14_224", 224),
    "BEiT": ("timm", "beit_base_patch16_224", 224),
    "CaiT": ("timm", "cait_xxs24_224", 224),
    "XCiT": ("timm", "xcit_nano_12_p16_224", 96),
    "CrossViT": ("timm", "crossvit_9_240", 240),
    "Swin (timm)": ("timm", "swin_tiny_patch4_window7_224", 224),
    "Swin V2 (timm)": ("timm", "swinv2_tiny_window8_256", 256),
    "MLP-Mixer": ("timm", "mixer_s32_224", 224),
    "ResMLP": ("timm", "resmlp_12_224", 224),
} | {
    f"{family} (transformers), {kernel}": ("transformers", f"{family.lower()}/{kernel}", 64)
    for family in ("ViT", "DeiT", "BEiT", "DINOv2", "Swin")
    for kernel in ("sdpa", "eager")
}
# How many attention layers there are, by the networks' own descriptions; those over channels have none over tokens.
ATTENTION: dict[str, int] = {
    "Swin": 12, "Swin V2": 12, "ViT": 12, "MaxViT": 22, "EdgeNeXt": 3, "MobileViT": 9, "EfficientFormer V2": 5,
    "LeViT": 11, "CoAtNet": 9, "MaxViT (timm)": 22, "BoTNet": 3, "HaloNet": 3, "PVT V2": 8, "PiT": 12, "VOLO": 20,
    "ViT (timm)": 12, "DeiT, distilled": 12, "EVA-02": 12, "BEiT": 12, "CaiT": 26, "XCiT": 14, "CrossViT": 18,
    "Swin (timm)": 12, "Swin V2 (timm)": 12,
} | {
    family: 4 if family.startswith("Swin") else 2
    for family, (library, _, _) in ARCHITECTURES.items()
    if library == "transformers"
}  # fmt: skip


class Logits(nn.Module):
    """A classifier of transformers that returns its logits."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x).logits
        return logits


def from_transformers(name: str, size: int) -> nn.Module:
    """A small classifier of transformers, "family/kernel", from a configuration."""
    import transformers

    family, _, kernel = name.partition("/")
    depth: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "patch_size": 16}
    if family == "swin":
        depth = {"embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4, "patch_size": 4}
    config = transformers.AutoConfig.for_model(
        family, image_size=size, intermediate_size=64, num_labels=CLASSES, attn_implementation=kernel, **depth
    )
    if family == "deit":  # it has two kinds of classifiers
        config.architectures = ["DeiTForImageClassification"]
    return Logits(transformers.AutoModelForImageClassification.from_config(config))


def build(library: str, name: str, size: int) -> tuple[nn.Module, Tensor]:
    """A network with random weights, and an image for it.

    Constant weights (a normalisation's scale, which may start at 0 and so cut a branch off) are drawn at random,
    BatchNorm's statistics come from a batch of images, and the classifier is scaled: else values die out or explode on
    the way, and a saturated softmax has no gradient.
    """
    torchvision = import_torchvision()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if library == "torchvision":
            options = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
            model: nn.Module = torchvision.models.get_model(name, weights=None, **options)
        elif library == "transformers":
            model = from_transformers(name, size)
        else:
            import timm

            model = timm.create_model(name, pretrained=False)
        for parameter in model.parameters():
            first = parameter.flatten()[0]
            if (parameter == first).all():
                nn.init.uniform_(parameter, 0.5, 1.5) if first else nn.init.normal_(parameter, 0.1, 0.3)
        norms = [module for module in model.eval().modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
        for norm in norms:
            norm.training, norm.momentum = True, None  # all of the statistics, not a tenth
        x, noise = torch.randn(1, 3, size, size), torch.randn(4, 3, size, size)
        with torch.no_grad():
            model(noise + torch.randn(4, 3, 1, 1))
            for norm in norms:
                if norm.running_var is not None:
                    norm.running_var.clamp_(min=0.1)
            spread = model.eval()(torch.cat([x, 0.5 * x + 0.5, 0.5 * x - 1])).std()
            for parameter in list(model.parameters())[-4:]:
                if len(parameter) == CLASSES:
                    parameter /= spread
        return model, x


def state(model: nn.Module) -> list[Any]:
    """What a caller may find changed: values, gradients, flags, hooks."""
    parts: list[Any] = [{key: value.clone() for key, value in model.state_dict().items()}]
    for name, module in model.named_modules():
        hooks = [len(value) for key, value in vars(module).items() if key.endswith("hooks")]
        parts.append((name, module.training, getattr(module, "inplace", None), hooks))
    parts += [(name, p.requires_grad, p.grad is None) for name, p in model.named_parameters()]
    return parts


def unchanged(before: list[Any], after: list[Any]) -> bool:
    """Whether a model is as it was."""
    same = before[0].keys() == after[0].keys() and all(torch.equal(before[0][k], after[0][k]) for k in before[0])
    return same and before[1:] == after[1:]


def gradients_agree(model: nn.Module, x: Tensor, sites: list[Site]) -> bool:
    """NONE gives autograd's gradient; and so does IVM on the image itself, where no unit is above its reference.

    Where fused attention is exchanged for explicit arithmetic IVM's is the same up to rounding only. Two rows, as in
    the explanation: on a CPU torch's own gradient of BatchNorm may be wrong for one (LeViT).
    """
    x = torch.cat([x, x.flip(3)])

    def gradient(run: Any) -> Tensor:
        leaf = x.clone().requires_grad_()
        return torch.autograd.grad(run(leaf).softmax(1)[:, 0].sum(), leaf)[0]

    plain = gradient(model)
    held = Pathway(model, sites, get_rule("ivm"))
    held.record(x)
    free = Pathway(model, sites, get_rule("none"))
    found = gradient(held.run)
    exchanged = any(site.key[0] == FUSED for site in sites)
    same = (found - plain).norm() < 1e-3 * plain.norm() if exchanged else torch.equal(found, plain)
    return torch.equal(gradient(free.run), plain) and bool(same)


def misnamed(model: nn.Module, x: Tensor, sites: list[Site]) -> list[str]:
    """Sites named after a module whose output they are not."""
    modules, outputs, wrong = dict(model.named_modules()), {}, []
    named = [site for site in sites if site.name.partition("#")[0] in modules]

    def keep(name: str) -> Any:
        return lambda module, args, output: outputs.setdefault(name, []).append(output.clone())

    handles = [
        modules[name].register_forward_hook(keep(name)) for name in {site.name.partition("#")[0] for site in named}
    ]
    try:
        values: list[Tensor] = []  # sites are visited in their order
        with torch.no_grad():
            visit_sites(model, named, x, lambda _, value: values.append(value.clone()))
    finally:
        for handle in handles:
            handle.remove()
    for i, site in enumerate(named):
        name, _, number = site.name.partition("#")
        if not torch.equal(values[i], outputs[name][int(number or 0)]):
            wrong.append(site.name)
    return wrong


def cam_layer(model: nn.Module, x: Tensor) -> dict[str, Any]:
    """The layer for class activation maps, and the shape of its value."""
    layers = feature_layers(model, x)
    if not layers:
        return {"cam": None, "cam_shape": None}
    shapes: list[list[int]] = []
    site = find_layer(model, trace(model, x)[0], layers[-1])
    with torch.no_grad():
        visit_sites(model, [site], x, lambda _, value: shapes.append(list(value.shape)))
    return {"cam": layers[-1], "cam_shape": shapes[0]}


def explain(model: nn.Module, x: Tensor, variant: str, sites: str = "auto") -> dict[str, Any]:
    """The outcome of an explanation."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = fei.FEI(model, variant, steps=2, quantiles=QUANTILES, sites=sites).explain(x)
        except fei.errors.FEIError as error:
            return {"outcome": "refused", "reason": str(error)}
    clipped = result.trace.clipped
    return {
        "outcome": "works",
        "sites": len(result.config["sites"]),
        "kinds": dict(Counter(site["key"][0] for site in result.config["sites"]).most_common()),
        "reached": len(clipped),
        "clips": sum(bool((share > 0).any()) for share in clipped.values()),
        "finite": bool(result.maps.isfinite().all()),
        "varied": bool(result.maps.std() > 0),
        "notes": result.config["notes"],
        "warnings": [str(w.message) for w in caught if issubclass(w.category, UserWarning)],
    }


def examine(library: str, name: str, size: int) -> dict[str, Any]:
    """Everything that the table says about one network, and more."""
    model, x = build(library, name, size)
    before = state(model)
    row = explain(model, x, "vm")
    if row["outcome"] == "works":
        flow, _ = trace(model, x)
        sites, attention = find_sites(model, flow), find_attention(model, flow)
        row["attention"] = [len(attention.reached), attention.over_channels, attention.hidden]
        row["ibm"] = explain(model, x, "ibm")["outcome"]
        row["agree"] = gradients_agree(model, x, sites)
        row["misnamed"] = misnamed(model, x, sites)
    if row["outcome"] == "refused" or any("sites='nonlinearity'" in note for note in row["notes"]):
        row["nonlinearity"] = explain(model, x, "vm", "nonlinearity")
    return row | {"unchanged": unchanged(before, state(model))} | cam_layer(model, x)


def is_fine(row: dict[str, Any]) -> bool:
    """Whether nothing that was looked at is wrong."""
    if row["outcome"] == "refused":
        return bool(row["unchanged"])
    whole = row["reached"] == row["sites"] and row["clips"] and row["finite"] and row["varied"]
    return bool(whole and row["agree"] and not row["misnamed"] and row["unchanged"] and row["ibm"] == "works")


def table(results: Results) -> str:
    """The table in Markdown."""
    lines = [
        "| family | network | input | attention | clip sites | what they are | CAM layer | VM and IBM |",
        "|---|---|---|---|---|---|---|---|",
    ]
    rows = {row["family"]: row for row in results.rows}
    for family in ARCHITECTURES:
        row = rows.get(family)
        if row is None:
            continue
        if row["outcome"] == "works":
            sites = str(row["sites"]) if row["reached"] == row["sites"] else f"{row['sites']}, {row['reached']} reached"
            kinds = ", ".join(f"{count} {kind}" for kind, count in row["kinds"].items())
            verdict = "work" if is_fine(row) else "**wrong**"
        else:
            sites, kinds, verdict = "–", "–", f"refused: {row['reason']}"
        if "nonlinearity" in row:
            verdict += f'; few sites, `sites="nonlinearity"` has {row["nonlinearity"].get("sites", 0)}'
        cam = f"`{row['cam']}` {'×'.join(map(str, row['cam_shape'][1:]))}" if row["cam"] else "–"
        source = f"{row['library']} `{row['network']}`"
        attention = attention_in_words(family, row)
        lines.append(f"| {family} | {source} | {row['size']} | {attention} | {sites} | {kinds} | {cam} | {verdict} |")
    return "\n".join(lines)


def attention_in_words(family: str, row: dict[str, Any]) -> str:
    """Attention layers found / there are."""
    if family not in ATTENTION or "attention" not in row:
        return "–"
    found, over_channels, _ = row["attention"]
    channels = f", {over_channels} over channels" if over_channels else ""
    return f"{found}/{ATTENTION[family]}{channels}"


def main() -> None:
    """Examine what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="only networks whose name contains this")
    parser.add_argument("--table", action="store_true", help="only print what has been found")
    options = parser.parse_args()
    results = Results("architectures")
    for family, (library, name, size) in ARCHITECTURES.items() if not options.table else ():
        if options.only in name:
            key = {"family": family, "library": library, "network": name, "size": size}
            row = results.once(key, lambda: examine(library, name, size))  # noqa: B023
            print(f"{family:48} {row['outcome']:8} {'fine' if is_fine(row) else row}", flush=True)
    print(table(results))


if __name__ == "__main__":
    main()
