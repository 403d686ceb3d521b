"""The result: saved whole or not at all, read back the same, refused when it is not one."""

import json
import os

import pytest
import torch
from networks import pictures, small_cnn
from safetensors.torch import save_file

import fei
from fei.errors import DataError, InputError


@pytest.fixture(scope="module")
def result():
    return fei.FEI(small_cnn(), steps=3, quantiles=[0.3, 0.6], early_stop=0.01).explain(pictures())


def test_round_trip(result, tmp_path):
    path = result.save(tmp_path / "cat.safetensors")
    loaded = fei.Explanation.load(path)
    for field in ("maps", "alphas", "target", "inputs", "reference"):
        assert torch.equal(getattr(loaded, field), getattr(result, field))
    for field in ("phi", "area", "stopped"):
        assert torch.equal(getattr(loaded.trace, field), getattr(result.trace, field))
    assert loaded.trace.clipped.keys() == result.trace.clipped.keys()
    assert loaded.config == json.loads(json.dumps(result.config))
    assert torch.equal(loaded.perturbed(), result.perturbed())
    assert os.listdir(tmp_path) == ["cat.safetensors"]


def test_a_failed_write_leaves_the_old_file(result, tmp_path, monkeypatch):
    path = result.save(tmp_path / "cat.safetensors")
    before = path.read_bytes()

    def broken(*args):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", broken)
    with pytest.raises(OSError, match="disk full"):
        result.save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["cat.safetensors"]


def test_is_frozen(result):
    with pytest.raises(AttributeError):
        result.maps = None


def test_refusals(result, tmp_path):
    with pytest.raises(InputError, match="no explanation file at"):
        fei.Explanation.load(tmp_path / "missing")
    with pytest.raises(InputError, match="does not exist; make it first"):
        result.save(tmp_path / "nowhere" / "cat.safetensors")
    (tmp_path / "junk").write_bytes(b"\x80\x04not safetensors")
    with pytest.raises(DataError, match="is not an explanation file, or is damaged"):
        fei.Explanation.load(tmp_path / "junk")
    save_file({"maps": torch.zeros(1)}, tmp_path / "other")
    with pytest.raises(DataError, match="is not an explanation file, or is damaged"):
        fei.Explanation.load(tmp_path / "other")
    save_file({"maps": torch.zeros(1)}, tmp_path / "new", {"schema": "99", "config": "{}"})
    with pytest.raises(DataError, match="has schema 99, this version reads up to 1; upgrade fei"):
        fei.Explanation.load(tmp_path / "new")
    cut = result.save(tmp_path / "cut")
    cut.write_bytes(cut.read_bytes()[:-100])
    with pytest.raises(DataError, match="is not an explanation file, or is damaged"):
        fei.Explanation.load(cut)
