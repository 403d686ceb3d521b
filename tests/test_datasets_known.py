"""ImageNet, CUB-200-2011 and PASCAL VOC in their usual layouts: right labels and boxes, and no list leads astray."""

import contextlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from dataset_files import annotation, ids, labels, put, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.io import savemat

from fei import data
from fei.data import Item, files
from fei.data.sets import _annotations
from fei.errors import DataError, InputError

# Three of the 1000 synsets and their well-known indices: tench, tabby, toilet tissue.
TENCH, TABBY, TISSUE = "n01440764", "n02123045", "n15075141"


# -- ImageNet ------------------------------------------------------------------------------------------------------


def test_the_synsets_are_those_of_the_assets(assets: Path) -> None:
    lines = (assets / "imagenet" / "classes.txt").read_text(encoding="utf-8").splitlines()
    rows = [line.split(maxsplit=2) for line in lines]
    dataset = data.load(f"imagenet:{assets / 'imagenet'}")
    assert dataset.classes == tuple(synset for _, synset, _ in rows)
    assert [int(index) for index, _, _ in rows] == list(range(1000))
    assert len(dataset) > 100
    index = {synset: int(index) for index, synset, _ in rows}
    assert all(item.label == index[item.path.parent.name] for item in dataset)
    assert dataset.problems == ()
    assert all(item.path.is_file() for item in dataset.sample(5))


@pytest.mark.parametrize("below", ["", "val"])
def test_synset_folders(tmp_path: Path, below: str) -> None:
    for name in (f"{TISSUE}/a.JPEG", f"{TENCH}/b.JPEG", "n99999999/c.JPEG", "other/d.JPEG", "loose.JPEG"):
        put(tmp_path / below / name)
    dataset = data.load(f"imagenet:{tmp_path}")
    assert labels(dataset) == {f"{TENCH}/b.JPEG": 0, f"{TISSUE}/a.JPEG": 999}
    assert len(dataset.classes or ()) == 1000
    assert len(dataset.problems) == 3
    assert "loose.JPEG' lies outside the synset folders" in dataset.problems[0]
    assert "n99999999' is named after none of the 1000 synsets; its images were left out." in dataset.problems[1]
    assert "other' is named after none" in dataset.problems[2]


def flat(folder: Path, numbers: Iterable[int] = (1, 2, 3)) -> Path:
    for number in numbers:
        put(folder / f"ILSVRC2012_val_{number:08}.JPEG")
    return folder


FLAT_LABELS = {
    "ILSVRC2012_val_00000001.JPEG": 281,
    "ILSVRC2012_val_00000002.JPEG": 0,
    "ILSVRC2012_val_00000003.JPEG": 999,
}


@pytest.mark.parametrize("place", ["val", ".", "ILSVRC2012_devkit_t12/data"])
def test_flat_with_a_list_of_synsets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    flat(tmp_path / "val")
    write(tmp_path / place / "imagenet_2012_validation_synset_labels.txt", TABBY, TENCH, TISSUE)
    dataset = data.load(f"imagenet:{tmp_path / 'val'}")
    assert labels(dataset) == FLAT_LABELS
    assert dataset.problems == ()
    assert labels(data.load(f"imagenet:{tmp_path}")) == FLAT_LABELS
    monkeypatch.chdir(tmp_path / "val")
    assert labels(data.load("imagenet:.")) == FLAT_LABELS


def meta(file: Path, rows: list[tuple[int, str]]) -> Path:
    """The development kit's table: a MATLAB struct array."""
    table = np.zeros((len(rows), 1), dtype=[("ILSVRC2012_ID", object), ("WNID", object), ("words", object)])
    for entry, (number, synset) in zip(table, rows, strict=True):
        entry[0] = (float(number), synset, "words")
    file.parent.mkdir(parents=True, exist_ok=True)
    savemat(file, {"synsets": table})
    return file


