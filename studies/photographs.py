"""Which photographs the studies are made on: none that anything was tuned on.

    python -m studies.photographs

The plans draw from the folder of ImageNet photographs with `sample` and `sample_seed`; a larger sample of a seed
contains the smaller ones. The seed is the smallest whose first `LARGEST` photographs are all of classes that no
setting, default or earlier benchmark of this project was chosen with. Nothing else about a photograph is looked at:
those that a network gets wrong stay in, and the results say how many they are.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

from fei.data import Dataset, load

ROOT = Path(__file__).resolve().parents[1]
PREFIX = "../shared/assets"  # how the plans write the folder of the assets
ASSETS = Path(os.environ.get("FEI_ASSETS", ROOT / PREFIX))
LARGEST = 20
# Classes of the photographs in benchmarks/ (the defaults were tuned on the first four), and of the first trials.
USED = frozenset(
    {
        "n01558993", "n02002556", "n02099601", "n03445924",
        "n02085620", "n02317335", "n03935335", "n04389033",
        "n01440764", "n02123045",
    }
)  # fmt: skip


def is_fresh(sample: Dataset) -> bool:
    """Whether none of these photographs is of a class that was used before."""
    return not any(item.id.split("/")[0] in USED for item in sample)


def first_fresh_seed(photographs: Dataset) -> int:
    """The smallest seed that draws fresh photographs alone."""
    return next(seed for seed in itertools.count() if is_fresh(photographs.sample(LARGEST, seed)))


def main() -> None:
    """Print the seed, and the photographs in the order in which samples grow."""
    photographs = load(f"imagenet:{ASSETS / 'imagenet'}")
    seed = first_fresh_seed(photographs)
    names = (ASSETS / "imagenet" / "classes.txt").read_text(encoding="utf-8").splitlines()
    labels = {line.split(" ", 2)[1]: line.split(" ", 2)[2] for line in names}
    print(f"sample_seed = {seed}")
    drawn: list[str] = []
    for count in range(1, LARGEST + 1):
        drawn += [item.id for item in photographs.sample(count, seed) if item.id not in drawn]
        print(f"{count:3d}  {drawn[-1]}  {labels[drawn[-1].split('/')[0]]}")


if __name__ == "__main__":
    main()
