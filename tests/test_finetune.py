"""Training on classes of the user's own: the regression, the new layer, the checkpoint, the command."""

import json
import shutil

import numpy as np
import pytest
import torch
from commands import run as command
from networks import fingerprint
from PIL import Image
from safetensors import safe_open
from sklearn.linear_model import LogisticRegression
from torch import nn

import fei
from fei.errors import InputError, ModelError
from fei.models import Classifier
from fei.models.finetune import _whole, finetune, measure, save
from fei.models.finetune._data import hold_out, load_sets
from fei.models.finetune._head import fit_logistic

pytestmark = pytest.mark.slow

NETWORK = """
import torch
from torch import nn


class Flat(nn.Module):
    def forward(self, x):
        return x.flatten(2).amax(2)


def net(bias=True, head=None, classes=5):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        body = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(4)]
        pool = [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        network = nn.Sequential(*body, *(head() if head else [*pool, nn.Linear(8, classes, bias)]))
    network.input_size = 16
    return network


def no_bias():
    return net(bias=False)


def conv():
    return net(head=lambda: [nn.Conv2d(8, 5, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()])


def maximum():
    return net(head=lambda: [nn.Conv2d(8, 5, 1), Flat()])


def headless():
    return net(head=lambda: [nn.AdaptiveAvgPool2d(1), nn.Flatten()])
"""

COLOURS = {"blue": (40, 60, 200), "green": (40, 190, 60), "red": (200, 50, 40)}


def paint(file, colour, rng):
    noise = rng.integers(-30, 30, (20, 24, 3))
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8)).save(file)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a network, and pictures of three colours: six a colour, two a colour, and in CUB's layout."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NETWORK, encoding="utf-8")
    rng = np.random.default_rng(0)
    for name, colour in COLOURS.items():
        for number in range(6):
            paint(tmp_path / "six" / name / f"{number}.png", colour, rng)
        for number in range(2):
            paint(tmp_path / "two" / name / f"{number}.png", colour, rng)
    lists = {name: [] for name in ("images", "image_class_labels", "bounding_boxes", "train_test_split")}
    for number in range(9):
        colour = list(COLOURS)[number % 3]
        paint(tmp_path / "cub" / "images" / colour / f"{number}.png", COLOURS[colour], rng)
        for name, value in zip(
            lists, (f"{colour}/{number}.png", number % 3 + 1, "1 1 9 9", int(number < 3)), strict=True
        ):
            lists[name].append(f"{number + 1} {value}\n")
    lists["classes"] = [f"{i} {i:03}.{name}\n" for i, name in enumerate([*COLOURS, "Great_Auk"], 1)]
    for name, lines in lists.items():
        (tmp_path / "cub" / f"{name}.txt").write_text("".join(lines), encoding="utf-8")
    return tmp_path


def run(*words):
    return command("finetune", *words)


# --- the regression ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("weight_decay", [0.1, 1e-3])
def test_regression_is_scikit_learns(bias, weight_decay):
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(4, 6))
    y = rng.integers(0, 4, 120)
    x = centres[y] + rng.normal(size=(120, 6))
    theirs = LogisticRegression(C=1 / (weight_decay * len(y)), fit_intercept=bias, tol=1e-9, max_iter=10_000).fit(x, y)
    ours = fit_logistic(torch.tensor(x), torch.tensor(y), 4, weight_decay, bias=bias)
    np.testing.assert_allclose(ours.weight, theirs.coef_, atol=1e-3)
    np.testing.assert_allclose(ours.bias if bias else np.zeros(4), theirs.intercept_, atol=1e-3)
    assert ours.steps < 500
    assert not ours.interrupted


def test_features_are_standardized_and_the_weights_are_for_those_as_given():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(30, 5, generator=generator, dtype=torch.float64)
    y = torch.arange(30) % 3
    plain = fit_logistic(x, y, 3, 0.01, standardize=True)
    moved = fit_logistic(100 * x + 7, y, 3, 0.01, standardize=True)
    torch.testing.assert_close(plain.logits(x), moved.logits(100 * x + 7), atol=1e-4, rtol=0)
    standard = (x - x.mean(0)) / (x - x.mean(0)).square().mean().sqrt()
    torch.testing.assert_close(plain.logits(x), fit_logistic(standard, y, 3, 0.01).logits(standard), atol=1e-4, rtol=0)
    # what makes a class without an image improbable for whatever features
    torch.testing.assert_close(plain.logits(1e3 * x).mean(1), torch.zeros(30, dtype=torch.float64), atol=1e-8, rtol=0)


