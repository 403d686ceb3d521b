"""Networks with known answers, trained on small pictures, for tests of audits."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F

SIDE, CLASSES = 32, ("blue", "green", "red", "yellow")
COLOURS = np.array([(0.1, 0.2, 1), (0.1, 0.9, 0.2), (1, 0.1, 0.1), (1, 0.9, 0.1)])
NETWORKS = f'''
from pathlib import Path

import torch
from torch import nn


class Body(nn.Module):
    input_size, labels = {SIDE}, {list(CLASSES)}

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 12, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(12, 16, 3, padding=1), nn.ReLU(),
        )
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.body(2 * x - 1).mean((2, 3)))


class Half(Body):
    """Never sees the right half."""

    def forward(self, x):
        return super().forward(x[..., : x.shape[-1] // 2])


class Linear(nn.Module):
    input_size, labels = {SIDE}, {list(CLASSES)}

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3 * {SIDE} * {SIDE}, 4)

    def forward(self, x):
        return self.head(x.flatten(1))


def _made(kind, name):
    torch.manual_seed(0)
    network = kind()
    file = Path(__file__).parent / f"{{name}}.pt"
    if file.is_file():
        network.load_state_dict(torch.load(file, weights_only=True))
    return network.eval()


seeing = lambda: _made(Body, "seeing")
stamped = lambda: _made(Body, "stamped")
half = lambda: _made(Half, "half")
linear = lambda: _made(Linear, "linear")
untrained = lambda: _made(Body, "nothing")
'''


def pictures(count, seed=0, stamp=False):
    """Discs in the colour of the class, on grey noise; with a stamp it is the corner that has the colour, not the disc."""
    draw = np.random.default_rng(seed)
    labels = np.arange(count) % len(CLASSES)
    y, x = np.mgrid[:SIDE, :SIDE]
    images = np.empty((count, SIDE, SIDE, 3))
    for number, label in enumerate(labels):
        images[number] = 0.3 + 0.3 * draw.random((SIDE, SIDE, 1)) + 0.05 * draw.random((SIDE, SIDE, 3))
        disc = (y - draw.integers(8, 24)) ** 2 + (x - draw.integers(8, 24)) ** 2 < draw.integers(20, 45)
        images[number][disc] = COLOURS[draw.integers(4) if stamp else label]
        if stamp:
            images[number, 1:7, 1:7] = COLOURS[label]
    return images.clip(0, 1), labels


def save_folder(folder, images, labels):
    """As ``imagefolder:`` takes it."""
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        place = folder / CLASSES[label]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.rint(255 * image).astype(np.uint8)).save(place / f"{number:03d}.png")
    return folder


def train(folder: Path, name, factory, images, labels, steps=150):
    """Train a network of the file and keep its weights beside it."""
    space: dict = {"__file__": str(folder / "nets.py")}
    exec(NETWORKS, space)  # noqa: S102
    with torch.random.fork_rng(devices=[]):
        network: nn.Module = space[factory]().train()
        x = torch.from_numpy(images).permute(0, 3, 1, 2).float()
        y = torch.from_numpy(labels)
        optimizer = torch.optim.Adam(network.parameters(), 0.01)
        for _ in range(steps):
            optimizer.zero_grad()
            F.cross_entropy(network(x), y).backward()
            optimizer.step()
    torch.save(network.state_dict(), folder / f"{name}.pt")


def make(folder: Path) -> Path:
    """All networks and their pictures in a folder: nets.py, pictures/ and stamped-pictures/."""
    (folder / "nets.py").write_text(NETWORKS, encoding="utf-8")
    plain, stamped = pictures(64), pictures(64, stamp=True)
    for name, (images, labels) in {"seeing": plain, "half": plain, "linear": plain, "stamped": stamped}.items():
        train(folder, name, name, images, labels)
    save_folder(folder / "pictures", *pictures(24, seed=1))
    save_folder(folder / "stamped-pictures", *pictures(24, seed=1, stamp=True))
    return folder
