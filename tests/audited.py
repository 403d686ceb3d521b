"""Networks with known answers, trained on small pictures, for tests of audits."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image

SIDE, CLASSES = 24, ("blue", "green", "red", "yellow")
COLOURS = np.array([(0.1, 0.2, 1), (0.1, 0.9, 0.2), (1, 0.1, 0.1), (1, 0.9, 0.1)])
NETWORKS = f'''
from pathlib import Path

import torch
from torch import nn


class Body(nn.Module):
    """Random filters, so that only the head is trained."""

    input_size, labels = {SIDE}, {list(CLASSES)}

    def __init__(self, depth=6, pool=1, width=12):
        super().__init__()
        layers = []
        for number in range(depth):
            convolution = nn.Conv2d(width if number else 3, width, 3, padding=1)
            nn.init.kaiming_normal_(convolution.weight)
            layers += [convolution, nn.ReLU(), *([nn.MaxPool2d(2)] if number == 1 else [])]
        self.body = nn.Sequential(*layers)
        self.pool, self.head = nn.AdaptiveAvgPool2d(pool), nn.Linear(width * pool * pool, 4)

    def features(self, x):
        return self.pool(self.body(2 * x - 1)).flatten(1)

    def forward(self, x):
        return self.head(self.features(x))


class Half(Body):
    """Never sees the right half."""

    def features(self, x):
        return super().features(torch.cat([x[..., : {SIDE} // 2], torch.full_like(x[..., {SIDE} // 2 :], 0.5)], -1))


class Linear(nn.Module):
    input_size, labels = {SIDE}, {list(CLASSES)}

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3 * {SIDE} * {SIDE}, 4)

    def features(self, x):
        return x.flatten(1)

    def forward(self, x):
        return self.head(self.features(x))


def _made(kind, name, **options):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = kind(**options)
    file = Path(__file__).parent / f"{{name}}.pt"
    if file.is_file():
        network.head.load_state_dict(torch.load(file, weights_only=True))
    return network.eval()


def seeing():
    return _made(Body, "seeing")


def stamped():
    return _made(Body, "stamped", depth=2, pool=4)


def half():
    return _made(Half, "half", depth=3)


def linear():
    return _made(Linear, "linear")


def untrained():
    return _made(Body, "nothing")
'''


def pictures(count, seed=0, stamp=False):
    """Discs in the colour of the class on grey noise; with a stamp the corner has the colour, and the disc any."""
    draw = np.random.default_rng(seed)
    labels = np.arange(count) % len(CLASSES)
    y, x = np.mgrid[:SIDE, :SIDE]
    images = np.empty((count, SIDE, SIDE, 3))
    for number, label in enumerate(labels):
        images[number] = 0.3 + 0.3 * draw.random((SIDE, SIDE, 1)) + 0.05 * draw.random((SIDE, SIDE, 3))
        disc = (y - draw.integers(7, 17)) ** 2 + (x - draw.integers(7, 17)) ** 2 < draw.integers(15, 35)
        images[number][disc] = COLOURS[draw.integers(4) if stamp else label]
        if stamp:
            images[number, :6, :6] = COLOURS[label]
    return images.clip(0, 1), labels


def save_folder(folder, images, labels):
    """As ``imagefolder:`` takes it."""
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        place = folder / CLASSES[label]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.rint(255 * image).astype(np.uint8)).save(place / f"{number:03d}.png")
    return folder


@torch.no_grad()
def train(folder: Path, name, images, labels):
    """Fit the head of a network by ridge regression, and keep it beside the file of the networks."""
    space: dict = {"__file__": str(folder / "nets.py")}
    exec(NETWORKS, space)
    network = space[name]()
    features = network.features(torch.from_numpy(images).permute(0, 3, 1, 2).float()).double()
    centre, size = features.mean(0), features.std() + 1e-9
    x, wanted = (features - centre) / size, torch.eye(4, dtype=torch.float64)[torch.from_numpy(labels)] - 0.25
    weight = torch.linalg.solve(x.T @ x + 0.1 * torch.eye(x.shape[1], dtype=torch.float64), x.T @ wanted).T * 12 / size
    torch.save({"weight": weight.float(), "bias": -(weight @ centre).float()}, folder / f"{name}.pt")


def make(folder: Path) -> Path:
    """All networks and their pictures in a folder: nets.py, pictures/ and stamped-pictures/."""
    (folder / "nets.py").write_text(NETWORKS, encoding="utf-8")
    plain, stamped = pictures(160), pictures(160, stamp=True)
    for name, given in {"seeing": plain, "half": plain, "linear": plain, "stamped": stamped}.items():
        train(folder, name, *given)
    save_folder(folder / "pictures", *pictures(16, seed=1))
    save_folder(folder / "stamped-pictures", *pictures(16, seed=1, stamp=True))
    return folder
