"""Damaged files of tensors: checkpoints as safetensors and as torch writes them, and saved explanations."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import torch
from _fuzz_mutate import NUMBERS, json_text, mutate_bytes, mutate_json, odd_string
from _fuzz_pickles import archived, hostile_pickles, zipped
from _fuzz_worker import MEBIBYTE, Case
from safetensors.torch import save
from torch import nn

from fei import FEI, models
from fei.core.explanation import Explanation

NETWORK = '''"""A network of two layers."""

from torch import nn


def tiny() -> nn.Module:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    network.input_size = 8
    return network
'''


class Checkpoints:
    """Weights of a small network, given with it as any user's are."""

    name = "checkpoints"
    max_bytes = 256 * MEBIBYTE

    def valid(self) -> Sequence[Case]:
        """The weights in each form."""
        return [self._case(name, content) for name, content in checkpoints()]

    def make(self, rng: Random) -> Case:
        """One of them damaged, or a hostile pickle."""
        if rng.random() < 0.12:
            return self._case("weights.pt", zipped(rng, rng.choice(hostile_pickles())))
        name, content = rng.choice(checkpoints())
        if name.endswith(".safetensors"):
            return self._case(name, change_safetensors(rng, content))
        if rng.random() < 0.4 or not zipfile.is_zipfile(io.BytesIO(content)):
            return self._case(name, mutate_bytes(rng, content))
        return self._case(name, _change_archive(rng, content))

    def read(self, folder: Path, ask: tuple[str, ...]) -> None:
        """As `--model net.py:tiny:weights.pt` does, and one pass through the result."""
        classifier = models.load(f"{folder / 'net.py'}:tiny:{folder / ask[0]}")
        with torch.no_grad():
            classifier(torch.zeros(1, 3, 8, 8))

    @staticmethod
    def _case(name: str, content: bytes) -> Case:
        return Case({"net.py": NETWORK.encode(), name: content}, name, (name,))


class Explanations:
    """What `Explanation.save` wrote."""

    name = "explanations"
    max_bytes = 256 * MEBIBYTE

    def valid(self) -> Sequence[Case]:
        """The whole files."""
        return [Case({"e.safetensors": content}, "e.safetensors") for content in explanations()]

    def make(self, rng: Random) -> Case:
        """One of them damaged."""
        return Case({"e.safetensors": change_safetensors(rng, rng.choice(explanations()))}, "e.safetensors")

    def read(self, folder: Path, ask: tuple[str, ...]) -> None:
        """Load it, use it, and save it again."""
        from fei.service.record import summarize_trace

        explanation = Explanation.load(folder / "e.safetensors")
        explanation.perturbed()
        summarize_trace(explanation)
        explanation.save(folder / "again.safetensors")


def _network() -> nn.Module:
    space: dict[str, Any] = {}
    exec(NETWORK, space)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network: nn.Module = space["tiny"]()
    return network


@cache
def checkpoints() -> tuple[tuple[str, bytes], ...]:
    """The same weights in every form that is read."""
    state = _network().state_dict()
    labels = {"fei.labels": json.dumps(["a", "b", "c"]), "fei.spec": "net.py:tiny"}
    return (
        ("weights.safetensors", save(state)),
        ("weights.safetensors", save(state, labels)),
        ("weights.pt", _saved(state)),
        ("weights.pth", _saved({"state_dict": state, "epoch": 3, "betas": (0.9, 0.999)})),
        ("weights.pth", _saved(OrderedDict((k, nn.Parameter(v)) for k, v in state.items()))),
        ("weights.pt", _saved(state, _use_new_zipfile_serialization=False)),
    )


def _saved(content: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(content, stream, **options)
    return stream.getvalue()


@cache
def explanations() -> tuple[bytes, ...]:
    """Explanations of a small network, with and without the colours apart."""
    import tempfile

    found = []
    for options in ({}, {"objective": "deletion"}):
        network, images = _network().eval(), torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
        explanation = FEI(network, steps=2, quantiles=(0.5, 0.9), **options).explain(images)
        with tempfile.TemporaryDirectory() as folder:
            found.append(explanation.save(Path(folder) / "e.safetensors").read_bytes())
    return tuple(found)


def change_safetensors(rng: Random, content: bytes) -> bytes:
    """Change the header's JSON and put its length right, or damage bytes."""
    if rng.random() < 0.25:
        return mutate_bytes(rng, content)
    (length,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    for _ in range(rng.randint(1, 2)):
        header = _change_header(rng, header)
    text = json_text(rng, header).encode("utf-8", "replace")
    text = mutate_bytes(rng, text, 2) if rng.random() < 0.05 else text
    if rng.random() < 0.1:
        data = mutate_bytes(rng, data, 2)
    said = rng.choice(NUMBERS) % 2**64 if rng.random() < 0.05 else len(text)
    return struct.pack("<Q", said) + text + data


def _change_header(rng: Random, header: Any) -> Any:
    tensors = [key for key in header if key != "__metadata__"] if isinstance(header, dict) else []
    entries = [key for key in tensors if isinstance(header[key], dict) and isinstance(header[key].get("shape"), list)]
    action = rng.randrange(7)
    if action == 0 or not entries:
        return mutate_json(rng, header)
    header = json.loads(json.dumps(header))
    key = rng.choice(entries)
    entry = header[key]
    if action == 1:  # as many numbers, in another shape
        rng.shuffle(entry["shape"])
        entry["shape"].insert(rng.randint(0, len(entry["shape"])), 1)
    elif action == 2:
        entry["shape"] = [rng.choice(NUMBERS) for _ in range(rng.randint(0, 4))]
    elif action == 3:
        widths = {"F32": "I32 U32 F32", "I64": "F64 U64 I64 C64", "F64": "I64", "I32": "F32"}
        other = widths.get(str(entry.get("dtype")), "F32").split()
        entry["dtype"] = rng.choice((*other, *other, *other, "F16", "BF16", "BOOL", "U8", "F8_E4M3", "F4", "X"))
    elif action == 4:
        header[rng.choice((odd_string(rng), "maps", "clipped.", "clipped.x", "0.weight"))] = header.pop(key)
    elif action == 5:
        other = rng.choice(entries)
        header[key], header[other] = header[other], header[key]
    elif isinstance(metadata := header.get("__metadata__"), dict) and metadata:
        name = rng.choice(list(metadata))
        try:
            metadata[name] = json_text(rng, mutate_json(rng, json.loads(metadata[name])))
        except (ValueError, TypeError):
            metadata[name] = odd_string(rng)
    else:
        header["__metadata__"] = {"fei.labels": json_text(rng, mutate_json(rng, ["a", "b", "c"]))}
    return header


def _change_archive(rng: Random, content: bytes) -> bytes:
    """Change an entry of torch's archive, with checksums put right; perhaps compress what was stored."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = [(name, archive.read(name)) for name in archive.namelist()]
    index = rng.randrange(len(entries))
    name, data = entries[index]
    action = rng.randrange(6)
    if action <= 2:
        index = next(i for i, (name, _) in enumerate(entries) if name.endswith("data.pkl"))
        entries[index] = (entries[index][0], mutate_bytes(rng, entries[index][1], 3))
    elif action == 3:
        entries[index] = (name, rng.choice((mutate_bytes(rng, data, 2), b"", data * 1000, b"\0" * 10**7)))
    elif action == 4:
        del entries[index]
    else:
        entries[index] = (odd_string(rng)[:300] or "x", data)
    return archived(rng, entries)
