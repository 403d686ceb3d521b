"""One forward pass on a grey image, watched from outside; the network is as before afterwards."""

from collections.abc import Callable

import torch
from torch import Tensor, nn


def grey_image(network: nn.Module) -> Tensor:
    """A grey image (1, 3, S, S) of the network's type and device; S is its `input_size`, or 224 if it has none."""
    size = getattr(network, "input_size", None)
    side = size if isinstance(size, int) else 224
    like = next(network.parameters(), torch.empty(0))
    return torch.full((1, 3, side, side), 0.5, dtype=like.dtype, device=like.device)


def observe(network: nn.Module, sample: Tensor, hear: Callable[[str, nn.Module, object], None]) -> object:
    """Run a network once in evaluation mode, without gradients, and hear of everything its modules return.

    Args:
        network: The network. Its mode is as before afterwards, and so are its hooks.
        sample: What it is run on.
        hear: Called with the name of a module, the module and its output, in the order in which they finish.

    Returns:
        The network's own output.
    """

    def listen(name: str) -> Callable[[nn.Module, object, object], None]:
        return lambda module, _, output: hear(name, module, output)

    modes = [(module, module.training) for module in network.modules()]
    handles = [module.register_forward_hook(listen(name)) for name, module in network.named_modules() if name]
    try:
        network.eval()
        with torch.no_grad():
            return network(sample)
    finally:
        for handle in handles:
            handle.remove()
        for module, training in modes:
            module.training = training