def test_flat_with_the_development_kit(tmp_path: Path) -> None:
    """Its numbers are not the networks' indices: here 1 is toilet tissue; 1001 is no class but a group of them."""
    devkit = tmp_path / "ILSVRC2012_devkit_t12" / "data"
    flat(tmp_path / "val")
    write(devkit / "ILSVRC2012_validation_ground_truth.txt", "2", "3", "1")
    meta(devkit / "meta.mat", [(1, TISSUE), (2, TABBY), (3, TENCH), (1001, "n00001740")])
    assert labels(data.load(f"imagenet:{tmp_path / 'val'}")) == FLAT_LABELS


def test_numbers_without_their_meaning_are_refused(tmp_path: Path) -> None:
    flat(tmp_path)
    write(tmp_path / "ILSVRC2012_validation_ground_truth.txt", "2", "3", "1")
    with pytest.raises(
        DataError, match="ground_truth.txt' needs the development kit's meta.mat, which tells its order"
    ):
        data.load(f"imagenet:{tmp_path}")
    (tmp_path / "meta.mat").write_bytes(b"MATLAB 5.0 MAT-file, but cut short")
    with pytest.raises(DataError, match="meta.mat' is not the development kit's table of synsets"):
        data.load(f"imagenet:{tmp_path}")
    meta(tmp_path / "meta.mat", [(1, "n00001740")])
    with pytest.raises(DataError, match="meta.mat' has none of the 1000 synsets"):
        data.load(f"imagenet:{tmp_path}")
    meta(tmp_path / "meta.mat", [(2, TABBY), (3, TENCH)])
    with pytest.raises(DataError, match="Line 3 of '.*ground_truth.txt' is '1'; the number of one of the 2 classes"):
        data.load(f"imagenet:{tmp_path}")


def test_flat_in_kaggles_tree(tmp_path: Path) -> None:
    folder = flat(tmp_path / "ILSVRC" / "Data" / "CLS-LOC" / "val")
    write(
        tmp_path / "LOC_val_solution.csv",
        "ImageId,PredictionString",
        f"ILSVRC2012_val_00000003,{TISSUE} 1 2 30 40 ",
        f"ILSVRC2012_val_00000001,{TABBY} 5 6 7 8 {TABBY} 0 0 9 9 {TABBY} 4 4 4 9 ",
        f"ILSVRC2012_val_00000002,{TENCH} 5 6 7 8 {TABBY} 0 0 9 9 ",
    )
    dataset = data.load(f"imagenet:{tmp_path}")
    assert labels(dataset) == FLAT_LABELS
    assert [item.boxes for item in dataset] == [((5, 6, 7, 8), (0, 0, 9, 9)), ((5, 6, 7, 8),), ((1, 2, 30, 40),)]
    assert ["A box on line 3 of" in problem for problem in dataset.problems] == [True]
    assert data.load(f"imagenet:{folder}").items == data.load(f"imagenet:{tmp_path / 'ILSVRC'}").items == dataset.items


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (["id,label"], "Line 1 of '.*LOC_val_solution.csv' is 'id,label'; 'ImageId,PredictionString' was expected."),
        (["ImageId,PredictionString", "../../etc/passwd,n01440764 1 2 3 4"], "Line 2 of '.*' is '../../etc/passwd"),
        (["ImageId,PredictionString", "ILSVRC2012_val_00000001,n01440764 1 2 3"], "Line 2 .* four numbers"),
        (["ImageId,PredictionString", "ILSVRC2012_val_00000001,n00000000 1 2 3 4"], "Line 2 .* a synset id"),
        (["ImageId,PredictionString", "ILSVRC2012_val_00000001,"], "Line 2 .* were expected"),
        (["ImageId,PredictionString", "ILSVRC2012_val_00000001"], "Line 2 .* were expected"),
        (["ImageId,PredictionString", "x" * 200_000], "Line 2 of '.*' is not CSV"),
    ],
)
def test_kaggles_table_malformed(tmp_path: Path, lines: list[str], sentence: str) -> None:
    write(flat(tmp_path) / "LOC_val_solution.csv", *lines)
    with pytest.raises(DataError, match=sentence):
        data.load(f"imagenet:{tmp_path}")


