"""Finding the layers of a network that hold its features, by watching one forward pass."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fei.errors import ModelError
from fei.models._wording import in_brief

_RESAMPLING = (  # they compute no features, only change the grid
    nn.MaxPool2d,
    nn.AvgPool2d,
    nn.AdaptiveMaxPool2d,
    nn.AdaptiveAvgPool2d,
    nn.LPPool2d,
    nn.FractionalMaxPool2d,
    nn.ConstantPad2d,
    nn.ReflectionPad2d,
    nn.ReplicationPad2d,
    nn.CircularPad2d,
)


@dataclass(frozen=True)
class _Output:
    """What one call of one module returned."""

    name: str
    call: int
    shape: torch.Size
    resampled: bool

    @property
    def depth(self) -> int:
        return self.name.count(".")


def find_feature_layers(model: nn.Module, sample: Tensor) -> list[str]:
    """Name the modules that hold the features of a network, from shallow to deep.

    Of a convolutional network: for each resolution, the last output of the outermost modules that have it, pooling
    and padding aside (VGG16: features.3, .8, .15, .22, .29; ResNet: relu, layer1 to layer4). Of a transformer: the
    blocks at each quarter of its depth.

    Args:
        model: A network. Its mode is as before afterwards.
        sample: A batch of one input of it, (1, C, H, W).

    Returns:
        Names of modules of `model`, with "#call" where a module is called more than once. Empty if the network has
        neither feature maps nor blocks of tokens.

    Raises:
        ModelError: If the network fails on the sample.
    """
    outputs = _watch(model, sample)
    ratio = sample.shape[2] / sample.shape[3]
    lengths = {output.shape[1] for output in outputs if _is_tokens(output)}
    # As large as there are tokens, it is the attention between them.
    maps = [output for output in outputs if _is_map(output, ratio) and output.shape[2] not in lengths]
    after_maps = outputs[outputs.index(maps[-1]) + 1 :] if maps else outputs
    blocks = _longest_row([output for output in after_maps if _is_tokens(output)])
    # Blocks of tokens after the last feature map mean that the map only made the patches.
    chosen = _quarters(blocks) if len(blocks) > 1 else _last_at_each_resolution(maps)
    calls = {output.name: output.call for output in outputs}
    return [f"{output.name}#{output.call}" if calls[output.name] > 0 else output.name for output in chosen]


def _watch(model: nn.Module, sample: Tensor) -> list[_Output]:
    """Run the model in evaluation mode on a sample, and list what its modules return, in order."""
    outputs: list[_Output] = []
    calls: dict[str, int] = defaultdict(int)
    resampled: set[int] = set()
    kept: list[Tensor] = []  # as long as the tensors live, no two of them share an address

    def listen(name: str) -> Callable[[nn.Module, object, object], None]:
        def hook(module: nn.Module, _: object, output: object) -> None:
            if isinstance(output, Tensor):
                kept.append(output)
                if isinstance(module, _RESAMPLING):
                    resampled.add(output.data_ptr())
                outputs.append(_Output(name, calls[name], output.shape, output.data_ptr() in resampled))
            calls[name] += 1

        return hook

    modes = [(module, module.training) for module in model.modules()]
    handles = [module.register_forward_hook(listen(name)) for name, module in model.named_modules() if name]
    try:
        model.eval()
        with torch.no_grad():
            model(sample)
    except Exception as error:
        raise ModelError(
            f"The network fails on an image of {sample.shape[2]} × {sample.shape[3]} pixels ({in_brief(error)}), so "
            "its feature layers cannot be found; check input_size, or give feature_layers."
        ) from error
    finally:
        for handle in handles:
            handle.remove()
        for module, training in modes:
            module.training = training
    return outputs


def _is_map(output: _Output, ratio: float) -> bool:
    """Whether it is a feature map (1, C, H, W): channels-last outputs do not have the image's ratio of H to W."""
    shape = output.shape
    if len(shape) != 4 or min(shape[2:]) < 2 or output.resampled:
        return False
    if ratio == 1:
        return shape[2] == shape[3]
    return (shape[2] - 1) / (shape[3] + 1) < ratio < (shape[2] + 1) / (shape[3] - 1)  # rounding may cost a pixel


def _last_at_each_resolution(maps: list[_Output]) -> list[_Output]:
    by_resolution: dict[int, list[_Output]] = defaultdict(list)
    for output in maps:
        by_resolution[output.shape[2]].append(output)
    chosen = []
    for _, candidates in sorted(by_resolution.items(), reverse=True):
        outermost = min(output.depth for output in candidates)
        chosen.append([output for output in candidates if output.depth == outermost][-1])
    return chosen


def _is_tokens(output: _Output) -> bool:
    """Whether it is a sequence of tokens (1, T, C)."""
    return len(output.shape) == 3 and min(output.shape[1:]) > 1


def _longest_row(tokens: list[_Output]) -> list[_Output]:
    """The most outputs of modules with one parent; the outermost where several rows are as long."""
    siblings: dict[str, list[_Output]] = defaultdict(list)
    for output in tokens:
        siblings[output.name.rpartition(".")[0]].append(output)
    return max(siblings.values(), key=lambda row: (len(row), -row[0].depth), default=[])


def _quarters(blocks: list[_Output]) -> list[_Output]:
    """The blocks where each quarter of the depth ends."""
    ends = {max(1, round(len(blocks) * quarter / 4)) for quarter in (1, 2, 3, 4)}
    return [blocks[end - 1] for end in sorted(ends)]
