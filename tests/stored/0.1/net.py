"""A network whose weights are whole numbers, divided: the same on every machine and with every torch."""

import torch
from torch import nn


def _weights(shape, start):
    count = shape.numel()
    return (((torch.arange(count) + start) * 7919) % 1009 - 504).reshape(shape).float() / 1024


def net():
    body = [nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 8, 3, padding=1), nn.ReLU()]
    model = nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.copy_(_weights(parameter.shape, 97 * number))
    model.input_size, model.labels = 24, ["dark", "bright", "striped", "golden retriever"]
    return model
