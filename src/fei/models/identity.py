"""Which network it was: digests of its weights, and of the code that computes with them."""

import hashlib
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

OWN_FILE = "_fei_model_"  # what modules from a user's own file are called


@torch.no_grad()
def weights_digest(network: nn.Module) -> str:
    """SHA-256 of all weights and buffers with their names, types and shapes."""
    content = hashlib.sha256()
    for name, value in sorted(network.state_dict().items()):
        content.update(f"{name}\0".encode())
        content.update(tensor_bytes(value) if isinstance(value, Tensor) else repr(value).encode())
    return content.hexdigest()


def source_digests(network: nn.Module, *files: str) -> dict[str, str]:
    """SHA-256 of each source file that the classes of a network come from, torch's own aside.

    Args:
        network: The network.
        files: More files, such as that of the function that built it.

    Returns:
        By the name of the Python module, or of the user's own file. Code without a file is left out.
    """
    modules = {type(module).__module__ for module in network.modules()}
    modules = {name for name in modules if name.partition(".")[0] not in ("torch", "fei")}
    found = {name: getattr(sys.modules.get(name), "__file__", None) for name in sorted(modules)}
    named = {Path(file).name if name.startswith(OWN_FILE) else name: file for name, file in found.items() if file}
    named |= {Path(file).name: file for file in files}
    return {name: _file_digest(Path(file)) for name, file in sorted(named.items()) if Path(file).is_file()}


def tensor_bytes(tensor: Tensor) -> bytes:
    """The type, shape and values of a tensor."""
    head = f"{tensor.dtype} {tuple(tensor.shape)}\0".encode()
    plain = tensor.dequantize() if tensor.is_quantized else tensor.to_dense() if tensor.is_sparse else tensor
    values = plain.detach().cpu().contiguous()
    return head + values.flatten().view(torch.uint8).numpy().tobytes() if values.numel() else head


def _file_digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
