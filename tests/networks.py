"""Small networks for tests, and a fingerprint that shows whether a call left one as it was."""

import hashlib

import torch
from torch import nn


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
