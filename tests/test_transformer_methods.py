"""Methods for transformers, and CAMs on tokens, against the same arithmetic written out for one image."""

import pytest
import torch
from networks import pictures, small_cnn
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist
from tiny_vit import by_hand, tail, tiny_vit
from torch.nn import functional as F

import fei
from fei.errors import InputError, ModelError

GRID = (3, 4)
FOR_TRANSFORMERS = [name for name in fei.methods.available() if fei.methods.describe(name).family == "attention"]


def image(seed=0):
    return pictures(1, seed=seed).double()


def enlarged(values, net):
    """Numbers of tokens (T,) as a map of the image's size."""
    patches = values[1:] if net.pool == "class" else values
    return F.interpolate(patches.view(1, 1, *GRID), (12, 16), mode="bilinear", align_corners=False)


def same(ours, expected):
    torch.testing.assert_close(ours, expected.detach(), rtol=1e-7, atol=1e-10)


nets = pytest.mark.parametrize(
    "net",
    [tiny_vit(pool=pool, fused=fused, dtype=torch.float64) for pool in ("class", "mean") for fused in (True, False)],
    ids=["class-fused", "class-plain", "mean-fused", "mean-plain"],
)


def read_row(matrix, net):
    return matrix[0] if net.pool == "class" else matrix.mean(0)


@nets
def test_rollout_by_hand(net):
    x = image()
    _, seen = by_hand(net, x[0])
    total = torch.eye(len(seen["inputs"][0]), dtype=torch.float64)
    for pattern in seen["patterns"]:
        mixed = pattern.mean(0) + torch.eye(len(total), dtype=torch.float64)
        total = (mixed / mixed.sum(1, keepdim=True)) @ total
    same(fei.methods.create("attention-rollout")(net, x), enlarged(read_row(total, net), net))


@nets
@pytest.mark.parametrize("score", ["logit", "softmax"])
def test_generic_attention_by_hand(net, score):
    x = image()
    logits, seen = by_hand(net, x[0])
    s = logits[2] if score == "logit" else logits.softmax(0)[2]
    total = torch.eye(len(seen["inputs"][0]), dtype=torch.float64)
    gradients = torch.autograd.grad(s, seen["patterns"])
    for pattern, gradient in zip(seen["patterns"], gradients, strict=True):
        total = total + (gradient * pattern).clamp(min=0).mean(0) @ total
    same(fei.methods.create("generic-attention", score=score)(net, x, 2), enlarged(read_row(total, net), net))


@nets
def test_legrad_by_hand(net):
    x = image()
    _, seen = by_hand(net, x[0])
    found = 0
    for pattern, tokens in zip(seen["patterns"], seen["outputs"], strict=True):
        (gradient,) = torch.autograd.grad(tail(net, tokens)[1], pattern, retain_graph=True)
        found = found + gradient.clamp(min=0).mean((0, 1)) / 2
    same(fei.methods.create("legrad")(net, x, 1), enlarged(found, net))


def biases_by_hand(net, x, target):
    """b·∂s/∂y of every bias behind the first block's tokens, one number per token: by the gradient of b itself.

    Each token gets a copy of the bias, so that its gradient is the token's own.
    """
    length = 13 if net.pool == "class" else 12
    layers = [part for b in net.blocks for part in (b.norm1, b.attn.qkv, b.attn.proj, b.norm2, b.fc1, b.fc2)]
    layers.append(net.norm)
    kept = [layer.bias for layer in layers]
    copies = [bias.detach().expand(length, -1).clone().requires_grad_() for bias in kept]
    try:
        for layer, copy in zip(layers, copies, strict=True):
            del layer.bias
            layer.bias = copy
        logits, seen = by_hand(net, x[0], detach=True)
    finally:
        for layer, bias in zip(layers, kept, strict=True):
            del layer.bias
            layer.bias = bias
    gradients = torch.autograd.grad(logits[target], [*copies, *seen["inputs"]])
    parts = [(b * g).sum(1) for b, g in zip([*copies, *seen["inputs"]], gradients, strict=True)]
    return sum(parts), parts, logits[target]


@nets
def test_libra_by_hand(net):
    x = image()
    expected, parts, logit = biases_by_hand(net, x, 1)
    # what makes it balanced: tokens before the first block and all biases behind it add up to the logit
    complete = sum(part.sum() for part in parts[:-1]) + net.head.bias[1]
    torch.testing.assert_close(complete, logit, rtol=1e-10, atol=1e-10)
    same(fei.methods.create("libra-fullgrad")(net, x, 1), enlarged(expected, net))


class GatedMLP(torch.nn.Module):
    """SwiGLU in the place of an MLP's activation and second layer."""

    def forward(self, x):
        gate, value = x.chunk(2, -1)
        return F.silu(gate) * value


@pytest.mark.parametrize("gated", [False, True])
def test_libra_adds_up_to_the_logit(gated, monkeypatch):
    """With one block whose tokens are all patches, the numbers of the map are those of all tokens and biases."""
    monkeypatch.setattr("fei.methods.libra.upsample", lambda maps, images: maps)
    net, x = tiny_vit(pool="mean", depth=1, dtype=torch.float64), image()
    if gated:
        (block,) = net.blocks
        block.forward = lambda x: (h := x + block.attn(block.norm1(x))) + GatedMLP()(block.fc1(block.norm2(h)))
    total = fei.methods.create("libra-fullgrad")(net, x, 1).sum()
    torch.testing.assert_close(total, (net(x)[0, 1] - net.head.bias[1]).detach(), rtol=1e-9, atol=1e-9)


