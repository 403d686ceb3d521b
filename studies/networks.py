"""Networks that only the study needs."""

from studies.photographs import ASSETS
from torch import nn

from fei.models import Classifier, load


def mobilenet_v1_relu() -> Classifier:
    """MobileNetV1 without a bound on its activations: ReLU in place of ReLU6."""
    model = load(f"{ASSETS / 'zoo.py'}:mobilenet_v1")
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.ReLU6):
                setattr(module, name, nn.ReLU())
    return model.eval()
