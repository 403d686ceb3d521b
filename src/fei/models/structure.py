"""The layers of a network that hold its features, and the one that makes its logits: found by watching one pass."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import takewhile

import torch
from torch import Size, Tensor, nn

from fei.common.words import in_brief
from fei.core.checks import check_count
from fei.errors import ModelError

# They compute no features, only change the grid.
_POOLING = (
    nn.MaxPool2d | nn.AvgPool2d | nn.AdaptiveMaxPool2d | nn.AdaptiveAvgPool2d | nn.LPPool2d | nn.FractionalMaxPool2d
)
_PADDING = nn.ConstantPad2d | nn.ReflectionPad2d | nn.ReplicationPad2d | nn.CircularPad2d

# A module by its name, itself, its inputs and its output.
_Hear = Callable[[str, nn.Module, object, object], None]
_ADVICE = "check `input_size`"

# Sides that differ by less are one resolution: convolutions without padding take some pixels off, strides halve.
_SAME_RESOLUTION = 1.5


@dataclass(frozen=True)
class _Output:
    """What one call of one module returned."""

    name: str
    call: int
    module: nn.Module
    shape: Size
    resampled: bool

    @property
    def depth(self) -> int:
        return self.name.count(".")

    @property
    def parent(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def is_tokens(self) -> bool:
        """Whether it is a sequence of tokens (1, T, C)."""
        return len(self.shape) == 3 and self.shape[0] == 1 and min(self.shape[1:]) > 1

    @property
    def is_stage(self) -> bool:
        """Whether its module is made of blocks."""
        return any(map(_is_block, self.module.children()))

    def is_map(self, ratio: float) -> bool:
        """Whether it is a feature map (1, C, H, W): channels-last outputs do not have the image's ratio of H to W."""
        return len(self.shape) == 4 and not self.resampled and _has_ratio(self.shape[2], self.shape[3], ratio)

    def has_channels_last(self, ratio: float) -> bool:
        """Whether it is a feature map (1, H, W, C)."""
        if len(self.shape) != 4:
            return False
        _, height, width, channels = self.shape
        return _has_ratio(height, width, ratio) and not _has_ratio(width, channels, ratio)


def find_feature_layers(model: nn.Module, sample: Tensor) -> list[str]:
    """Name the modules that hold the features of a network, from shallow to deep.

    Of a convolutional network: for each resolution, the last output of the outermost modules that have it, pooling
    and padding aside (VGG16: features.3, .8, .15, .22, .29). Where its stages stand in a row, one at each resolution,
    these are taken; what comes before them is their stem (ResNet: layer1 to layer4). Of a transformer: the blocks at
    each quarter of its depth.

    Args:
        model: A network. Its mode is as before afterwards.
        sample: A batch of one input of it, (1, C, H, W).

    Returns:
        Names of modules of `model`, with "#call" where a module is called more than once. Empty if the network has
        neither feature maps nor blocks of tokens, or if its last feature maps have their channels last, (1, H, W, C),
        which nothing here can read as maps.

    Raises:
        ModelError: If the network fails on the sample.
    """
    outputs = _watch(model, sample)
    ratio = sample.shape[2] / sample.shape[3]
    lengths = {output.shape[1] for output in outputs if output.is_tokens}
    # As large as there are tokens, it is the attention between them.
    maps = [output for output in outputs if output.is_map(ratio) and output.shape[2] not in lengths]
    after_maps = outputs[outputs.index(maps[-1]) + 1 :] if maps else outputs
    blocks = _blocks([output for output in after_maps if output.is_tokens])
    after_blocks = outputs[outputs.index(blocks[-1]) + 1 :] if blocks else after_maps
    if any(output.has_channels_last(ratio) for output in after_blocks):
        return []
    # Blocks of tokens after the last feature map mean that the map only made the patches.
    quarters = sorted({max(1, round(len(blocks) * quarter / 4)) for quarter in (1, 2, 3, 4)})
    chosen = [blocks[end - 1] for end in quarters] if len(blocks) > 1 else _last_at_each_resolution(maps)
    calls = {output.name: output.call for output in outputs}
    return [f"{output.name}#{output.call}" if calls[output.name] > 0 else output.name for output in chosen]


def find_head(network: nn.Module) -> tuple[str, nn.Linear | nn.Conv2d]:
    """The layer that makes the logits, by its name among the modules of the network, and itself.

    It is the last linear layer or 1 × 1 convolution in a forward pass on a grey image, see `grey_image`. The network's
    mode is as before afterwards.

    Raises:
        ModelError: If the network fails on the image, or its last such layer has not as many outputs as it has classes.
    """
    heads: list[tuple[str, nn.Linear | nn.Conv2d]] = []

    def hear(name: str, module: nn.Module, *_: object) -> None:
        if isinstance(module, nn.Linear) or (isinstance(module, nn.Conv2d) and module.kernel_size == (1, 1)):
            heads.append((name, module))

    output = observe(network, grey_image(network), hear, "its last layer")
    logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
    if not heads or not isinstance(logits, Tensor) or logits.shape[1:] != heads[-1][1].weight.shape[:1]:
        raise ModelError(
            f"The network {type(network).__name__} does not end in one linear layer or 1 × 1 convolution that makes "
            "its logits, so it cannot be given another number of classes; change it in the code that builds it."
        )
    return heads[-1]


def replace_head(network: nn.Module, classes: int) -> str:
    """Give a classifier a new last layer, with fresh weights, for another number of classes; see `find_head`.

    Returns:
        The name of the replaced module among the modules of the network, which is changed in place.

    Raises:
        InputError: If `classes` is not a positive integer.
        ModelError: If no single layer makes the logits.
    """
    check_count("classes", classes)
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


