"""Finding the layers of a network that hold its features, by watching one forward pass."""

from collections import defaultdict
from dataclasses import dataclass

from torch import Size, Tensor, nn

from fei.common.words import in_brief
from fei.errors import ModelError
from fei.models._forward import observe

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


def find_feature_layers(model: nn.Module, sample: Tensor) -> list[str]:
    """Name the modules that hold the features of a network, from shallow to deep.

    Of a convolutional network: for each resolution, the last output of the outermost modules that have it, pooling
    and padding aside (VGG16: features.3, .8, .15, .22, .29). Where its stages stand in a row, one at each resolution,
    it is they, and what comes before them is their stem (ResNet: layer1 to layer4). Of a transformer: the blocks at
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
    lengths = {output.shape[1] for output in outputs if _is_tokens(output)}
    # As large as there are tokens, it is the attention between them.
    maps = [output for output in outputs if _is_map(output, ratio) and output.shape[2] not in lengths]
    after_maps = outputs[outputs.index(maps[-1]) + 1 :] if maps else outputs
    blocks = _blocks([output for output in after_maps if _is_tokens(output)])
    after_blocks = outputs[outputs.index(blocks[-1]) + 1 :] if blocks else after_maps
    if any(_has_channels_last(output, ratio) for output in after_blocks):
        return []
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

    def hear(name: str, module: nn.Module, output: object) -> None:
        if isinstance(output, Tensor):
            kept.append(output)
            if isinstance(module, _RESAMPLING):
                resampled.add(output.data_ptr())
            outputs.append(_Output(name, calls[name], module, output.shape, output.data_ptr() in resampled))
        calls[name] += 1

    try:
        observe(model, sample, hear)
    except Exception as error:
        raise ModelError(
            f"The network fails on an image of {sample.shape[2]} × {sample.shape[3]} pixels ({in_brief(error)}), so "
            "its feature layers cannot be found; check input_size, or give feature_layers."
        ) from error
    return outputs


def _is_map(output: _Output, ratio: float) -> bool:
    """Whether it is a feature map (1, C, H, W): channels-last outputs do not have the image's ratio of H to W."""
    return len(output.shape) == 4 and not output.resampled and _has_ratio(output.shape[2], output.shape[3], ratio)


def _has_channels_last(output: _Output, ratio: float) -> bool:
    """Whether it is a feature map (1, H, W, C)."""
    shape = output.shape
    return len(shape) == 4 and _has_ratio(shape[1], shape[2], ratio) and not _has_ratio(shape[2], shape[3], ratio)


def _has_ratio(height: int, width: int, ratio: float) -> bool:
    if min(height, width) < 2:
        return False
    if ratio == 1:
        return height == width
    return (height - 1) / (width + 1) < ratio < (height + 1) / (width - 1)  # rounding may cost a pixel


def _last_at_each_resolution(maps: list[_Output]) -> list[_Output]:
    resolutions = _by_resolution(maps)
    row = _row_of_stages(resolutions)
    if row and all(len(stages) == 1 for stages in row):
        resolutions = resolutions[-len(row) :]
    chosen = []
    for number, candidates in enumerate(resolutions):
        from_end = len(resolutions) - number
        if 1 < from_end <= len(row):  # the last one is what goes into the pooling, stage or not
            chosen.append(row[-from_end][-1])
            continue
        outermost = min(output.depth for output in candidates)
        chosen.append([output for output in candidates if output.depth == outermost][-1])
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
    for parent in {output.parent for candidates in resolutions for output in candidates if _is_stage(output.module)}:
        row: list[list[_Output]] = []
        for candidates in reversed(resolutions):
            stages = [output for output in candidates if output.parent == parent and _is_stage(output.module)]
            if not stages:
                break
            row.insert(0, stages)
        if len(row) > 1:
            rows[parent] = row
    return max(rows.items(), key=lambda item: (len(item[1]), -item[0].count("."), item[0]), default=("", []))[1]


def _is_stage(module: nn.Module) -> bool:
    """Whether a module is made of blocks."""
    return any(_is_block(child) for child in module.children())


def _is_block(module: nn.Module) -> bool:
    """Whether a module holds more than one layer with weights."""
    return sum(isinstance(layer, nn.Conv2d | nn.Linear) for layer in module.modules()) > 1


def _is_tokens(output: _Output) -> bool:
    """Whether it is a sequence of tokens (1, T, C)."""
    return len(output.shape) == 3 and output.shape[0] == 1 and min(output.shape[1:]) > 1


def _blocks(tokens: list[_Output]) -> list[_Output]:
    """The outputs of blocks of one kind, two at least; the outermost ones."""
    rows: dict[tuple[int, type[nn.Module]], list[_Output]] = defaultdict(list)
    for output in tokens:
        if _is_block(output.module):
            rows[output.depth, type(output.module)].append(output)
    repeated = [row for row in rows.values() if len(row) > 1]
    return min(repeated, key=lambda row: (row[0].depth, -len(row)), default=[])


def _quarters(blocks: list[_Output]) -> list[_Output]:
    """The blocks where each quarter of the depth ends."""
    ends = {max(1, round(len(blocks) * quarter / 4)) for quarter in (1, 2, 3, 4)}
    return [blocks[end - 1] for end in sorted(ends)]
