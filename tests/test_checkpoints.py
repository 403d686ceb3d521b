"""Weights as training scripts save them: found, unwrapped, and announced where they change the network."""

import copy
import json

import pytest
import torch
from commands import NETWORK, furnish
from commands import run as fei
from torch import nn

from fei import models
from fei.errors import ModelError
from fei.models.sources import import_torchvision


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(furnish(tmp_path, NETWORK + WRAPPED, "photo.png"))
    return tmp_path


WRAPPED = """

class Wrapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.module = net()
        self.input_size = 16

    def forward(self, x):
        return self.module(x)
"""


PLACES = ("state_dict", "model_state_dict", "model", "net")


def other(classes=3):
    """The network of net.py with weights of its own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        body = [nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 6, 3, padding=1), nn.ReLU()]
        return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, classes)).eval()


def prefixed(state, prefix):
    return {prefix + key: value for key, value in state.items()}


@pytest.mark.parametrize(
    "saved",
    [
        *(
            lambda state, key=key: {key: state, "epoch": 3}
            for key in ("state_dict", "model_state_dict", "model", "net")
        ),
        lambda state: {"model_ema": state, "optimizer": {"step": 1}},
        lambda state: prefixed(state, "module."),
        lambda state: {"state_dict": prefixed(state, "module._orig_mod.")},
        lambda state: {"state_dict": prefixed(state, "model.")},
        lambda state: {"model_ema": prefixed(state, "module.") | {"n_averaged": torch.tensor(7)}},
    ],
)
@pytest.mark.parametrize("ending", ["pt", "ckpt"])
def test_weights_are_found_where_scripts_put_them(place, saved, ending):
    network, x = other(), torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    torch.save(saved(network.state_dict()), f"w.{ending}")
    loaded = models.load(f"net.py:net:w.{ending}")
    assert torch.equal(loaded(x), network(x))
    assert loaded.remarks == ()


def test_what_wrappers_of_torch_write_is_read(place):
    network, x = other(), torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    averaged = torch.optim.swa_utils.AveragedModel(network)
    averaged.update_parameters(network)
    for wrapper in (nn.DataParallel(network), averaged):
        torch.save(wrapper.state_dict(), "w.pt")
        assert torch.equal(models.load("net.py:net:w.pt")(x), network(x)), type(wrapper)


def test_a_network_whose_own_names_begin_so_takes_its_weights(place):
    network, x = other(), torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    torch.save(prefixed(network.state_dict(), "module."), "w.pt")
    assert torch.equal(models.load("net.py:Wrapped:w.pt")(x), network(x))


def test_of_plain_and_averaged_weights_the_plain_are_taken_and_it_is_said(place, capsys):
    network, averaged = other(), other()
    for parameter in averaged.parameters():
        parameter.data *= 0.5
    torch.save({"model_ema": averaged.state_dict(), "model": network.state_dict()}, "w.pt")
    x = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    assert torch.equal(models.load("net.py:net:w.pt")(x), network(x))
    assert fei("explain", "photo.png", "--model", "net.py:net:w.pt", "--method", "gradcam") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "holds plain weights and averaged ones ('model_ema'); the plain ones ('model') are explained." in said


def test_a_head_of_another_size_is_announced_with_what_happens_to_labels(place, capsys):
    network = other(5)
    torch.save(network.state_dict(), "w.pt")
    assert fei("explain", "photo.png", "--model", "net.py:net:w.pt", "--method", "gradcam") == 0
    said = " ".join(capsys.readouterr().out.split())
    announced = "The weights in 'w.pt' are for 5 classes and the network for 3: its last layer was made to fit, and the"
    assert announced in said
    assert "--labels FILE" in said
    record = json.loads((place / "fei-out" / "photo.json").read_text(encoding="utf-8"))
    assert record["notes"][0].startswith(announced)
    (place / "names.txt").write_text("\n".join("vwxyz"), encoding="utf-8")
    assert models.load("net.py:net:w.pt?labels=names.txt").label(4) == "z"


def test_built_for_other_classes_is_announced_too(place):
    with torch.random.fork_rng(devices=[]):
        network = import_torchvision().models.squeezenet1_1(num_classes=7)
    torch.save({"state_dict": prefixed(network.state_dict(), "module.")}, "w.pth.tar")
    loaded = models.load("torchvision:squeezenet1_1:w.pth.tar")
    assert loaded.labels is None
    assert "for 7 classes and the network for 1000" in loaded.remarks[0]


def test_what_holds_no_weights_is_refused_and_names_what_is_there(place):
    torch.save({"epoch": 3, "optimizer": {"step": torch.ones(1), "lr": 1.0}}, "w.pt")
    with pytest.raises(ModelError, match="holds epoch, optimizer; a state dict, or one under the key state_dict,"):
        models.load("net.py:net:w.pt")
    mixed = copy.copy(other().state_dict())
    torch.save({"module.a": torch.ones(1), **mixed}, "w.pt")  # not all names have it: nothing is taken off
    with pytest.raises(ModelError, match="unexpected: module.a"):
        models.load("net.py:net:w.pt")
