"""What docs/beyond-one-label.md tells to type, on small networks that are trained here."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from commands import run as cli
from PIL import Image
from torch import nn
from torch.nn import functional as F

import fei
from fei.errors import InputError, ModelError

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[1] / "docs" / "beyond-one-label.md"
SIDE, CELL = 24, 8
RED, GREEN = 1, 2


def scenes(count, seed):
    """Grey noise with a red and a green square, each in a cell of its own; and the cells, by row and column."""
    generator = torch.Generator().manual_seed(seed)
    images = 0.4 + 0.1 * torch.rand(count, 3, SIDE, SIDE, generator=generator)
    cells = torch.stack([torch.randperm(9, generator=generator)[:2] for _ in range(count)])
    for image, pair in zip(images, cells.tolist(), strict=True):
        for channel, cell in enumerate(pair):
            top, left = CELL * (cell // 3), CELL * (cell % 3)
            image[channel, top : top + CELL, left : left + CELL] += 0.5
    return images, cells


def inside(cell):
    mask = torch.zeros(SIDE, SIDE, dtype=torch.bool)
    top, left = CELL * (int(cell) // 3), CELL * (int(cell) % 3)
    mask[top : top + CELL, left : left + CELL] = True
    return mask


def points_at(maps, cell, other):
    """Whether a map is higher in one cell than in another, on average."""
    return bool(maps[0, 0][inside(cell)].mean() > maps[0, 0][inside(other)].mean())


def body():
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())


class Segmenter(nn.Module):
    """As torchvision's: a dictionary with a map of logits for each class."""

    def __init__(self):
        super().__init__()
        self.body, self.head = body(), nn.Conv2d(8, 3, 1)

    def forward(self, x):
        return {"out": self.head(self.body(x))}