def test_a_part_of_a_flat_folder_is_one_problem(tmp_path: Path) -> None:
    flat(tmp_path, [2, 7])
    put(tmp_path / "holiday.jpg")
    write(tmp_path / "imagenet_2012_validation_synset_labels.txt", TABBY, TENCH, TISSUE, TISSUE)
    dataset = data.load(f"imagenet:{tmp_path}")
    assert labels(dataset) == {"ILSVRC2012_val_00000002.JPEG": 0}
    assert len(dataset.problems) == 3
    assert "labels.txt' has no class for '" in dataset.problems[0]
    assert "holiday.jpg' is not named like ILSVRC2012_val_00000001.JPEG" in dataset.problems[1]
    assert dataset.problems[2].startswith("3 of the 4 images that '")
    assert "the first being ILSVRC2012_val_00000001; they were left out." in dataset.problems[2]


def test_flat_without_classes(tmp_path: Path) -> None:
    flat(tmp_path)
    with pytest.raises(DataError, match="holds ImageNet's validation images without their classes; put LOC_val_sol"):
        data.load(f"imagenet:{tmp_path}")
    write(tmp_path / "imagenet_2012_validation_synset_labels.txt", TABBY, "", "cat")
    with pytest.raises(DataError, match="Line 3 of '.*' is 'cat'; the id of one of the 1000 synsets was expected"):
        data.load(f"imagenet:{tmp_path}")
    write(tmp_path / "imagenet_2012_validation_synset_labels.txt")
    with pytest.raises(DataError, match="No image in '.*' has a known class; the first problem is: "):
        data.load(f"imagenet:{tmp_path}")


def test_what_is_no_imagenet(tmp_path: Path) -> None:
    put(tmp_path / "cat.jpg")
    with pytest.raises(DataError, match="holds neither synset folders such as n01440764 nor files such as ILSVRC2012"):
        data.load(f"imagenet:{tmp_path}")
    (tmp_path / TENCH).mkdir()
    (tmp_path / "cat.jpg").unlink()
    with pytest.raises(DataError, match="No image in '.*' has a known class; its synset folders are empty."):
        data.load(f"imagenet:{tmp_path}")


@pytest.mark.parametrize("place", ["val/Annotations", "Annotations", "Annotations/val", "Annotations/CLS-LOC/val"])
def test_imagenets_boxes(tmp_path: Path, place: str) -> None:
    """As they are written, those of the image's own class; a flaw in one box is told and costs only that box."""
    flat(tmp_path / "val", [1, 2, 3, 4])
    write(tmp_path / "imagenet_2012_validation_synset_labels.txt", TABBY, TENCH, TISSUE, TENCH)
    boxes = tmp_path / place
    annotation(boxes / "ILSVRC2012_val_00000001.xml", (TABBY, 1, 2, 30, 40), (TENCH, 0, 0, 5, 5), (TABBY, 0, 0, 9, 9))
    annotation(boxes / "ILSVRC2012_val_00000002.xml", (TENCH, 4, 0, 4, 9), (TENCH, 1, 1, 2, 2))
    annotation(boxes / "ILSVRC2012_val_00000003.xml", (TENCH, 1, 1, 2, 2))
    dataset = data.load(f"imagenet:{tmp_path / 'val'}")
    assert [item.boxes for item in dataset] == [((1, 2, 30, 40), (0, 0, 9, 9)), ((1, 1, 2, 2),), (), ()]
    assert len(dataset.problems) == 2
    assert "00002.xml' has no area; it was left out." in dataset.problems[0]
    assert f"00003.xml' has no box of {TISSUE}, the class of 'ILSVRC2012_val_00000003.JPEG'" in dataset.problems[1]


def test_boxes_of_synset_folders(tmp_path: Path) -> None:
    put(tmp_path / TENCH / f"{TENCH}_7.JPEG")
    annotation(tmp_path / "Annotations" / TENCH / f"{TENCH}_7.xml", (TENCH, 1, 2, 3, 4))
    assert data.load(f"imagenet:{tmp_path}")[0].boxes == ((1, 2, 3, 4),)


