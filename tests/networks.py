"""Small networks for tests, and a fingerprint that shows whether a call left one as it was."""

import hashlib
from collections import OrderedDict
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def small_cnn(seed=0, channels=3, classes=4, inplace=True):
    """Convolution, BatchNorm and in-place ReLU twice, then a linear head; weights from a seed of their own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = nn.Sequential(
            nn.Conv2d(channels, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=inplace),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 12, 3, padding=1),
            nn.ReLU(inplace=inplace),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(12, classes),
        )
        for parameter in net.parameters():
            parameter.data *= 3
    return net.eval()


@dataclass
class Record:
    """An output with logits among other things."""

    logits: Tensor
    hidden: Tensor


class ModelOutput(OrderedDict):
    """An output as the transformers library returns it: a dictionary whose entries are attributes too."""

    def __getattr__(self, name):
        if name in self:
            return self[name]
        raise AttributeError(name)


OUTPUTS = {
    "tensor": lambda logits, hidden: logits,
    "record": Record,
    "model output": lambda logits, hidden: ModelOutput(logits=logits, hidden=hidden),
    "tuple": lambda logits, hidden: (logits, hidden),
    "dict": lambda logits, hidden: {"logits": logits, "hidden": hidden},
    "none": lambda logits, hidden: None,
}


class VariedCNN(nn.Module):
    """Two convolutions and a linear head for images of any size, in the ways that networks differ; see `varied_cnn`."""

    def __init__(self, channels, classes, norm, inplace, residual, functional, stride, output):
        super().__init__()
        self.channels, self.classes, self.output = channels, classes, output
        self.residual, self.functional = residual, functional
        self.stem = nn.Conv2d(channels, 5, 3, stride=stride, padding=1)
        self.body = nn.Conv2d(5, 5, 3, padding=1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(5) if norm else nn.Identity() for _ in range(2))
        self.relu = nn.ReLU(inplace=inplace)
        self.head = nn.Linear(5, classes)

    def forward(self, x):
        activate = F.relu if self.functional else self.relu  # the module is used twice
        first = activate(self.norms[0](self.stem(x)))
        second = self.norms[1](self.body(first))
        if self.residual:
            second += first
        hidden = activate(second).mean((2, 3))
        return OUTPUTS[self.output](self.head(hidden), hidden)


def varied_cnn(
    channels=3,
    classes=4,
    norm=True,
    inplace=True,
    residual=False,
    functional=False,
    stride=1,
    output="tensor",
    seed=0,
):
    """A `VariedCNN` with weights from a seed of their own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = VariedCNN(channels, classes, norm, inplace, residual, functional, stride, output)
        for name, parameter in net.named_parameters():
            if "norms" not in name:
                parameter.data *= 2
        for module in net.norms:
            if norm:
                module.running_mean.normal_()
                module.weight.data.normal_()
    return net.eval()


class Bomb(nn.Module):
    """Raises in the n-th forward pass."""

    def __init__(self, error, when):
        super().__init__()
        self.error, self.when, self.calls = error, when, [0]

    def forward(self, x):
        self.calls[0] += 1
        if self.calls[0] == self.when:
            raise self.error
        return x


def pictures(count=2, size=(12, 16), channels=3, seed=0):
    """Random images in [0, 1], not square."""
    return torch.rand(count, channels, *size, generator=torch.Generator().manual_seed(seed))


def fingerprint(model):
    """Everything a caller may find changed: values, gradients, flags, hooks."""
    parts = []
    for name, module in model.named_modules():
        hooks = {k: len(v) for k, v in vars(module).items() if k.endswith(("hooks", "hooks_with_kwargs")) and v}
        plain = {k: v for k, v in vars(module).items() if isinstance(v, (bool, int, float, str, type(None)))}
        parts.append((name, sorted(hooks.items()), sorted(plain.items(), key=str)))
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        content = hashlib.sha256(tensor.detach().contiguous().numpy().tobytes()).hexdigest()
        parts.append((name, tensor.requires_grad, tensor.grad is None, tensor._version, content))
    return parts


class TinyBlock(nn.Module):
    """A block of a transformer whose attention is computed in one of several ways; `gated` makes its MLP SwiGLU."""

    def __init__(self, width, heads, way, gated):
        super().__init__()
        self.norm1, self.norm2, self.heads, self.way, self.gated = (
            nn.LayerNorm(width),
            nn.LayerNorm(width),
            heads,
            way,
            gated,
        )
        self.mha = nn.MultiheadAttention(width, heads, batch_first=True)
        self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)
        self.gate = nn.Linear(width, 3 * width) if gated else None
        self.act = nn.SiLU() if gated else nn.GELU()

    def attention(self, x):
        if self.way.startswith("module"):
            return self.mha(x, x, x, need_weights=self.way == "module, weights")[0]
        q, k, v = (
            F.linear(x, self.mha.in_proj_weight, self.mha.in_proj_bias)
            .unflatten(-1, (3, self.heads, -1))
            .permute(2, 0, 3, 1, 4)
        )
        if self.way == "fused":
            mixed = F.scaled_dot_product_attention(q, k, v)
        else:
            scores = torch.einsum("bhid,bhjd->bhij", q, k) * q.shape[-1] ** -0.5
            pattern = F.dropout(scores.softmax(-1), 0.1, training=self.training)
            if self.way == "einsum":
                mixed = torch.einsum("b h i j, b h j d -> b h i d", pattern, v)
            elif self.way == "transposed":
                mixed = (v.transpose(-2, -1) @ pattern.transpose(-2, -1)).transpose(-2, -1)
            else:
                mixed = pattern @ v
        return self.mha.out_proj(mixed.transpose(1, 2).flatten(2))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        hidden = self.norm2(x)
        hidden = self.act(self.gate(hidden)) * self.up(hidden) if self.gated else self.act(self.up(hidden))
        return x + self.down(hidden)


class TinyTransformer(nn.Module):
    """Two blocks on patches of 4 × 4 pixels; the class token stands first or last; without one patches are averaged."""

    def __init__(self, way="softmax", token="first", gated=False, size=(12, 16), width=8, heads=2, classes=4):
        super().__init__()
        self.token, places = token, (size[0] // 4) * (size[1] // 4)
        self.embed = nn.Conv2d(3, width, 4, stride=4)
        self.class_token = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, places + (token is not None), width))
        self.blocks = nn.Sequential(*[TinyBlock(width, heads, way, gated) for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        x = self.embed(x).flatten(2).transpose(1, 2)
        token = self.class_token.expand(len(x), -1, -1)
        if self.token is not None:
            x = torch.cat([token, x] if self.token == "first" else [x, token], 1)
        x = self.norm(self.blocks(x + self.positions))
        return self.head(x.mean(1) if self.token is None else x[:, 0 if self.token == "first" else -1])


def tiny_transformer(seed=0, **options):
    """A `TinyTransformer` with weights from a seed of their own, in evaluation mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = TinyTransformer(**options)
        for parameter in net.parameters():
            parameter.data = torch.randn(parameter.shape) * 0.5
    return net.eval()
