"""The result: saved whole or not at all, read back the same, refused when it is not one."""

import json
import os
import re

import pytest
import torch
from networks import pictures, small_cnn
from safetensors.torch import save_file

import fei
from fei.errors import DataError, InputError
from fei.service.record import summarize_trace


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
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", broken)
    with pytest.raises(DataError, match=r"The explanation cannot be written to .* \(No space left on device\)"):
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
    with pytest.raises(DataError, match="has schema 99, beyond 1, the last one known here; upgrade fei"):
        fei.Explanation.load(tmp_path / "new")
    cut = result.save(tmp_path / "cut")
    cut.write_bytes(cut.read_bytes()[:-100])
    with pytest.raises(DataError, match="is not an explanation file, or is damaged"):
        fei.Explanation.load(cut)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"maps": torch.zeros(2, 1, 3, 3)}, "'maps' has the shape (2, 1, 3, 3)"),
        ({"target": torch.zeros(2)}, "'target' has the shape (2,) and the type torch.float32"),
        ({"trace.phi": torch.zeros(0)}, "is damaged"),
        ({"inputs": torch.zeros(())}, "is damaged"),
        ({"reference": torch.zeros(2, 3)}, "'reference' has the shape (2, 3)"),
        ({"clipped.x": torch.zeros(7)}, "'clipped.x' has the shape (7,)"),
        ({"config": "[" * 100_000}, "is damaged"),
        ({"config": "[]"}, "is damaged"),
        (
            {"config": '{"settings": {"constraint": "penalty", "quantiles": [0.5, "x"]}}'},
            "the quantiles are [0.5, 'x']",
        ),
        (
            {"config": '{"settings": {"constraint": [], "objective": "insertion", "quantiles": [0.5, 0.6]}}'},
            "the constraint is []",
        ),
    ],
)
def test_parts_that_do_not_belong_together_are_refused(result, tmp_path, change, told):
    from safetensors import safe_open

    path = result.save(tmp_path / "cat.safetensors")
    with safe_open(path, framework="pt") as file:
        metadata, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    metadata |= {key: value for key, value in change.items() if key == "config"}
    tensors |= {key: value for key, value in change.items() if key != "config"}
    save_file(tensors, path, metadata)
    with pytest.raises(DataError, match=re.escape(told)):
        fei.Explanation.load(path)


@pytest.mark.parametrize("constraint", ["l1", "none"])
def test_a_mask_without_an_area_is_saved_and_recorded(tmp_path, constraint):
    made = fei.FEI(small_cnn(), steps=2, constraint=constraint, quantiles=[0.3, 0.6]).explain(pictures())
    (mask,) = summarize_trace(fei.Explanation.load(made.save(tmp_path / "one.safetensors")))["masks"]
    assert (mask["quantile"], mask["area_asked"]) == (None, None)
    assert mask["area_got"] == float(made.alphas[0].mean())