# -- CUB-200-2011 --------------------------------------------------------------------------------------------------


def test_the_real_birds(assets: Path) -> None:
    dataset = data.load(f"cub:{assets / 'cub'}")
    assert len(dataset) == 100
    assert dataset.classes is not None
    assert len(dataset.classes) == 200
    assert dataset.classes[0] == "Black footed Albatross"
    assert dataset.classes[199] == "Common Yellowthroat"
    assert len({item.label for item in dataset}) == 20
    assert all(item.label is not None and item.label + 1 == int(item.id[:3]) for item in dataset)
    first = next(item for item in dataset if item.id.endswith("Black_Footed_Albatross_0046_18.jpg"))
    assert first.boxes == ((60, 27, 385, 331),)  # 60, 27 and 325 × 304
    for item in dataset.sample(10):
        with Image.open(item.path) as image:
            left, top, right, bottom = item.boxes[0]
            assert 0 <= left < right <= image.width
            assert 0 <= top < bottom <= image.height
    train, test = (data.load(f"cub:{assets / 'cub'}@{split}") for split in ("train", "test"))
    assert {*train} | {*test} == {*dataset}
    assert not {*train} & {*test}
    assert first in test  # line 1 of the split is 0


@pytest.fixture
def birds(tmp_path: Path) -> Path:
    """Three photographs of two species, as CUB lays them out."""
    root = tmp_path / "CUB_200_2011"
    names = ["002.Laysan_Albatross/c.jpg", "001.Black_footed_Albatross/b.jpg", "001.Black_footed_Albatross/a.jpg"]
    for name in names:
        put(root / "images" / name)
    write(root / "images.txt", *(f"{i} {name}" for i, name in enumerate(names, start=1)))
    write(root / "classes.txt", "1 001.Black_footed_Albatross", "2 002.Laysan_Albatross ")
    write(root / "image_class_labels.txt", "1 2", "2 1", "3 1")
    write(root / "bounding_boxes.txt", "1 0.0 1.0 2.0 2.0", "2 1.0 1.0 1.5 1.0", "3 0 0 4 3")
    write(root / "train_test_split.txt", "1 1", "2 0", "3 1")
    return root


def test_birds(birds: Path) -> None:
    dataset = data.load(f"cub:{birds}")
    assert dataset.classes == ("Black footed Albatross", "Laysan Albatross")
    a, b, c = (
        Item(birds / "images" / name, name, label, (box,))
        for name, label, box in (
            ("001.Black_footed_Albatross/a.jpg", 0, (0, 0, 4, 3)),
            ("001.Black_footed_Albatross/b.jpg", 0, (1, 1, 2.5, 2)),
            ("002.Laysan_Albatross/c.jpg", 1, (0, 1, 2, 3)),
        )
    )
    assert dataset.items == (a, b, c)
    assert data.load(f"cub:{birds.parent}@train").items == (a, c)
    assert data.load(f"cub:{birds}@test").items == (b,)


def test_a_folder_with_an_at_in_its_name(birds: Path) -> None:
    odd = birds.rename(birds.parent / "birds@home")
    assert len(data.load(f"cub:{odd}")) == 3
    assert len(data.load(f"cub:{odd}@test")) == 1


def test_birds_without_a_split_need_no_list_of_it(birds: Path) -> None:
    (birds / "train_test_split.txt").unlink()
    assert len(data.load(f"cub:{birds}")) == 3
    with pytest.raises(DataError, match="CUB_200_2011' has no 'train_test_split.txt'; give the folder"):
        data.load(f"cub:{birds}@test")


def test_an_unknown_split_of_the_birds(birds: Path) -> None:
    with pytest.raises(InputError, match="CUB-200-2011 has no split 'val'; choose train or test."):
        data.load(f"cub:{birds}@val")