def test_interrupted_regression_keeps_the_best_so_far():
    x, y = torch.eye(3).repeat(4, 1), torch.arange(12) % 3
    left = iter(range(4))

    def step():
        if next(left, None) is None:
            raise KeyboardInterrupt

    fit = fit_logistic(x, y, 3, 1e-3, on_step=step)
    assert fit.interrupted
    assert (fit.logits(x).argmax(1) == y).all()


# --- the new layer ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factory", ["net", "no_bias", "conv"])
def test_head_is_trained_on_a_copy(place, factory):
    classifier = fei.models.load(f"net.py:{factory}")
    before, state = fingerprint(classifier), torch.get_rng_state()
    train, test = load_sets("cub:cub", None, 0)
    assert (len(train), len(test)) == (3, 6)
    result = finetune(classifier, train)
    assert fingerprint(classifier) == before
    assert torch.equal(torch.get_rng_state(), state)
    assert result.accuracy == 1
    assert measure(result.classifier, test).accuracy == 1
    assert result.classifier.labels == ["blue", "green", "red", "Great Auk"]
    assert (result.images, result.validation_images, result.trained_classes) == (3, 0, 3)
    assert not result.classifier.training
    probabilities = result.classifier(torch.rand(20, 3, 16, 16)).softmax(1)
    assert (probabilities[:, 3] < (1e-12 if factory != "no_bias" else 1e-3)).all()


def test_relu_after_the_layer_changes_nothing(place):
    """The network's logits are the regression's, but for a constant that all classes share."""
    data = fei.data.load("imagefolder:six")
    classifier = fei.models.load("net.py:conv")
    x = torch.stack([classifier.preprocess(item.path) for item in data])
    with torch.no_grad():
        features = classifier.network[:4](x).mean((2, 3))
    fit = fit_logistic(features, torch.tensor([item.label for item in data]), 3, 0.01, standardize=True)
    logits = finetune(classifier, data, weight_decay=0.01).classifier(x).double()
    torch.testing.assert_close(logits.softmax(1), fit.logits(features).softmax(1), atol=1e-4, rtol=0)


def test_weight_decay_is_chosen_where_there_are_enough_images(place):
    classifier = fei.models.load("net.py:net")
    result = finetune(classifier, fei.data.load("imagefolder:six"))
    assert result.validation_images == 3
    assert result.weight_decay in (0.1, 0.01, 0.001, 0.0001)
    assert finetune(classifier, fei.data.load("imagefolder:two")).weight_decay == 0.001


def test_a_layer_that_cannot_be_trained_alone_is_refused_but_for_the_whole(place):
    classifier, data = fei.models.load("net.py:maximum"), fei.data.load("imagefolder:two")
    with pytest.raises(ModelError, match="by more than averaging over positions"):
        finetune(classifier, data)
    result = finetune(classifier, data, whole=True, epochs=15, lr=1e-2)
    assert result.accuracy == 1


def test_head_is_found_or_refused(place):
    with pytest.raises(ModelError, match="does not end in one linear layer"):
        finetune(fei.models.load("net.py:headless"), fei.data.load("imagefolder:two"))


# --- the whole network ------------------------------------------------------------------------------------------------


def test_whole_network_is_trained_and_batchnorm_keeps_its_statistics(place):
    classifier = fei.models.load("net.py:net")
    before, state = fingerprint(classifier), torch.get_rng_state()
    ticks = []
    result = finetune(
        classifier,
        fei.data.load("imagefolder:six"),
        whole=True,
        epochs=3,
        lr=1e-3,
        progress=lambda done, total: ticks.append((done, total)),
    )
    assert fingerprint(classifier) == before
    assert torch.equal(torch.get_rng_state(), state)
    assert result.epochs == 3
    assert (3 * 15 + 4 * 3, 3 * 15 + 4 * 3) in ticks
    old, new = classifier.state_dict(), result.classifier.state_dict()
    for name in old:
        assert torch.equal(old[name], new[name]) == ("running" in name or "num_batches" in name), name
    again = finetune(classifier, fei.data.load("imagefolder:six"), whole=True, epochs=3, lr=1e-3)
    for name, tensor in again.classifier.state_dict().items():
        torch.testing.assert_close(tensor, new[name])


