"""Damaged data sets: lists and annotations of CUB, PASCAL VOC and ImageNet, and your own tables."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
from _fuzz_images import seeds
from _fuzz_mutate import mutate_bytes, mutate_text, odd_string
from _fuzz_worker import MEBIBYTE, Case

from fei import data

_XML = """<annotation>
  <folder>VOC2012</folder><filename>1.jpg</filename>
  <size><width>7</width><height>9</height><depth>3</depth></size>
  <object><name>cat</name><pose>Left</pose><difficult>0</difficult>
    <bndbox><xmin>1</xmin><ymin>2</ymin><xmax>5</xmax><ymax>8.5</ymax></bndbox></object>
  <object><name>dog</name><bndbox><xmin>2</xmin><ymin>2</ymin><xmax>4</xmax><ymax>4</ymax></bndbox></object>
</annotation>
"""
_LAUGHS = (
    "<!DOCTYPE a [" + '<!ENTITY a0 "ha">' + "".join(f'<!ENTITY a{i + 1} "{f"&a{i};" * 10}">' for i in range(12)) + "]>"
)
_OUTSIDE = '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
_VAL = "ILSVRC2012_val_0000000{}"


class Data:
    """Data sets with lists."""

    name = "data"
    max_bytes = 256 * MEBIBYTE

    def valid(self) -> Sequence[Case]:
        """The whole data sets."""
        return [Case(tree, next(iter(tree)), (spec,)) for spec, tree in trees()]

    def make(self, rng: Random) -> Case:
        """One with a list or an annotation damaged, or one of its files removed or renamed."""
        spec, tree = rng.choice(trees())
        lists = [name for name in tree if not name.lower().endswith((".jpg", ".jpeg"))]
        victim = rng.choice(lists or list(tree))
        files, action = dict(tree), rng.random()
        if action < 0.03:
            del files[victim]
        elif action < 0.06:
            other = rng.choice(("x", "x.xml", "x.txt", "x.jpg", "images/\x1b[31m.jpg", "é\n.jpg"))
            files[other] = files.pop(victim)
            victim = other
        elif victim.endswith((".mat", ".jpg", ".JPEG")) or action < 0.2:
            files[victim] = mutate_bytes(rng, files[victim])
        elif victim.endswith(".xml") and action < 0.3:
            text = files[victim].decode()
            files[victim] = rng.choice(
                (_LAUGHS + text.replace("cat", "&a12;"), _OUTSIDE + text.replace("cat", "&x;"))
            ).encode()
        else:
            words = (
                "1",
                "cat",
                "&a;",
                "<object>",
                "</object>",
                "<![CDATA[",
                "n01440764",
                ",",
                '"',
                "\t",
                odd_string(rng),
            )
            files[victim] = mutate_text(rng, files[victim].decode(), words)
        return Case(files, victim, (spec,))

    def read(self, folder: Path, ask: tuple[str, ...]) -> None:
        """Load it, take a sample, and read its images."""
        found = data.load(ask[0].format(folder))
        for problem in found.problems:
            if not problem.strip():
                raise AssertionError("a problem without words")
        list(found.sample(1, seed=0).readable(lambda image: image.size, lambda item, error: None))


@cache
def trees() -> tuple[tuple[str, dict[str, bytes]], ...]:
    """A data set of each kind, of two images: its specification, with {} for the folder, and its files."""
    photo = next(seed for seed in seeds() if seed.startswith(b"\xff\xd8"))
    cub = {
        "images.txt": b"1 001.Albatross/1.jpg\n2 002.Finch/2.jpg\n",
        "classes.txt": b"1 001.Black_footed_Albatross\n2 002.Finch\n",
        "image_class_labels.txt": b"1 1\n2 2\n",
        "bounding_boxes.txt": b"1 1.0 1.0 3.0 4.0\n2 0.0 0.0 5.0 5.5\n",
        "train_test_split.txt": b"1 1\n2 0\n",
        "images/001.Albatross/1.jpg": photo,
        "images/002.Finch/2.jpg": photo,
    }
    voc = {
        "Annotations/1.xml": _XML.encode(),
        "Annotations/2.xml": _XML.encode(),
        "ImageSets/Main/val.txt": b"1\n2\n",
        "JPEGImages/1.jpg": photo,
        "JPEGImages/2.jpg": photo,
    }
    table = {
        "t.csv": b'path,label,left,top,right,bottom\n1.jpg,cat,1,1,4,5\n1.jpg,cat,0,0,2,2\n"2.jpg",dog,,,,\n',
        "1.jpg": photo,
        "2.jpg": photo,
    }
    images = {f"val/{_VAL.format(i)}.JPEG": photo for i in (1, 2)}
    kaggle = {
        "LOC_val_solution.csv": f"ImageId,PredictionString\n{_VAL.format(1)},n01440764 1 1 4 5 \n"
        f"{_VAL.format(2)},n01443537 0 0 3 3 n01443537 1 1 2 2 \n".encode()
    }
    numbers = {"ILSVRC2012_validation_ground_truth.txt": b"2\n1\n", "meta.mat": _meta()}
    boxes = {f"Annotations/{_VAL.format(i)}.xml": _XML.replace("cat", "n01440764").encode() for i in (1, 2)}
    synsets = {"imagenet_2012_validation_synset_labels.txt": b"n01440764\nn01443537\n"}
    return (
        ("cub:{}", cub),
        ("cub:{}@test", cub),
        ("voc:{}", voc),
        ("voc:{}@val", voc),
        ("csv:{}/t.csv", table),
        ("imagenet:{}", images | kaggle),
        ("imagenet:{}", images | numbers | boxes),
        ("imagenet:{}", images | synsets),
    )


def _meta() -> bytes:
    """The development kit's table of synsets, in MATLAB's format."""
    from scipy.io import savemat

    rows = np.array([(1, "n01440764"), (2, "n01443537")], dtype=[("ILSVRC2012_ID", "O"), ("WNID", "O")])
    stream = io.BytesIO()
    savemat(stream, {"synsets": rows})
    content = bytearray(stream.getvalue())
    content[:116] = b"MATLAB 5.0 MAT-file".ljust(116)  # in which the day of its making stands
    return bytes(content)
