"""Small files as data sets are made of, and what came out of one."""

from pathlib import Path

from PIL import Image

from fei.data import Dataset


def put(file: Path, *, size: tuple[int, int] = (4, 3)) -> Path:
    """A tiny image."""
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (200, 100, 50)).save(file, format="PNG" if file.suffix == ".png" else "JPEG")
    return file


def write(file: Path, *lines: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return file


def annotation(file: Path, *objects: tuple[str, int, int, int, int]) -> Path:
    """An XML annotation as VOC and ImageNet have it."""
    described = [
        f"<object><name>{name}</name><bndbox><xmin>{a}</xmin><ymin>{b}</ymin><xmax>{c}</xmax><ymax>{d}</ymax></bndbox>"
        "<part><name>head</name><bndbox><xmin>1</xmin></bndbox></part></object>"
        for name, a, b, c, d in objects
    ]
    return write(file, "<annotation>", "<folder>x</folder>", *described, "</annotation>")


def ids(dataset: Dataset) -> list[str]:
    return [item.id for item in dataset]


def labels(dataset: Dataset) -> dict[str, int | None]:
    return {item.id: item.label for item in dataset}
