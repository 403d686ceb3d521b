"""A vision transformer whose weights are whole numbers, divided: for golden values of what needs attention."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_WIDTH, _HEADS, _PATCH, _CLASSES = 16, 2, 8, 5


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(_WIDTH), nn.LayerNorm(_WIDTH)
        self.qkv, self.proj = nn.Linear(_WIDTH, 3 * _WIDTH), nn.Linear(_WIDTH, _WIDTH)
        self.fc1, self.fc2 = nn.Linear(_WIDTH, 2 * _WIDTH), nn.Linear(2 * _WIDTH, _WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (N, T, width)."""
        parts = self.qkv(self.norm1(x)).unflatten(-1, (3, _HEADS, _WIDTH // _HEADS)).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.proj(F.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Transformer(nn.Module):
    """Three blocks and a class token, for images of 56×56 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, _WIDTH, _PATCH, _PATCH)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, _WIDTH))
        self.pos_embed = nn.Parameter(torch.zeros(1, 50, _WIDTH))
        self.blocks = nn.Sequential(*(_Block() for _ in range(3)))
        self.norm, self.head = nn.LayerNorm(_WIDTH), nn.Linear(_WIDTH, _CLASSES)
        for number, parameter in enumerate(self.parameters()):
            values = torch.arange(parameter.numel()) * (37 + 2 * number) % 101 - 50.0
            parameter.data = values.view_as(parameter) / 50 / (parameter[0].numel() or 1) ** 0.5
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """Logits of images in [0, 1]."""
        tokens = self.patches(2 * x - 1).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.cls_token.expand(len(x), -1, -1), tokens], 1) + self.pos_embed
        logits: Tensor = self.head(self.norm(self.blocks(tokens))[:, 0])
        return logits