@pytest.mark.parametrize(
    ("file", "lines", "sentence"),
    [
        ("images.txt", ["1"], "Line 1 of '.*images.txt' is '1'; the number and the path of an image were expected."),
        ("images.txt", ["x a.jpg"], "Line 1 of '.*images.txt' is 'x a.jpg'"),
        ("images.txt", ["1 a.jpg", "1 b.jpg"], "Line 2 of '.*' is '1 b.jpg'; line 1 has the number 1 already."),
        ("images.txt", ["1 ./a.jpg", "2 a.jpg"], None),
        ("images.txt", ["1 ../../secret.jpg"], "Line 1 of .* '../../secret.jpg'; a path inside '.*images' was exp"),
        ("images.txt", ["1 /etc/secret.jpg"], "Line 1 of .* '/etc/secret.jpg'; a path inside"),
        ("images.txt", ["1 a\\..\\..\\x.jpg"], "a path inside"),
        ("images.txt", ["1 c:\\x.jpg"], "a path inside"),
        ("images.txt", ["1 a\0.jpg"], "a path inside"),
        ("images.txt", [], "images.txt' names no images; unpack the archive again."),
        ("images.txt", ["1 a.jpg", "2 b.jpg"], "images.txt' names 2 images and none of them is there"),
        ("images.txt", ["4 001.Black_footed_Albatross/a.jpg"], "labels.txt' has no line for image 4; unpack"),
        ("classes.txt", ["1 001.a", "3 003.c"], "Line 2 of '.*' is '3 003.c'; the classes are numbered .* 2 is next."),
        ("image_class_labels.txt", ["1 2", "2 3", "3 1"], "Line 2 of '.*' is '2 3'; a class from 1 to 2"),
        ("image_class_labels.txt", ["1 0", "2 1", "3 1"], "Line 1 of '.*' is '1 0'; a class from 1 to 2"),
        ("image_class_labels.txt", ["1 b", "2 1", "3 1"], "a class from 1 to 2"),
        ("bounding_boxes.txt", ["1 0 0 2", "2 0 0 1 1", "3 0 0 1 1"], "Line 1 of '.*' is '1 0 0 2'; an image's number"),
        ("bounding_boxes.txt", ["1 0 0 0 2", "2 0 0 1 1", "3 0 0 1 1"], "Line 1 of .* width and height"),
        ("bounding_boxes.txt", ["1 0 nan 2 2", "2 0 0 1 1", "3 0 0 1 1"], "Line 1 of .* width and height"),
        ("train_test_split.txt", ["1 yes", "2 0", "3 0"], "Line 1 of '.*' is '1 yes'; 1 for training or 0 for test"),
        ("train_test_split.txt", ["1 1", "2 1", "3 1"], "images.txt' names no images for the split 'test'"),
    ],
)
def test_birds_malformed(birds: Path, file: str, lines: list[str], sentence: str | None) -> None:
    if sentence is None:  # two names of one image
        put(birds / "images" / "a.jpg")
        sentence = "Line 2 of '.*images.txt' is 'a.jpg'; an earlier line names the same image."
    write(birds / file, *lines)
    with pytest.raises(DataError, match=sentence):
        data.load(f"cub:{birds}" + ("@test" if "split" in file else ""))


@pytest.mark.parametrize("file", ["images.txt", "classes.txt", "image_class_labels.txt", "bounding_boxes.txt"])
def test_birds_without_a_list(birds: Path, file: str) -> None:
    (birds / file).unlink()
    with pytest.raises(DataError, match=f"' has no '{file}'; give the folder that CUB_200_2011.tgz unpacks"):
        data.load(f"cub:{birds}")


def test_a_missing_bird_is_told(birds: Path) -> None:
    (birds / "images" / "001.Black_footed_Albatross" / "b.jpg").unlink()
    dataset = data.load(f"cub:{birds}")
    assert len(dataset) == 2
    file = birds / "images" / "001.Black_footed_Albatross" / "b.jpg"
    assert dataset.problems == (
        f"'{file}', named on line 2 of '{birds / 'images.txt'}', is not there; it was left out.",
    )


def test_a_list_that_is_not_text(birds: Path) -> None:
    (birds / "images.txt").write_bytes(b"1 a.jpg\n2 \xff.jpg\n")
    with pytest.raises(DataError, match="Line 2 of '.*images.txt' is not text in UTF-8"):
        data.load(f"cub:{birds}")


