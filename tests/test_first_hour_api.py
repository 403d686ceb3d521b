"""The Python interface as somebody meets it who has read one page: no stumbling."""

import re
import subprocess
import sys

import matplotlib
import numpy as np
import pytest
import torch
from commands import NETWORK, furnish
from commands import run as cli
from networks import fingerprint, pictures, small_cnn

import fei
from fei.errors import InputError
from fei.methods import as_method
from fei.models import Classifier
from fei.service import collect

pytestmark = pytest.mark.slow

LABELS = ["tench", "tabby, cat", "fox", "dog"]


@pytest.fixture
def named():
    return Classifier(small_cnn(), input_size=16, labels=LABELS)


def test_compat_is_there_after_importing_fei_alone():
    code = "import fei; print(fei.compat.quantus.explain_func.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, encoding="utf-8")
    assert done.stdout.strip() == "explain_func"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = fei.compat.nothing


def test_a_classifier_has_the_mode_of_its_network():
    assert not Classifier(small_cnn()).training
    assert Classifier(small_cnn().train()).training
    fei.FEI(Classifier(small_cnn()), steps=1).attribute(pictures(1, size=(16, 16)))  # is not refused


def test_targets_by_name(named):
    x = pictures(2, size=(16, 16))
    for method in ("gradcam", "fei-vm"):
        made = fei.methods.create(method, **({"steps": 1} if method == "fei-vm" else {}))
        assert torch.equal(made(named, x, "tabby"), made(named, x, 1))
        assert torch.equal(made(named, x, ["fox", 1]), made(named, x, [2, 1]))
    explainer = fei.FEI(named, "vm", steps=1)
    assert explainer.explain(x, target=["dog", "fox"]).target.tolist() == [3, 2]
    maps = fei.methods.create("gradcam")(named, x, 3)
    by_name, by_index = (fei.metrics.insertion(named, x, maps, target) for target in ("dog", 3))
    assert torch.equal(by_name.auc, by_index.auc)
    stable = fei.metrics.stability(named, "gradcam", x, target="dog")
    assert torch.equal(stable.correlation, fei.metrics.stability(named, "gradcam", x, target=3).correlation)
    assert collect(named, x, ["gradcam"], target="dog")[0].target == 3
    with pytest.raises(InputError, match="No class is called 'unicorn'"):
        explainer.attribute(x, target="unicorn")
    with pytest.raises(InputError, match="has no names of classes; give an index"):
        fei.FEI(small_cnn(), steps=1).attribute(x, target="dog")


def test_results_say_shortly_what_they_are(named):
    x = pictures(2, size=(16, 16))
    found = fei.FEI(named, "vm", steps=1, quantiles=(0.2, 0.8)).explain(x, target=[1, 2])
    assert repr(found).startswith(
        "Explanation(2 image(s) of 16 × 16, class 1, 2, 2 mask(s) each, vm, 1 steps, evidence"
    )
    assert repr(collect(named, x[:1], ["gradcam", "random"], target=2)) == (
        "Comparison(Shown('image 1', 'fox', gradcam, random))"
    )


def test_show_returns_a_figure_and_opens_a_window_where_there_is_a_desktop(named, monkeypatch):
    found = fei.FEI(named, "vm", steps=1).explain(pictures(1, size=(16, 16)))
    figure = found.show()
    assert isinstance(figure, matplotlib.figure.Figure)
    assert figure._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]
    from matplotlib import pyplot

    windows = []
    monkeypatch.setattr(pyplot, "show", lambda: windows.extend(map(pyplot.figure, pyplot.get_fignums())))
    monkeypatch.setattr(matplotlib, "get_backend", lambda: "TkAgg")
    with matplotlib.rc_context({"backend": "agg"}):
        shown = found.show()
    assert windows == [shown]
    pyplot.close("all")