def test_what_ends_the_training_of_the_whole_network_is_not_trained_on(place):
    """Another colour on the images held out changes nothing but when it ends."""
    data = fei.data.load("imagefolder:six")
    classifier = fei.models.load("net.py:net")
    options = {"whole": True, "epochs": 1, "lr": 1e-9, "weight_decay": 1e-2}
    plain = finetune(classifier, data, **options).classifier.state_dict()
    held = hold_out(data, 0)[1]
    for item in held:
        paint(item.path, (128, 128, 128), np.random.default_rng(1))
    painted = finetune(classifier, data, **options).classifier.state_dict()
    for name, tensor in plain.items():
        torch.testing.assert_close(tensor, painted[name], atol=1e-6, rtol=1e-4)


def test_interrupted_whole_training_keeps_the_best_so_far(place):
    classifier, data = fei.models.load("net.py:net"), fei.data.load("imagefolder:two")
    full = finetune(classifier, data, whole=True, epochs=2, lr=1e-3, weight_decay=1e-3)

    def stop(done, total):  # 6 images an epoch, 5 epochs: in the middle of the third
        if (done, total) == (14, 30):
            raise KeyboardInterrupt

    cut = finetune(classifier, data, whole=True, epochs=5, lr=1e-3, weight_decay=1e-3, progress=stop)
    assert (cut.interrupted, cut.epochs, cut.best_epoch, cut.accuracy) == (True, 2, 2, None)
    for name, tensor in cut.classifier.state_dict().items():
        torch.testing.assert_close(tensor, full.classifier.state_dict()[name])
    assert not any(weight.grad is not None for weight in cut.classifier.parameters())


# --- the data ---------------------------------------------------------------------------------------------------------


def test_a_fifth_of_each_class_is_held_out(place):
    data = fei.data.load("imagefolder:six")
    train, held = hold_out(data, 0)
    assert [item.label for item in held] == [0, 1, 2]
    assert {item.id for item in train} | {item.id for item in held} == {item.id for item in data}
    assert hold_out(data, 0) == (train, held)
    assert hold_out(data, 1)[1] != held
    assert hold_out(fei.data.load("imagefolder:two"), 0)[1] is None


def test_test_labels_count_the_training_classes(place):
    shutil.rmtree(place / "two" / "blue")
    train, test = load_sets("imagefolder:six", "imagefolder:two", 0)
    assert [item.label for item in test] == [1, 1, 2, 2]
    assert test.classes == train.classes


def test_classes_without_names_are_their_indices(place):
    (place / "t.csv").write_text("path,label\nsix/blue/0.png,0\nsix/red/0.png,2\n", encoding="utf-8")
    result = finetune(fei.models.load("net.py:net"), fei.data.load("csv:t.csv"))
    assert result.classifier.labels == ["0", "1", "2"]
    assert result.trained_classes == 2


# --- the command ------------------------------------------------------------------------------------------------------


def test_command_writes_a_checkpoint_that_loads(place, capsys):
    assert run("--model", "net.py:net", "--data", "cub:cub", "--out", "made/birds.safetensors") == 0
    printed = capsys.readouterr().out
    assert "100.0% of 3 images right" in printed
    assert "100.0% of 6 images right; 33.3% by chance" in printed
    assert "4, of which 1 have no image" in printed
    assert "fei explain cub/images/blue/3.png --model net.py:net:made/birds.safetensors" in printed
    loaded = fei.models.load("net.py:net:made/birds.safetensors")
    assert loaded.labels == ["blue", "green", "red", "Great Auk"]
    trained = finetune(fei.models.load("net.py:net"), fei.data.load("cub:cub@train")).classifier
    x = torch.rand(4, 3, 16, 16)
    torch.testing.assert_close(loaded(x), trained(x))
    with safe_open(place / "made" / "birds.safetensors", "pt") as file:
        metadata = file.metadata()
    assert metadata["fei.spec"] == "net.py:net"
    report = json.loads(metadata["fei.report"])
    assert report["accuracy"] == {"train": 1.0, "test": 1.0}
    assert report["images"] == {"train": 3, "validation": 0, "test": 6}
    assert report["versions"]["torch"] == str(torch.__version__)
    assert [path.name for path in (place / "made").iterdir()] == ["birds.safetensors"]