@nets
def test_gradcam_on_tokens_by_hand(net):
    x = image()
    logits, seen = by_hand(net, x[0])
    if net.pool == "class":  # the first norm of the last block: behind it patches have no say
        features = seen["normed"][-1]
        (gradient,) = torch.autograd.grad(logits[3], features)
        features, gradient = features[1:], gradient[1:]
    else:
        tokens = seen["outputs"][-1].detach()
        features = F.layer_norm(tokens, (8,), net.norm.weight, net.norm.bias, net.norm.eps)
        gradient = net.head.weight[3].expand(12, -1) / 12
    weighted = features @ gradient.mean(0)
    expected = F.interpolate(weighted.view(1, 1, *GRID), (12, 16), mode="bilinear", align_corners=False)
    same(fei.methods.create("gradcam")(net, x, 3), expected)
    per_place = (features * gradient.clamp(min=0)).sum(1)
    expected = F.interpolate(per_place.view(1, 1, *GRID), (12, 16), mode="bilinear", align_corners=False)
    same(fei.methods.create("layercam")(net, x, 3), expected)


def test_shapley_values_of_patches_add_up_and_leave_the_class_token_alone(monkeypatch):
    monkeypatch.setattr("fei.methods.heads.upsample", lambda maps, images: maps)
    net, x = tiny_vit(dtype=torch.float64), image()
    _, seen = by_hand(net, x[0])
    block = net.blocks[-1]

    def score(normed):
        tokens = seen["inputs"][-1] + block.attn(normed[None])[0]
        return tail(net, tokens + block.fc2(F.gelu(block.fc1(block.norm2(tokens)))))[0]

    absent = seen["normed"][-1].clone()
    absent[1:] = 0
    gained = score(seen["normed"][-1]) - score(absent)
    maps = fei.methods.create("fgvce", permutations=4)(net, x, 0)
    assert maps.sum().item() == pytest.approx(gained.item(), rel=1e-5)


def vit_cx_by_hand(net, x, target, noise):
    """ViT-CX without noise, from the definition."""
    assert noise == 0
    _, seen = by_hand(net, x[0])
    channels = seen["normed"][-1][1:].detach().T.reshape(8, 1, *GRID)
    masks = F.interpolate(channels, (12, 16), mode="bilinear", align_corners=False)[:, 0]
    masks = torch.stack([(m - m.min()) / (m.max() - m.min()) for m in masks])
    clusters = fcluster(linkage(pdist(masks.flatten(1).numpy(), "cosine"), "complete"), 0.1, "distance")
    merged = [masks[torch.tensor(clusters == c)].sum(0) for c in sorted(set(clusters))]
    merged = torch.stack([(m - m.min()) / (m.max() - m.min()) for m in merged])
    kept = torch.stack([net(x * m).softmax(1)[0, target] for m in merged])
    return (kept.view(-1, 1, 1) * merged).sum(0) / merged.sum(0) / len(merged), len(merged)  # type: ignore[attr-defined]


def test_vit_cx_by_hand():
    net, x = tiny_vit(dtype=torch.float64), image()
    expected, count = vit_cx_by_hand(net, x, 1, 0)
    assert 1 < count <= 8
    same(fei.methods.create("vit-cx", noise=0)(net, x, 1)[0, 0], expected)


def test_vit_cx_merges_and_its_noise_cancels():
    net, x = tiny_vit(dtype=torch.float64), image()
    apart, merged = (fei.methods.create("vit-cx", noise=0, distance=d)(net, x, 1) for d in (1e-9, 0.5))
    assert not torch.allclose(apart, merged)
    still = fei.methods.create("vit-cx", noise=1e-6)(net, x, 1)
    torch.testing.assert_close(still, fei.methods.create("vit-cx", noise=0)(net, x, 1), rtol=1e-3, atol=1e-5)
    assert not torch.equal(fei.methods.create("vit-cx", noise=0.5)(net, x, 1), still)


@pytest.mark.parametrize("name", FOR_TRANSFORMERS)
def test_one_sentence_without_attention_and_with_windows(name):
    with pytest.raises(ModelError, match="no attention between tokens; use a method that needs none, such as gradcam"):
        fei.methods.create(name)(small_cnn(), pictures(1))
    if name != "vit-cx":
        windows = tiny_vit(pool="mean", window=6)
        with pytest.raises(ModelError, match="not over one sequence of patches from its first block to its last"):
            fei.methods.create(name)(windows, pictures(1))


@pytest.mark.parametrize(
    ("layer", "text"),
    [
        ("blocks.1", "only those that are no patches matter to the score; name another, such as blocks.1.norm1"),
        ("head", r"gives shape \(1, 4\); .* tokens that form a grid, name another, such as .*blocks.1.norm1"),
    ],
)
def test_layers_without_a_map_are_refused_and_others_named(layer, text):
    with pytest.raises(ModelError, match=text):
        fei.methods.create("gradcam", layer=layer)(tiny_vit(), pictures(1))
    with pytest.raises(InputError, match="did you mean"):
        fei.methods.create("gradcam", layer="blocks.1.nrm1")(tiny_vit(), pictures(1))


def test_tokens_are_found_inside_a_wrapper():
    net, x = tiny_vit(dtype=torch.float64), image()
    pixels = torch.nn.Sequential(torch.nn.Identity(), net).eval()
    for name in ("generic-attention", "gradcam", "libra-fullgrad"):
        same(fei.methods.create(name)(pixels, x, 1), fei.methods.create(name)(net, x, 1))