def test_windows_line_ends_and_a_byte_order_mark(birds: Path) -> None:
    before = data.load(f"cub:{birds}")
    for file in birds.glob("*.txt"):
        file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    assert data.load(f"cub:{birds}") == before


def test_an_oversized_list_is_refused_unread(birds: Path) -> None:
    with (birds / "images.txt").open("wb") as file:
        file.truncate(files.MAX_LIST_BYTES + 1)  # sparse: it takes no room on the disk
    with pytest.raises(DataError, match="images.txt' has 200.0 MB; at most 200 MB are read"):
        data.load(f"cub:{birds}")


# -- PASCAL VOC ----------------------------------------------------------------------------------------------------


@pytest.fixture
def voc(tmp_path: Path) -> Path:
    """Three photographs with boxes: people and a horse, a cat, a sofa."""
    root = tmp_path / "VOC2007"
    for stem in ("000001", "000002", "000003"):
        put(root / "JPEGImages" / f"{stem}.jpg")
    annotation(
        root / "Annotations" / "000001.xml", ("person", 1, 1, 10, 10), ("horse", 1, 1, 30, 20), ("horse", 5, 6, 7, 8)
    )
    annotation(root / "Annotations" / "000002.xml", ("cat", 48, 240, 195, 371))
    annotation(root / "Annotations" / "000003.xml", ("sofa", 2, 2, 3, 3))
    write(root / "ImageSets" / "Main" / "val.txt", "000003", "000001")
    write(root / "ImageSets" / "Main" / "cat_val.txt", "000003 -1", "000001  1")
    return root


def test_voc(voc: Path) -> None:
    """The first pixel is 1 in the annotation and 0 to 1 here: 1 to 30 inclusive are 30 pixels, from 0 to 30."""
    dataset = data.load(f"voc:{voc}")
    assert dataset.classes is not None
    assert len(dataset.classes) == 20
    assert list(dataset.classes) == sorted(dataset.classes)
    assert [dataset.classes[item.label or 0] for item in dataset] == ["horse", "cat", "sofa"]
    assert [item.boxes for item in dataset] == [((0, 0, 30, 20), (4, 5, 7, 8)), ((47, 239, 195, 371),), ((1, 1, 3, 3),)]
    assert ids(dataset) == ["000001.jpg", "000002.jpg", "000003.jpg"]
    assert ids(data.load(f"voc:{voc}@val")) == ["000001.jpg", "000003.jpg"]


def test_voc_splits(voc: Path) -> None:
    with pytest.raises(InputError, match="There is no split 'test' in '.*Main'; choose one of val."):
        data.load(f"voc:{voc}@test")
    with pytest.raises(DataError, match="Line 1 of '.*' is '000003 -1'; .* lists of one class are no splits."):
        data.load(f"voc:{voc}@cat_val")
    write(voc / "ImageSets" / "Main" / "bad.txt", "000001", "../../secret")
    with pytest.raises(DataError, match="Line 2 of '.*bad.txt' is '../../secret'; a path inside '.*JPEGImages'"):
        data.load(f"voc:{voc}@bad")
    write(voc / "ImageSets" / "Main" / "gone.txt", "000007")
    with pytest.raises(DataError, match="has no image with an annotation; the first problem is: '.*000007.jpg', na"):
        data.load(f"voc:{voc}@gone")


def test_what_voc_lacks_is_told(voc: Path) -> None:
    put(voc / "JPEGImages" / "000004.jpg")
    annotation(voc / "Annotations" / "000005.xml", ("cat", 1, 1, 2, 2))
    annotation(voc / "Annotations" / "000003.xml")
    (voc / "Annotations" / "._000001.xml").write_bytes(b"\0")
    dataset = data.load(f"voc:{voc}")
    assert ids(dataset) == ["000001.jpg", "000002.jpg"]
    assert len(dataset.problems) == 3
    assert "000003.xml' has no box and so no class for '000003.jpg'; it was left out" in dataset.problems[0]
    assert "000004.jpg' has no annotation '000004.xml'" in dataset.problems[1]
    assert "000005.xml' has no image in JPEGImages" in dataset.problems[2]
    write(voc / "ImageSets" / "Main" / "some.txt", "000001", "000005")
    problems = data.load(f"voc:{voc}@some").problems
    assert ["000005.jpg', named on line 2 of" in problem for problem in problems] == [True]


