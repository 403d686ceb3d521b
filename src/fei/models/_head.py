"""The last layer of a classifier: finding it, and making it anew for another number of classes."""

import copy

from torch import Tensor, nn

from fei.common.words import in_brief
from fei.errors import InputError, ModelError
from fei.models._forward import grey_image, observe


def find_head(network: nn.Module) -> tuple[str, nn.Linear | nn.Conv2d]:
    """The layer that makes the logits: the last linear layer or 1 × 1 convolution in a forward pass on a grey image.

    Args:
        network: A classifier; its mode is as before afterwards. The image has the size of its `input_size`, or 224.

    Returns:
        Its name among the modules of `network`, and itself.

    Raises:
        ModelError: If the network fails on the image, or its last such layer has not as many outputs as it has classes.
    """
    heads: list[tuple[str, nn.Linear | nn.Conv2d]] = []

    def hear(name: str, module: nn.Module, _: object) -> None:
        if isinstance(module, nn.Linear) or (isinstance(module, nn.Conv2d) and module.kernel_size == (1, 1)):
            heads.append((name, module))

    sample = grey_image(network)
    try:
        output = observe(network, sample, hear)
    except Exception as error:
        raise ModelError(
            f"The network fails on an image of {sample.shape[2]} × {sample.shape[3]} pixels ({in_brief(error)}), so "
            "its last layer cannot be found; check input_size."
        ) from error
    logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
    if not heads or not isinstance(logits, Tensor) or logits.shape[1:] != (_outputs(heads[-1][1]),):
        raise ModelError(
            f"The network {type(network).__name__} does not end in one linear layer or 1 × 1 convolution that makes "
            "its logits, so it cannot be given another number of classes; change it in the code that builds it."
        )
    return heads[-1]


def replace_head(network: nn.Module, classes: int) -> str:
    """Give a classifier a new last layer, with fresh weights, for another number of classes.

    Args:
        network: A classifier, changed in place. If it carries `input_size`, it is run on an image of that size, else
            on one of 224 × 224 pixels, to find the layer.
        classes: The new number of classes.

    Returns:
        The name of the replaced module among the modules of `network`.

    Raises:
        InputError: If `classes` is not a positive integer.
        ModelError: If no single layer makes the logits.
    """
    if not isinstance(classes, int) or isinstance(classes, bool) or classes < 1:
        raise InputError(f"classes is {classes!r}; give the number of classes, 1 or more.")
    name, old = find_head(network)
    new = copy.deepcopy(old)
    setattr(new, "out_features" if isinstance(new, nn.Linear) else "out_channels", classes)
    new.weight = nn.Parameter(old.weight.detach().new_zeros(classes, *old.weight.shape[1:]))
    if old.bias is not None:
        new.bias = nn.Parameter(old.bias.detach().new_zeros(classes))
    new.reset_parameters()
    # Under each of its names: the state dict has it under all of them.
    for alias in [alias for alias, module in network.named_modules(remove_duplicate=False) if module is old]:
        parent, _, child = alias.rpartition(".")
        setattr(network.get_submodule(parent), child, new)
    return name


def _outputs(head: nn.Linear | nn.Conv2d) -> int:
    return head.out_features if isinstance(head, nn.Linear) else head.out_channels