def test_a_finetuned_network_can_be_finetuned_again(place, capsys):
    assert run("--model", "net.py:net", "--data", "cub:cub", "--out", "a.safetensors") == 0
    capsys.readouterr()
    words = ["--model", "net.py:net:a.safetensors", "--data", "imagefolder:six", "--out", "a.safetensors", "--whole"]
    assert run(*words, "--epochs", 1, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["spec"] == "net.py:net:a.safetensors"
    assert document["test"] == "a held-out fifth"
    assert document["images"] == {"train": 15, "validation": 3, "test": 3}
    assert document["epochs"] == 1
    assert fei.models.load("net.py:net:a.safetensors").labels == ["blue", "green", "red"]


def test_damaged_images_are_named_and_passed_over(place, capsys):
    (place / "two" / "red" / "0.png").write_bytes(b"\x89PNG no more")
    assert run("--model", "net.py:net", "--data", "imagefolder:two") == 0
    streams = capsys.readouterr()
    assert "1 images could not be read" in streams.err
    assert "two/red/0.png" in streams.err
    assert "on 5 images" in streams.out
    assert "none; each class needs 5 images" in streams.out
    (place / "two" / "red" / "1.png").write_bytes(b"")
    (place / "two" / "blue" / "0.png").write_bytes(b"")
    (place / "two" / "blue" / "1.png").write_bytes(b"")
    assert run("--model", "net.py:net", "--data", "imagefolder:two") == 1
    assert "images of one class ('green'); two classes or more are needed." in capsys.readouterr().err


def test_a_test_set_that_cannot_be_read_does_not_lose_the_training(place, capsys):
    for file in (place / "two").rglob("*.png"):
        file.write_bytes(b"")
    words = ["--model", "net.py:net", "--data", "imagefolder:six", "--test", "imagefolder:two"]
    assert run(*words, "--out", "a.safetensors") == 0
    streams = capsys.readouterr()
    assert "None of the 6 images" in streams.err
    assert "not finished" in streams.out
    assert (place / "a.safetensors").is_file()


def test_ctrl_c_keeps_the_best_so_far(place, capsys, monkeypatch):
    epoch, calls = _whole._epoch, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return epoch(*arguments)

    monkeypatch.setattr(_whole, "_epoch", interrupted)
    words = ["--model", "net.py:net", "--data", "imagefolder:two", "--test", "imagefolder:six", "--whole"]
    assert run(*words, "--out", "a.safetensors") == 0
    printed, remarks = capsys.readouterr()
    assert "the last layer alone is often better" in remarks
    assert "Interrupted; the best weights so far are kept." in printed
    assert "best in epoch 1 of 1" in printed
    assert "not finished" in printed
    assert fei.models.load("net.py:net:a.safetensors").labels == list(COLOURS)


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--data", "two"], 2, "The data set 'two' has no labels"),
        (["--data", "imagefolder:nowhere"], 2, "The folder 'nowhere' is not there"),
        (["--data", "csv:one.csv"], 1, "has images of one class ('blue'); two classes or more are needed."),
        (["--data", "csv:far.csv"], 1, "has a label 999999999; give labels below 100,000"),
        (["--data", "imagefolder:two", "--test", "two"], 2, "The data set 'two' has no labels"),
        (
            ["--data", "imagefolder:two", "--test", "imagefolder:two"],
            2,
            "is trained on 6 of the 6 images of 'imag",
        ),
        (["--data", "imagefolder:two", "--test", "csv:far.csv"], 2, "has indices alone"),
        (["--data", "imagefolder:two", "--test", "cub:cub"], 2, "images"),
        (["--data", "csv:named.csv", "--test", "imagefolder:six"], 2, "has classes that 'csv:named.csv' has not (red)"),
        (["--data", "imagefolder:two", "--out", "a.pt"], 2, "ends in .safetensors"),
        (["--data", "imagefolder:two", "--out", "a:b.safetensors"], 2, "without a colon"),
        (["--data", "imagefolder:two", "--lr", "0.1"], 2, "`lr` is the step of the training of the whole network"),
        (["--data", "imagefolder:two", "--lr", "0", "--whole"], 2, "`lr` is 0.0; give a number above zero"),
        (["--data", "imagefolder:two", "--weight-decay", "-1"], 2, "`weight_decay` is -1.0; give a number above zero"),
        (["--data", "imagefolder:two", "--epochs", "0"], 2, "--epochs"),
        (["--data", "imagefolder:two", "--seed", 2**70], 2, "give a whole number of at most 64 bits"),
        (["--data", "imagefolder:two", "--device", "tpu"], 2, "Unknown device 'tpu'"),
    ],
)
def test_wrong_words(place, capsys, words, code, text):
    (place / "one.csv").write_text("path,label\nsix/blue/0.png,blue\nsix/blue/1.png,blue\n", encoding="utf-8")
    (place / "far.csv").write_text("path,label\nsix/blue/0.png,0\nsix/red/0.png,999999999\n", encoding="utf-8")
    (place / "named.csv").write_text("path,label\ntwo/blue/0.png,blue\ntwo/green/0.png,green\n", encoding="utf-8")
    if words[-1] == "cub:cub":
        (place / "cub" / "classes.txt").write_text("1 001.blue\n2 002.green\n3 003.violet\n", encoding="utf-8")
        text = "has classes that 'imagefolder:two' has not (violet)"
    assert run("--model", "net.py:net", *words) == code
    assert text in capsys.readouterr().err
    assert not list(place.rglob("*.safetensors"))


