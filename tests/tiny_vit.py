"""A two-block transformer for tests, and the same arithmetic written out for one image."""

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    """Self-attention: fused, or written out; over windows of the sequence if told so."""

    def __init__(self, dim, heads, fused, window=None):
        super().__init__()
        self.heads, self.fused, self.window = heads, fused, window
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        n, length, dim = x.shape
        if self.window:
            x = x.reshape(n * length // self.window, self.window, dim)
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, dim // self.heads)).permute(2, 0, 3, 1, 4).unbind(0)
        if self.fused:
            mixed = F.scaled_dot_product_attention(q, k, v)
        else:
            mixed = ((q @ k.transpose(-2, -1)) / (dim // self.heads) ** 0.5).softmax(-1) @ v
        return self.proj(mixed.transpose(1, 2).flatten(2)).reshape(n, length, dim)


class Block(nn.Module):
    """Attention and MLP, each behind a LayerNorm and beside a shortcut."""

    def __init__(self, dim, heads, fused, window):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(dim), Attention(dim, heads, fused, window)
        self.norm2, self.fc1, self.fc2 = nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class TinyViT(nn.Module):
    """A vision transformer for images of 12 × 16 pixels: 3 × 4 patches, and a class token unless pooled by the mean."""

    def __init__(self, classes, pool, fused, depth, window):
        super().__init__()
        dim, heads, patch, grid = 8, 2, 4, (3, 4)
        self.pool = pool
        self.patches = nn.Conv2d(3, dim, patch, patch)
        prefix = pool == "class"
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim)) if prefix else None
        self.pos_embed = nn.Parameter(torch.zeros(1, prefix + grid[0] * grid[1], dim))
        self.blocks = nn.Sequential(*(Block(dim, heads, fused, window) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, classes)

    def forward(self, x):
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        if self.cls_token is not None:
            tokens = torch.cat([self.cls_token.expand(len(x), -1, -1), tokens], 1)
        tokens = self.norm(self.blocks(tokens + self.pos_embed))
        return self.head(tokens[:, 0] if self.pool == "class" else tokens.mean(1))


def tiny_vit(seed=0, classes=4, pool="class", fused=True, depth=2, window=None, dtype=torch.float32):
    """A `TinyViT` with weights from a seed of their own, large enough for its attention to be uneven."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = TinyViT(classes, pool, fused, depth, window)
        for parameter in net.parameters():
            parameter.data.normal_(std=0.8)
    return net.to(dtype).eval()


def by_hand(net, image, keep=None, detach=False):
    """The logits of one image, with what went on: tokens before each block, patterns A (heads, T, T), end tokens.

    Args:
        net: A `TinyViT` without windows.
        image: (3, 12, 16).
        keep: Which rows of the sequence go into the first block; all if not given.
        detach: Hold attention, the gate of GELU and the scale of LayerNorm fixed, as Libra does.
    """

    def hold(value):
        return value.detach() if detach else value

    def norm(layer, x):
        centred = x - x.mean(-1, keepdim=True)
        return centred / hold((centred.square().mean(-1, keepdim=True) + layer.eps).sqrt()) * layer.weight + layer.bias

    rows = [
        (net.patches.weight * image[:, 4 * r : 4 * r + 4, 4 * c : 4 * c + 4]).sum((1, 2, 3)) + net.patches.bias
        for r in range(3)
        for c in range(4)
    ]
    if net.cls_token is not None:
        rows = [net.cls_token[0, 0], *rows]
    x = torch.stack(rows) + net.pos_embed[0]
    if keep is not None:
        x = x[keep]
    seen = {"inputs": [], "normed": [], "patterns": [], "outputs": []}
    for block in net.blocks:
        x = x * 1.0
        seen["inputs"].append(x)
        normed = norm(block.norm1, x)
        seen["normed"].append(normed)
        dim, heads = x.shape[1], block.attn.heads
        each = dim // heads
        qkv = normed @ block.attn.qkv.weight.T + block.attn.qkv.bias
        patterns, mixed = [], []
        for h in range(heads):
            q, k = (qkv[:, part * dim + h * each : part * dim + (h + 1) * each] for part in range(2))
            scores = (q @ k.T / each**0.5).exp()
            patterns.append(hold(scores / scores.sum(1, keepdim=True)))
        pattern = torch.stack(patterns)
        seen["patterns"].append(pattern)
        for h in range(heads):
            mixed.append(pattern[h] @ qkv[:, 2 * dim + h * each : 2 * dim + (h + 1) * each])
        x = x + torch.cat(mixed, 1) @ block.attn.proj.weight.T + block.attn.proj.bias
        hidden = norm(block.norm2, x) @ block.fc1.weight.T + block.fc1.bias
        gate = hold(0.5 * (1 + torch.erf(hidden / 2**0.5)))
        x = x + (hidden * gate) @ block.fc2.weight.T + block.fc2.bias
        seen["outputs"].append(x)
    return tail(net, x, norm), seen


def tail(net, x, norm=None):
    """The logits of tokens (T, dim) that come out of a block, through the network's own norm and head."""
    ended = norm(net.norm, x) if norm else F.layer_norm(x, x.shape[-1:], net.norm.weight, net.norm.bias, net.norm.eps)
    pooled = ended[0] if net.pool == "class" else ended.mean(0)
    return net.head.weight @ pooled + net.head.bias