def test_what_is_no_voc(voc: Path) -> None:
    with pytest.raises(DataError, match="has no folder 'JPEGImages'; did you mean '.*VOC2007'?"):
        data.load(f"voc:{voc.parent}")
    with pytest.raises(DataError, match="has no folder 'JPEGImages'; give a folder such as VOCdevkit/VOC2012."):
        data.load(f"voc:{voc / 'ImageSets'}")


def test_another_class(voc: Path) -> None:
    annotation(voc / "Annotations" / "000002.xml", ("zebra", 1, 1, 2, 2))
    with pytest.raises(DataError, match="000002.xml' has 'zebra', none of VOC's 20 classes; use csv: for"):
        data.load(f"voc:{voc}")


BOMB = '<!DOCTYPE a [<!ENTITY b "bb"><!ENTITY c "&b;&b;">]>'
OBJECT = "<annotation><object><name>cat</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>{}</xmax></bndbox></object>"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (f'<?xml version="1.0"?>\n{BOMB}\n<annotation>&c;</annotation>', "Line 2 of '.*' has a document type, which"),
        ('<!DOCTYPE annotation SYSTEM "file:///etc/passwd"><annotation/>', "Line 1 of '.*' has a document type"),
        ("<annotation>\n&xxe;</annotation>", r"Line 2 of '.*' is not well-formed XML \(undefined entity\)"),
        ("<annotation>\n<object>", r"Line 2 of '.*' is not well-formed XML \(no element found\)"),
        ("", "Line 1 of '.*' is not well-formed XML"),
        ('<?xml version="1.0" encoding="klingon"?><annotation/>', "Line 1 of '.*' is not well-formed XML"),
        ("<html/>", "begins with <html>; an annotation in PASCAL VOC's format was expected."),
        ("<annotation>\n\n<object/></annotation>", "The object on line 3 of '.*' has no <name>; add its class."),
        (OBJECT.format(5) + "</annotation>", "The object on line 1 of '.*' has no <ymax>; a number was expected."),
        (OBJECT.format("wide") + "</annotation>", "has <xmax> 'wide'; a number was expected."),
        (OBJECT.format("inf") + "</annotation>", "has <xmax> 'inf'; a number was expected."),
        ("<annotation>" + " " * _annotations.MAX_XML_BYTES, "has 1.0 MB; at most 1 MB are read"),
    ],
)
def test_annotations_malformed(voc: Path, content: str, sentence: str) -> None:
    (voc / "Annotations" / "000002.xml").write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=sentence):
        data.load(f"voc:{voc}")


def test_nesting_does_no_harm(voc: Path) -> None:
    deep = "<a>" * 100_000 + "</a>" * 100_000
    (voc / "Annotations" / "000002.xml").write_text(f"<annotation>{deep}</annotation>", encoding="utf-8")
    assert "000002.xml' has no box" in data.load(f"voc:{voc}").problems[0]


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.integers(0, 10_000), st.binary(max_size=3)), min_size=1, max_size=6))
def test_a_damaged_annotation_gives_objects_or_our_error(tmp_path: Path, changes: list[tuple[int, bytes]]) -> None:
    file = annotation(tmp_path / "a.xml", ("cat", 1, 2, 3, 4), ("dog", 5, 6, 7, 8))
    content = bytearray(file.read_bytes())
    for place, replacement in changes:
        content[place % len(content) : place % len(content) + 2] = replacement
    file.write_bytes(content)
    with contextlib.suppress(DataError):
        objects, _ = _annotations.read_objects(file)
        assert all(left < right and top < bottom for _, (left, top, right, bottom) in objects)