class Detector(nn.Module):
    """As torchvision's: for each image the boxes that were found with their labels and scores, the best first."""

    def __init__(self):
        super().__init__()
        self.body, self.head = body(), nn.Conv2d(8, 2, CELL, stride=CELL)

    def scores(self, x):
        return self.head(self.body(x)).flatten(2).transpose(1, 2).sigmoid()  # (N, cells, classes)

    def forward(self, x):
        found = []
        for scores in self.scores(x):
            cells, labels = (scores > 0.3).nonzero().T
            order = scores[cells, labels].argsort(descending=True, stable=True)
            cells, labels = cells[order], labels[order]
            left, top = CELL * (cells % 3), CELL * (cells // 3)
            boxes = torch.stack([left, top, left + CELL, top + CELL], 1).float()
            found.append({"boxes": boxes, "labels": labels + 1, "scores": scores[cells, labels]})
        return found


class Pooled(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.body, self.head = body(), nn.Linear(8, outputs)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


def trained(network, loss, steps=150):
    """A network that has learned from scenes; its weights and the scenes come from seeds of their own."""
    optimiser = torch.optim.Adam(network.parameters(), lr=0.02)
    for step in range(steps):
        optimiser.zero_grad()
        loss(network, *scenes(16, seed=step)).backward()
        optimiser.step()
    return network.eval()


def pixel_loss(network, images, cells):
    truth = torch.zeros(len(images), SIDE, SIDE, dtype=torch.long)
    for number, (red, green) in enumerate(cells):
        truth[number][inside(red)], truth[number][inside(green)] = RED, GREEN
    return F.cross_entropy(network(images)["out"], truth)


def box_loss(network, images, cells):
    truth = F.one_hot(cells, 9).transpose(1, 2).float()
    return F.binary_cross_entropy(network.scores(images), truth)


def tag_loss(network, images, cells):
    """Half of the images lose their red square, half their green one."""
    images, present = images.clone(), torch.ones(len(images), 2)
    for number, pair in enumerate(cells):
        gone = number % 2
        images[number][:, inside(pair[gone])] = 0.45
        present[number, gone] = 0
    return F.binary_cross_entropy_with_logits(network(images), present)


def number_loss(network, images, cells):
    """How red the image is: it is dimmed by chance."""
    images, red = images.clone(), torch.linspace(0, 0.5, len(images))
    for image, pair, value in zip(images, cells, red, strict=True):
        image[0, inside(pair[0])] -= 0.5 - value
    return F.mse_loss(network(images)[:, 0], 4 * red)


@pytest.fixture(scope="module")
def networks():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return {
            "segmenter": trained(Segmenter(), pixel_loss, 60),
            "detector": trained(Detector(), box_loss),
            "tagger": trained(Pooled(2), tag_loss),
            "regressor": trained(Pooled(1), number_loss),
        }


def section(title):
    """The Python of one section."""
    text = PAGE.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    (code,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return code


def ran(title, networks, **names):
    names = {"fei": fei, **networks, **names}
    exec(compile(section(title), title, "exec"), names)
    return names


def test_detection(networks):
    images, cells = scenes(1, seed=1000)
    names = ran("Detection", networks, images=images)
    first = names["first"]
    assert {int(first["labels"][0]), int(first["labels"][1])} == {RED, GREEN}  # it has learned to find both
    own, other = cells[0] if int(first["labels"][0]) == RED else cells[0].flip(0)
    assert points_at(names["maps"], own, other)
    overlap = names["overlap"](torch.tensor([[0.0, 0, 2, 2], [1, 1, 3, 3]]), torch.tensor([0.0, 0, 2, 2]))
    assert overlap.tolist() == pytest.approx([1, 1 / 7])
    target = names["of_box"](torch.tensor([0.0, 0, 8, 8]), RED)
    empty = [{"boxes": torch.empty(0, 4), "labels": torch.empty(0).long(), "scores": torch.empty(0)}]
    assert target(empty).tolist() == [0]
    maps = fei.methods.create("gradcam")(networks["detector"], images, target)
    curve = fei.metrics.insertion(networks["detector"], images, maps, target)
    assert curve.scores.shape[0] == 1


def test_segmentation(networks):
    images, cells = scenes(1, seed=1001)
    names = ran("Segmentation", networks, images=images)
    assert (names["region"][0] == inside(cells[0, 0])).float().mean() > 0.95
    assert points_at(names["maps"], *cells[0])


def test_several_labels(networks):
    images, cells = scenes(1, seed=1002)
    names = ran("Several labels at once", networks, images=images)
    assert points_at(names["maps"], *cells[0].flip(0))  # class 1 is green
    assert 0 < float(names["curve"].auc) <= 1


def test_a_number(networks):
    images, cells = scenes(1, seed=1003)
    names = ran("A number", networks, images=images)
    assert points_at(names["high"], *cells[0])
    assert not torch.equal(names["high"], names["low"])


PROMPTS = ["a photo of a cat", "a photo of a dog", "a drawing"]


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """A CLIP made from a configuration, with a tokenizer of a few words, as a folder."""
    from fei.models.sources import import_torchvision

    import_torchvision()
    transformers, tokenizers = pytest.importorskip("transformers"), pytest.importorskip("tokenizers")
    folder = tmp_path_factory.mktemp("clip")
    words = ["<pad>", "<start>", "<end>", "<unk>", *sorted({word for text in PROMPTS for word in text.split()})]
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, "<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="<start> $A <end>", special_tokens=[("<start>", 1), ("<end>", 2)]
    )
    special = {"pad_token": "<pad>", "bos_token": "<start>", "eos_token": "<end>", "unk_token": "<unk>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, **special).save_pretrained(folder)
    small = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    ids = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    config = transformers.CLIPConfig(
        text_config={**small, **ids, "vocab_size": len(words), "max_position_embeddings": 12},
        vision_config={**small, "image_size": 32, "patch_size": 8},
        projection_dim=12,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.CLIPModel(config).eval()
        for parameter in model.parameters():
            parameter.data += 0.1 * torch.randn(parameter.shape)
    model.save_pretrained(folder, safe_serialization=True)
    sizes = {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}
    transformers.CLIPImageProcessor(**sizes).save_pretrained(folder)
    (folder / "prompts.txt").write_text("\n".join(PROMPTS), encoding="utf-8")
    return folder


def test_images_and_texts(clip, monkeypatch):
    import transformers

    monkeypatch.chdir(clip.parent)
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    code = section("Images and texts").replace("path/to/clip?labels=", f"{clip.name}?labels={clip.name}/")
    names = {"fei": fei, "images": images}
    exec(compile(code, "texts", "exec"), names)
    model = names["model"]
    assert model.labels == PROMPTS  # type: ignore[attr-defined]
    whole = transformers.CLIPModel.from_pretrained(clip).eval()
    tokens = transformers.AutoTokenizer.from_pretrained(clip)(PROMPTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = whole(pixel_values=(images - model.mean) / model.std, **tokens).logits_per_image  # type: ignore[attr-defined]
        torch.testing.assert_close(model(images), expected, atol=1e-4, rtol=1e-4)
    assert names["maps"].shape == (2, 1, 32, 32)  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="compares images with texts; give them with labels=FILE"):
        fei.models.load(f"hf:{clip.name}")
    (clip / "one.txt").write_text("a cat", encoding="utf-8")
    with pytest.raises(ModelError, match="There is 1 text"):
        fei.models.load(f"hf:{clip.name}?labels={clip.name}/one.txt")


@pytest.mark.parametrize("place", [("attn_implementation",), ("vision_config", "_attn_implementation")])
def test_a_kernel_that_a_configuration_names(clip, tmp_path, place):
    """transformers would fetch its code from the hub, and run it."""
    shutil.copytree(clip, tmp_path / "clip")
    config = json.loads((clip / "config.json").read_text(encoding="utf-8"))
    inner = config
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = "somebody/kernel"
    (tmp_path / "clip" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ModelError, match=f"names code in '{place[-1]}' of its config.json"):
        fei.models.load(f"hf:{tmp_path / 'clip'}?labels={clip / 'prompts.txt'}")


def test_texts_on_the_command_line(clip, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (40, 40), (200, 30, 30)).save("dog.jpg")
    words = ["explain", "dog.jpg", "--model", f"hf:{clip}", "--labels", clip / "prompts.txt", "--method", "saliency"]
    assert cli(*words, "--target", "a photo of a dog") == 0
    assert "explained  a photo of a dog (1), as asked" in capsys.readouterr().out