def test_a_method_from_a_file(tmp_path, monkeypatch, named):
    (tmp_path / "mine.py").write_text(
        "def brightness(model, inputs, target, power=1):\n    return inputs.mean(1) ** power\n", encoding="utf-8"
    )
    monkeypatch.chdir(furnish(tmp_path, NETWORK, "photo.png"))
    x = pictures(2, size=(16, 16))
    assert torch.allclose(as_method("mine.py:brightness", power=2)(named, x), x.mean(1, keepdim=True) ** 2)
    words = ["explain", "photo.png", "--model", "net.py:net", "--method", "mine.py:brightness", "-o", "power=2"]
    assert cli(*words) == 0
    with pytest.raises(InputError, match="There is no method file 'other.py'"):
        as_method("other.py:brightness")
    with pytest.raises(InputError, match="has no 'brightnes'"):
        as_method("mine.py:brightnes")


class StandIn:
    """The documented interface of pytorch_grad_cam: Grad-CAM, its map divided by its maximum."""

    def __init__(self, model, target_layers, reshape_transform=None):
        self.model, (self.layer,) = model.eval(), target_layers

    def __call__(self, input_tensor, targets, aug_smooth=False, eigen_smooth=False):
        kept = []
        handle = self.layer.register_forward_hook(lambda *call: kept.append(call[2]))
        outputs = self.model(input_tensor)
        handle.remove()
        score = sum(target(row) for target, row in zip(targets, outputs, strict=True))
        (gradient,) = torch.autograd.grad(score, kept[0])
        cam = (gradient.mean((2, 3), keepdim=True) * kept[0]).sum(1).relu()
        return (cam / cam.max()).detach().numpy()


@pytest.mark.parametrize("options", [{}, {"target_layers": ["5"]}, {"target_layers": "5", "aug_smooth": False}])
def test_classes_of_pytorch_grad_cam_by_their_interface(options):
    model, x = small_cnn(), pictures(2)
    before = fingerprint(model)
    maps = as_method(StandIn, **options)(model, x, [1, 2])
    ours = fei.methods.create("gradcam", layer="5", relu=True)(model, x, [1, 2])
    torch.testing.assert_close(maps / maps.amax((2, 3), keepdim=True), ours / ours.amax((2, 3), keepdim=True))
    assert fingerprint(model) == before
    with pytest.raises(InputError, match="has no option 'power'"):
        as_method(StandIn, power=2)
    with pytest.raises(InputError, match="given 2 layers; name one"):
        as_method(StandIn, target_layers=["2", "5"])(model, x, 1)


@pytest.mark.parametrize("name", ["GradCAM", "HiResCAM", "ScoreCAM"])
def test_the_real_ones(name):
    pytest.importorskip("ttach", reason="grad-cam is not installed")
    model, x = Classifier(small_cnn(), input_size=16), pictures(1, size=(16, 16))
    maps = as_method(f"pytorch_grad_cam:{name}")(model, x, 1)
    assert maps.shape == (1, 1, 16, 16)
    assert float(maps.max()) <= 1
    if name == "GradCAM":
        ours = fei.methods.create("gradcam", relu=True)(model, x, 1).flatten()
        assert np.corrcoef(maps.flatten(), ours)[0, 1] > 0.99  # it enlarges maps by another rule


def test_images_that_are_not_what_the_network_takes_are_doubted(named):
    x = pictures(1, size=(16, 16))
    for wrong in (255 * x, (x - 0.45) / 0.225):
        with pytest.warns(UserWarning, match="this network takes 0 to 1; give them as its preprocess does"):
            fei.methods.create("gradcam")(named, wrong)
    with pytest.warns(UserWarning, match="this network takes 0 to 1"):
        fei.FEI(named, steps=1).attribute(255 * x)
    noise = 0.1 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    fei.methods.create("gradcam")(named, x + noise)  # as smoothing does; a warning would be an error
    fei.methods.create("gradcam")(named.network, 255 * x)  # which says nothing of its pixels


def test_scores_have_a_short_repr(named):
    x = pictures(2, size=(16, 16))
    maps = fei.methods.create("gradcam")(named, x)

    def told(**options):
        return re.sub(r"-?\d\.\d{3}\b", "N", repr(fei.metrics.evaluate(named, x, maps, **options)))

    one = "Curve(2 image(s), mean N, {} is better, held-out/1)"
    curves = f"{one.format('higher')}, {one.format('lower')}"
    assert told() == f"Evaluation({curves}, {len(named.feature_layers)} layer(s))"
    assert told(layers=[]) == f"Evaluation({curves})"