def grey_image(network: nn.Module) -> Tensor:
    """A grey image (1, 3, S, S) of the network's type and device; S is its `input_size`, or 224 if it has none."""
    size = getattr(network, "input_size", None)
    side = size if isinstance(size, int) else 224
    like = next(network.parameters(), torch.empty(0))
    return torch.full((1, 3, side, side), 0.5, dtype=like.dtype, device=like.device)


def count_outputs(network: nn.Module) -> int:
    """How many classes a network tells apart, seen in a pass on a grey image; 0 where its output is no tensor.

    Raises:
        ModelError: If the network fails on the image.
    """
    logits = observe(network, grey_image(network), lambda *_: None, "the number of its classes")
    return logits.shape[1] if isinstance(logits, Tensor) and logits.ndim == 2 else 0


def observe(network: nn.Module, sample: Tensor, hear: _Hear, lost: str, advice: str = _ADVICE) -> object:
    """Run a network once in evaluation mode, without gradients, and hear of everything its modules return.

    Its mode is as before afterwards, and so are its hooks. `hear` is called with the name of a module, the module, its
    inputs and its output, in the order in which they end. If the network fails, a ModelError says that what is `lost`
    cannot be found, and gives the advice.
    """
    modes = [(module, module.training) for module in network.modules()]
    handles = [
        module.register_forward_hook(partial(hear, name))
        for name, module in network.named_modules()
        if name and not isinstance(module, torch.jit.ScriptModule)  # which has no hooks
    ]
    try:
        network.eval()
        with torch.no_grad():
            return network(sample)
    except Exception as error:
        why = f"an image of {sample.shape[2]} × {sample.shape[3]} pixels ({in_brief(error)})"
        raise ModelError(f"The network fails on {why}, so {lost} cannot be found; {advice}.") from error
    finally:
        for handle in handles:
            handle.remove()
        for module, training in modes:
            module.training = training


def _watch(model: nn.Module, sample: Tensor) -> list[_Output]:
    """Run the model in evaluation mode on a sample, and list what its modules return, in order."""
    outputs: list[_Output] = []
    calls: dict[str, int] = defaultdict(int)
    resampled: set[int] = set()
    kept: list[Tensor] = []  # as long as the tensors live, no two of them share an address

    def hear(name: str, module: nn.Module, _: object, output: object) -> None:
        if isinstance(output, Tensor):
            kept.append(output)
            if isinstance(module, _POOLING | _PADDING):
                resampled.add(output.data_ptr())
            outputs.append(_Output(name, calls[name], module, output.shape, output.data_ptr() in resampled))
        calls[name] += 1

    observe(model, sample, hear, "its feature layers", advice="check `input_size`, or give `feature_layers`")
    return outputs


def _has_ratio(height: int, width: int, ratio: float) -> bool:
    if min(height, width) < 2:
        return False
    if ratio == 1:
        return height == width
    return (height - 1) / (width + 1) < ratio < (height + 1) / (width - 1)  # rounding may cost a pixel


def _is_block(module: nn.Module) -> bool:
    """Whether a module holds more than one layer with weights."""
    return sum(isinstance(layer, nn.Conv2d | nn.Linear) for layer in module.modules()) > 1


def _last_at_each_resolution(maps: list[_Output]) -> list[_Output]:
    resolutions = _by_resolution(maps)
    row = _row_of_stages(resolutions)
    if row and all(len(stages) == 1 for stages in row):
        resolutions = resolutions[-len(row) :]
    chosen = []
    for number, candidates in enumerate(resolutions):
        from_end = len(resolutions) - number
        in_row = 1 < from_end <= len(row)  # the last one is what goes into the pooling, stage or not
        chosen.append(row[-from_end][-1] if in_row else min(reversed(candidates), key=lambda output: output.depth))
    return chosen


def _by_resolution(maps: list[_Output]) -> list[list[_Output]]:
    """The maps of each resolution, from fine to coarse."""
    resolutions: list[list[_Output]] = []
    finest = 0
    for output in sorted(maps, key=lambda output: output.shape[2], reverse=True):  # stable: in order of execution
        if not resolutions or finest >= _SAME_RESOLUTION * output.shape[2]:
            finest = output.shape[2]
            resolutions.append([])
        resolutions[-1].append(output)
    # Of maps that differ by some pixels, the later is not always the smaller.
    order = {id(output): number for number, output in enumerate(maps)}
    return [sorted(resolution, key=lambda output: order[id(output)]) for resolution in resolutions]


def _row_of_stages(resolutions: list[list[_Output]]) -> list[list[_Output]]:
    """The stages of one parent at each of the last resolutions, two at least; of the longest row, the outermost one."""
    rows: dict[str, list[list[_Output]]] = {}
    for parent in {output.parent for candidates in resolutions for output in candidates if output.is_stage}:
        of_parent = ([o for o in found if o.parent == parent and o.is_stage] for found in reversed(resolutions))
        row = list(takewhile(bool, of_parent))
        if len(row) > 1:
            rows[parent] = row[::-1]
    return max(rows.items(), key=lambda item: (len(item[1]), -item[0].count("."), item[0]), default=("", []))[1]


def _blocks(tokens: list[_Output]) -> list[_Output]:
    """The outputs of blocks of one kind, two at least; the outermost ones."""
    rows: dict[tuple[int, type[nn.Module]], list[_Output]] = defaultdict(list)
    for output in tokens:
        if _is_block(output.module):
            rows[output.depth, type(output.module)].append(output)
    repeated = [row for row in rows.values() if len(row) > 1]
    return min(repeated, key=lambda row: (row[0].depth, -len(row)), default=[])