def test_wrong_objects(place):
    data = fei.data.load("imagefolder:two")
    classifier = fei.models.load("net.py:net")
    with pytest.raises(InputError, match="The network is a Sequential; give a Classifier"):
        finetune(classifier.network, data)
    with pytest.raises(InputError, match="in training mode"):
        measure(classifier.train(), data)
    with pytest.raises(InputError, match="ends in .safetensors"):
        save(classifier, place / "a.pt", spec="", report={})
    with pytest.raises(InputError, match="folder .* for the weights does not exist; make it first"):
        save(classifier, place / "nowhere" / "a.safetensors", spec="", report={})
    for parameter in classifier.parameters():
        nn.init.constant_(parameter, torch.nan)
    with pytest.raises(ModelError, match="NaN or infinite"):
        finetune(classifier, data)


# --- real networks ----------------------------------------------------------------------------------------------------


@pytest.mark.needs_assets
def test_resnet50_learns_twenty_birds_from_one_photograph_each(assets):
    train, test = load_sets(f"cub:{assets / 'cub'}", None, 0)
    result = finetune(fei.models.load(f"{assets / 'zoo.py'}:resnet50"), train)
    assert (result.images, result.trained_classes, len(result.classifier.labels)) == (20, 20, 200)
    score = measure(result.classifier, test[::8])
    assert score.images == 10
    assert score.accuracy >= 0.4  # .05 by chance


@pytest.mark.needs_assets
def test_squeezenet_whose_last_layer_is_a_convolution(assets, squeezenet: Classifier, tmp_path):
    train, test = load_sets(f"cub:{assets / 'cub'}", None, 0)
    before = fingerprint(squeezenet)
    result = finetune(squeezenet, train)
    assert fingerprint(squeezenet) == before
    assert result.head == "network.net.classifier.1"
    assert measure(result.classifier, test[::2]).accuracy >= 0.3  # .05 by chance
    save(result.classifier, tmp_path / "birds.safetensors", spec="", report={})
    loaded = fei.models.load(f"{assets / 'zoo.py'}:squeezenet:{tmp_path / 'birds.safetensors'}")
    x = squeezenet.preprocess(test[0].path)[None]
    torch.testing.assert_close(loaded(x), result.classifier(x))
    assert loaded.labels == result.classifier.labels
