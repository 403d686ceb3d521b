"""Evidence: what masks keep of a score by hand, against chance, and the silence where nothing speaks for a class."""

import pytest
import torch
from networks import pictures, small_cnn
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from test_focus import BLUE, RED, Colours, two_colours

import fei
from fei.core.evidence import Evidence, measure_evidence, silence
from fei.errors import DataError


def share_shown(batch, images):
    """A score that is the share of pixels of 1."""
    return batch[:, 0].flatten(1).mean(1)


def measured(alphas, image=None, fills=None):
    image = torch.ones(1, 1, 4, 4) if image is None else image
    return measure_evidence(share_shown, image, alphas, fills or [torch.zeros_like(image)], ["digest"], 0, 3)


def test_what_a_mask_keeps_by_hand():
    """Of an image of ones over zeros a mask keeps its area, and so does a random one."""
    alphas = torch.zeros(1, 2, 1, 4, 4)
    alphas[0, 0, 0, 0] = 1.0  # a quarter of the pixels
    alphas[0, 1] = 0.5  # a half, nowhere in particular
    found = measured(alphas)
    assert found.kept.tolist() == [[0.25, 0.5]]
    assert found.chance.tolist() == [[0.25, 0.5]]
    assert found.whole.tolist() == [1.0]
    assert found.gain.item() == 0
    assert found.found.item()  # a score of 1, of which half is kept
    faint = Evidence(found.kept / 100, found.chance / 100, found.whole / 100)
    assert not faint.found.item()  # nobody sees it, and chance keeps as much
    lost = Evidence(found.kept / 2, found.chance, found.whole)
    assert not lost.found.item()  # less than half is kept


def test_a_mask_on_what_counts_keeps_more_than_chance():
    image = torch.zeros(1, 1, 16, 16)
    image[..., :4, :4] = 1.0
    alphas = image[:, None].clone()
    found = measured(alphas, image)
    assert found.kept.item() == found.whole.item() == 1 / 16
    assert found.chance.item() < found.kept.item()
    assert found.found.item()  # the whole of a score of 1/16


def test_several_fills_are_averaged():
    alphas = torch.zeros(1, 1, 1, 4, 4)
    alphas[..., :2] = 1.0
    image = torch.ones(1, 1, 4, 4)
    found = measured(alphas, image, [torch.zeros_like(image), torch.full_like(image, 0.5)])
    assert found.kept.item() == pytest.approx((0.5 + 0.75) / 2)


def test_a_class_that_is_there_and_one_that_is_not():
    model, x = Colours().eval(), two_colours()
    there = fei.FEI(model, steps=5).explain(x, RED)
    assert there.evidence.found.item()
    assert there.evidence.whole.item() == pytest.approx(model(x).softmax(1)[0, RED].item())
    only_red = x.clone()
    only_red[:, 2] = 0.0
    absent = fei.FEI(model, steps=5).explain(only_red, BLUE).evidence
    assert absent.gain.item() < there.evidence.gain.item()


def test_it_is_the_same_whenever_it_is_weighed_and_can_be_left_out():
    model, x = small_cnn(), pictures(2)
    explainer = fei.FEI(model, steps=2)
    whole = explainer.explain(x)
    bare = explainer.explain(x, evidence=False)
    assert bare.evidence is None
    assert torch.equal(bare.maps, whole.maps)
    later = explainer.weigh(bare)
    for name, values in vars(whole.evidence).items():
        assert torch.equal(values, getattr(later, name))
    again = fei.methods.create("fei", steps=2).weigh(model, bare)  # type: ignore[attr-defined]
    assert torch.equal(again.kept, later.kept)


def test_a_callable_target_is_what_is_kept():
    model, x = small_cnn(), pictures(1)
    found = fei.FEI(model, steps=2).explain(x, lambda output: output[:, 0] - output[:, 1])
    expected = model(x)[0, 0] - model(x)[0, 1]
    assert found.evidence.whole.item() == pytest.approx(expected.item(), rel=1e-5)


def test_it_is_saved_with_the_explanation(tmp_path):
    found = fei.FEI(small_cnn(), steps=2).explain(pictures(1))
    loaded = fei.Explanation.load(found.save(tmp_path / "e.safetensors"))
    assert isinstance(loaded.evidence, Evidence)
    for name, values in vars(found.evidence).items():
        assert torch.equal(values, getattr(loaded.evidence, name))
    bare = fei.FEI(small_cnn(), steps=2).explain(pictures(1), evidence=False)
    assert fei.Explanation.load(bare.save(tmp_path / "e.safetensors")).evidence is None


def test_a_damaged_file_is_one_sentence(tmp_path):
    path = tmp_path / "e.safetensors"
    found = fei.FEI(small_cnn(), steps=2).explain(pictures(1))
    found.save(path)
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    for change in ({"evidence.kept": torch.zeros(3)}, {"evidence.more": torch.zeros(1)}):
        save_file(tensors | change, path, metadata)
        with pytest.raises(DataError, match="is not an explanation file, or is damaged"):
            fei.Explanation.load(path)


def test_the_sentence():
    assert silence("golden retriever", 0.0) == "nothing in this picture speaks for 'golden retriever' (0.0%)"
