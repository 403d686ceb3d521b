"""Data sets come out with the right labels and boxes, nothing is left out in silence, and no list leads astray."""

import contextlib
import io
import os
import random
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.io import loadmat, savemat

from fei import data
from fei.data import Dataset, Item, _annotations, _files
from fei.data._matlab import read_table
from fei.errors import DataError, InputError
from fei.models._torchvision import import_torchvision

# Three of the 1000 synsets and their well-known indices: tench, tabby, toilet tissue.
TENCH, TABBY, TISSUE = "n01440764", "n02123045", "n15075141"


def put(file: Path, *, size: tuple[int, int] = (4, 3)) -> Path:
    """A tiny image."""
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (200, 100, 50)).save(file, format="PNG" if file.suffix == ".png" else "JPEG")
    return file


def write(file: Path, *lines: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{line}\n" for line in lines))
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


# -- the data set itself -------------------------------------------------------------------------------------------


def dataset_of(names: Iterable[str]) -> Dataset:
    return Dataset("test", tuple(Item(Path(name), name, None) for name in names), None)


def test_it_is_a_sequence_sorted_by_id() -> None:
    dataset = dataset_of(["b", "a", "c"])
    assert ids(dataset) == ["a", "b", "c"]
    assert len(dataset) == 3
    assert dataset[-1].id == "c"
    assert ids(dataset[:2]) == ["a", "b"]
    assert dataset[1] in dataset
    assert repr(dataset) == "Dataset('test', 3 images, no class names, 0 problems)"


def test_ids_are_unique() -> None:
    with pytest.raises(InputError, match="Two items have the id 'a'; give each image an id of its own."):
        dataset_of(["a", "b", "a"])


names = st.sets(st.text(min_size=1), min_size=1, max_size=30)


@given(names=names, seed=st.integers(), count=st.integers(1, 35), shuffle=st.randoms(use_true_random=False))
def test_a_sample_does_not_depend_on_the_order(names: set[str], seed: int, count: int, shuffle: random.Random) -> None:
    shuffled = list(names)
    shuffle.shuffle(shuffled)
    sample = dataset_of(names).sample(count, seed)
    assert sample == dataset_of(shuffled).sample(count, seed)
    assert ids(sample) == sorted(ids(sample))
    assert len(sample) == min(count, len(names))


@given(names=names, seed=st.integers(), count=st.integers(1, 35))
def test_a_larger_sample_contains_the_smaller_one(names: set[str], seed: int, count: int) -> None:
    dataset = dataset_of(names)
    assert set(dataset.sample(count, seed)) <= set(dataset.sample(count + 1, seed))


@given(names=names, removed=names, seed=st.integers(), count=st.integers(1, 35))
def test_other_images_do_not_change_an_images_rank(names: set[str], removed: set[str], seed: int, count: int) -> None:
    """What is drawn from all, and is still there when some are gone, is drawn again."""
    drawn = ids(dataset_of(names | removed).sample(count, seed))
    assert set(drawn) - removed <= set(ids(dataset_of((names - removed) | {"one"}).sample(count + 1, seed)))


def test_a_sample_is_the_same_on_every_machine() -> None:
    """SHA-256 of "0\\0a" to "0\\0f", by sha256sum: those of f, d and c are the smallest."""
    letters = dataset_of("abcdef")
    assert ids(letters.sample(3)) == ["c", "d", "f"]
    assert len({tuple(ids(letters.sample(3, seed))) for seed in range(20)}) > 5


def test_names_that_are_not_text_can_be_sampled() -> None:
    assert len(dataset_of(["caf\udce9.jpg", "b.jpg"]).sample(1)) == 1


@pytest.mark.parametrize("count", [0, -1, 2.0, True, "3"])
def test_a_wrong_count(count: int) -> None:
    with pytest.raises(InputError, match="count is .*; give how many images to choose, 1 or more."):
        dataset_of("ab").sample(count)


def test_a_wrong_seed() -> None:
    with pytest.raises(InputError, match="seed is 0.5; give a whole number."):
        dataset_of("ab").sample(1, seed=0.5)  # type: ignore[arg-type]


def test_what_cannot_be_read_is_reported_and_passed_over(tmp_path: Path) -> None:
    put(tmp_path / "a.jpg", size=(64, 64))
    whole = put(tmp_path / "b.jpg", size=(64, 64)).read_bytes()
    (tmp_path / "b.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "c.png").write_bytes(b"")
    put(tmp_path / "d.jpg")
    put(tmp_path / "e.png", size=(5, 6))
    dataset = data.load(str(tmp_path))
    (tmp_path / "d.jpg").unlink()

    problems: list[tuple[str, str]] = []
    read = list(dataset.readable(lambda image: image.size, lambda item, error: problems.append((item.id, str(error)))))
    assert [(item.id, size) for item, size in read] == [("a.jpg", (64, 64)), ("e.png", (5, 6))]
    assert [name for name, _ in problems] == ["b.jpg", "c.png", "d.jpg"]
    assert "b.jpg' cannot be read as an image: it is damaged" in problems[0][1]
    assert "There is no image file" in problems[2][1]


def test_a_mistake_in_preprocess_is_no_fault_of_the_data(tmp_path: Path) -> None:
    put(tmp_path / "a.jpg")

    def wrong(image: Image.Image) -> None:
        raise InputError("wrong")

    with pytest.raises(InputError, match="wrong"):
        list(data.load(str(tmp_path)).readable(wrong, lambda item, error: None))


# -- specifications ------------------------------------------------------------------------------------------------


def test_available_forms() -> None:
    forms = [form for form, _ in data.available()]
    assert forms[3:] == ["imagefolder:DIR", "imagenet:DIR", "cub:DIR[@train|@test]", "voc:DIR[@SPLIT]", "csv:FILE"]
    assert all(description for _, description in data.available())


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("", "The data set is given as ''; give one of: path/to/image.jpg, .*csv:FILE."),
        (7, "The data set is given as 7; give one of"),
        ("absent.jpg", "There is no file or folder 'absent.jpg'; check the path."),
        ("zero\0.jpg", "There is no file or folder"),
        ("x" * 5000, "There is no file or folder"),
        ("~nobody-of-this-name/x", "There is no file or folder '~nobody-of-this-name/x'"),
        ("imagnet:x", "There is no kind of data set 'imagnet'; did you mean imagenet:DIR?"),
        ("https://example.org/a.jpg", "There is no kind of data set 'https'; give one of"),
        ("cub:", "The data set 'cub:' names no place; the form is cub:DIR"),
        ("cub:absent", "The folder 'absent' is not there; check the path."),
        ("voc:absent@val", "The folder 'absent' is not there; check the path."),
        ("imagenet:absent", "The folder 'absent' is not there; check the path."),
        ("imagefolder:absent", "The folder 'absent' is not there; check the path."),
        ("csv:absent.csv", "There is no table 'absent.csv'; check the path."),
        ("absent/*.jpg", r"The folder 'absent' of the pattern 'absent/\*.jpg' is not there"),
    ],
)
def test_what_names_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, sentence: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=sentence):
        data.load(spec)


def test_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    put(tmp_path / "photos" / "cat" / "a.jpg")
    assert ids(data.load("~/photos")) == ids(data.load("imagefolder:~/photos")) == ["cat/a.jpg"]


# -- files, folders, patterns --------------------------------------------------------------------------------------


def test_one_file(tmp_path: Path) -> None:
    file = put(tmp_path / "odd[1].jpg")
    dataset = data.load(str(file))
    assert dataset.items == (Item(file, "odd[1].jpg", None),)
    assert dataset.classes is None
    assert dataset.spec == str(file)


def test_a_folder_and_all_below_it(tmp_path: Path) -> None:
    for name in ("b.JPG", "a/z.png", "a/deep/er/x.jpeg", ".hidden.jpg", ".cache/y.jpg"):
        put(tmp_path / name)
    write(tmp_path / "notes.txt", "no image")
    dataset = data.load(str(tmp_path))
    assert ids(dataset) == ["a/deep/er/x.jpeg", "a/z.png", "b.JPG"]
    assert dataset[0].path == tmp_path / "a/deep/er/x.jpeg"
    assert {item.label for item in dataset} == {None}
    assert dataset.problems == ()


def test_a_folder_without_images(tmp_path: Path) -> None:
    write(tmp_path / "notes.txt", "no image")
    with pytest.raises(DataError, match=r"There is no image in '.*'; give a folder with files such as photo.jpg."):
        data.load(str(tmp_path))


def test_links_are_followed_once(tmp_path: Path) -> None:
    """Eight links in each of three folders would make 8^40 paths before the system says that these are too many."""
    elsewhere = put(tmp_path / "elsewhere" / "far.jpg").parent
    root = tmp_path / "root"
    for folder in ("a", "b", "c"):
        put(root / folder / f"{folder}.jpg")
        for i in range(8):
            (root / folder / f"up{i}").symlink_to(root)
    (root / "there").symlink_to(elsewhere)
    (root / "linked.jpg").symlink_to(root / "a" / "a.jpg")
    (root / "self.jpg").symlink_to("self.jpg")
    (root / "gone.jpg").symlink_to("nowhere.jpg")
    os.mkfifo(root / "pipe.jpg")
    dataset = data.load(str(root))
    assert ids(dataset) == ["a/a.jpg", "b/b.jpg", "c/c.jpg", "linked.jpg", "there/far.jpg"]
    assert [problem.split("'")[1] for problem in dataset.problems] == [
        str(root / name) for name in ("gone.jpg", "pipe.jpg", "self.jpg")
    ]
    assert "is a broken link or no regular file; it was left out." in dataset.problems[0]
    assert ids(data.load(f"{root}/**/*.jpg")) == ids(dataset)


def test_a_locked_folder_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "a.jpg")
    locked = put(tmp_path / "locked" / "b.jpg").parent
    scandir = os.scandir

    def refuse(path: Path) -> object:
        if path == locked:
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    dataset = data.load(str(tmp_path))
    assert ids(dataset) == ["a.jpg"]
    assert dataset.problems == (f"'{locked}' cannot be listed for want of permission; it was left out.",)
    for spec in (str(locked), f"imagefolder:{locked}"):
        with pytest.raises(InputError, match=r"locked' cannot be listed \(Permission denied\); check its permissions."):
            data.load(spec)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.jpg", ["top.jpg"]),
        ("*", ["top.jpg"]),
        ("**/*.jpg", ["a/b/c/x.jpg", "a/x.jpg", "top.jpg"]),
        ("**", ["a/b/c/x.jpg", "a/b/y.png", "a/x.jpg", "top.jpg"]),
        ("**/b/**/*", ["a/b/c/x.jpg", "a/b/y.png"]),
        ("a/**/[xy].*", ["b/c/x.jpg", "b/y.png", "x.jpg"]),
        ("a/?.jpg", ["x.jpg"]),
        ("*/*/*.png", ["a/b/y.png"]),
    ],
)
def test_a_pattern(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, expected: list[str]) -> None:
    for name in ("top.jpg", "a/x.jpg", "a/b/y.png", "a/b/c/x.jpg"):
        put(tmp_path / name)
    write(tmp_path / "a" / "b" / "notes.txt", "no image")
    assert ids(data.load(f"{tmp_path}/{pattern}")) == expected
    monkeypatch.chdir(tmp_path)
    assert ids(data.load(pattern)) == expected


def test_a_pattern_that_nothing_matches(tmp_path: Path) -> None:
    put(tmp_path / "a.jpg")
    with pytest.raises(InputError, match=r"No image matches '.*/\*.png'; check the pattern"):
        data.load(f"{tmp_path}/*.png")


# -- class folders -------------------------------------------------------------------------------------------------


def test_class_folders(tmp_path: Path) -> None:
    for name in ("dog/1.jpg", "cat/2.jpg", "cat/more/1.png", "Zebra/3.jpg", "loose.jpg", ".git/4.jpg"):
        put(tmp_path / name)
    (tmp_path / "empty").mkdir()
    dataset = data.load(f"imagefolder:{tmp_path}")
    assert dataset.classes == ("Zebra", "cat", "dog", "empty")
    assert labels(dataset) == {"Zebra/3.jpg": 0, "cat/2.jpg": 1, "cat/more/1.png": 1, "dog/1.jpg": 2}
    assert len(dataset.problems) == 2
    assert "loose.jpg' lies outside the class folders" in dataset.problems[0]
    assert "empty' holds no images" in dataset.problems[1]


def test_class_folders_are_numbered_as_torchvision_does(tmp_path: Path) -> None:
    folder = import_torchvision().datasets.ImageFolder
    for name in ("b/1.jpg", "B/1.jpg", "a b/1.jpg", "10/1.jpg", "9/x/1.png", "é/1.jpg"):
        put(tmp_path / name)
    theirs = folder(str(tmp_path))
    dataset = data.load(f"imagefolder:{tmp_path}")
    assert dataset.classes == tuple(theirs.classes)
    assert {str(item.path): item.label for item in dataset} == dict(theirs.samples)


def test_without_class_folders(tmp_path: Path) -> None:
    put(tmp_path / "a.jpg")
    with pytest.raises(DataError, match="has no class folders; put each class's images into a folder of its own"):
        data.load(f"imagefolder:{tmp_path}")
    (tmp_path / "cat").mkdir()
    with pytest.raises(DataError, match="No class folder of '.*' holds an image, the first being 'cat'"):
        data.load(f"imagefolder:{tmp_path}")


# -- ImageNet ------------------------------------------------------------------------------------------------------


def test_the_synsets_are_those_of_the_assets(assets: Path) -> None:
    lines = (assets / "imagenet" / "classes.txt").read_text().splitlines()
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
    with pytest.raises(DataError, match="ground_truth.txt' numbers the classes in an order of its own, .* meta.mat"):
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
    with pytest.raises(DataError, match="No image in '.*' has a known class, the first problem being: "):
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
    with pytest.raises(DataError, match="There is no 'train_test_split.txt' in '.*CUB_200_2011'; give the folder"):
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
        ("images.txt", ["4 001.Black_footed_Albatross/a.jpg"], "labels.txt' has no line for image 4, which images.txt"),
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
    with pytest.raises(DataError, match=f"There is no '{file}' in '.*'; give the folder that CUB_200_2011.tgz unpacks"):
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
        file.truncate(_files.MAX_LIST_BYTES + 1)  # sparse: it takes no room on the disk
    with pytest.raises(DataError, match="images.txt' has 200.0 MB and at most 200 MB are read"):
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
    with pytest.raises(InputError, match="There is no split 'test', for want of '.*Main/test.txt'; there is val."):
        data.load(f"voc:{voc}@test")
    with pytest.raises(DataError, match="Line 1 of '.*' is '000003 -1'; .* lists of one class are no splits."):
        data.load(f"voc:{voc}@cat_val")
    write(voc / "ImageSets" / "Main" / "bad.txt", "000001", "../../secret")
    with pytest.raises(DataError, match="Line 2 of '.*bad.txt' is '../../secret'; a path inside '.*JPEGImages'"):
        data.load(f"voc:{voc}@bad")
    write(voc / "ImageSets" / "Main" / "gone.txt", "000007")
    with pytest.raises(DataError, match="has no image with an annotation, the first problem being: '.*000007.jpg', na"):
        data.load(f"voc:{voc}@gone")


def test_what_voc_lacks_is_told(voc: Path) -> None:
    put(voc / "JPEGImages" / "000004.jpg")
    annotation(voc / "Annotations" / "000005.xml", ("cat", 1, 1, 2, 2))
    annotation(voc / "Annotations" / "000003.xml")
    (voc / "Annotations" / "._000001.xml").write_bytes(b"\0")
    dataset = data.load(f"voc:{voc}")
    assert ids(dataset) == ["000001.jpg", "000002.jpg"]
    assert len(dataset.problems) == 3
    assert "000003.xml' has no box, so the class of '000003.jpg' is unknown" in dataset.problems[0]
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
    with pytest.raises(DataError, match="000002.xml' has an object 'zebra', none of VOC's 20 classes; use csv: for"):
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
        ("<annotation>" + " " * _annotations.MAX_XML_BYTES, "has 1.0 MB and at most 1 MB are read"),
    ],
)
def test_annotations_malformed(voc: Path, content: str, sentence: str) -> None:
    (voc / "Annotations" / "000002.xml").write_text(content)
    with pytest.raises(DataError, match=sentence):
        data.load(f"voc:{voc}")


def test_nesting_does_no_harm(voc: Path) -> None:
    deep = "<a>" * 100_000 + "</a>" * 100_000
    (voc / "Annotations" / "000002.xml").write_text(f"<annotation>{deep}</annotation>")
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


# -- tables --------------------------------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path: Path) -> Callable[..., Path]:
    """Write a table beside a.jpg, b/c.png and ../outside.jpg."""
    for name in ("set/a.jpg", "set/b/c.png", "outside.jpg"):
        put(tmp_path / name)
    return lambda *lines: write(tmp_path / "set" / "table.csv", *lines)


def test_a_table_with_names_and_boxes(table: Callable[..., Path]) -> None:
    file = table(
        "Label, path,left,top,right,bottom,remark",
        "dog,b/c.png,0,1.5,3,4,",
        '"cat, tabby",./a.jpg,,,,,first',
        "",
        "dog,b//c.png,5,5,6,6,second box",
    )
    dataset = data.load(f"csv:{file}")
    assert dataset.classes == ("cat, tabby", "dog")
    assert dataset.items == (
        Item(file.parent / "a.jpg", "a.jpg", 0),
        Item(file.parent / "b/c.png", "b/c.png", 1, ((0, 1.5, 3, 4), (5, 5, 6, 6))),
    )


def test_a_table_with_indices(table: Callable[..., Path]) -> None:
    dataset = data.load(f"csv:{table('path,label', 'a.jpg,281', 'b/c.png,')}")
    assert labels(dataset) == {"a.jpg": 281, "b/c.png": None}
    assert dataset.classes is None


def test_a_users_own_table_may_lead_anywhere(table: Callable[..., Path], tmp_path: Path) -> None:
    elsewhere = put(tmp_path / "else" / "where.jpg")
    dataset = data.load(f"csv:{table('path,label', '../outside.jpg,1', f'{elsewhere},2', f'{tmp_path}/set/a.jpg,3')}")
    assert labels(dataset) == {"../outside.jpg": 1, elsewhere.as_posix(): 2, "a.jpg": 3}
    assert all(item.path.is_file() for item in dataset)


def test_a_missing_image_of_a_table(table: Callable[..., Path]) -> None:
    file = table("path,label", "a.jpg,1", "gone.jpg,1", "b,1")
    dataset = data.load(f"csv:{file}")
    assert ids(dataset) == ["a.jpg"]
    gone, folder = (
        f"'{file.parent / name}', named on line {line} of '{file}', is not there; it was left out."
        for name, line in (("gone.jpg", 3), ("b", 4))
    )
    assert dataset.problems == (gone, folder)


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ([], "Line 1 of '.*table.csv' is ''; a header with path,label or"),
        (["path;label"], "Line 1 of '.*table.csv' is 'path;label'; a header with path,label or"),
        (["path,label,left,top"], "a header with path,label or path,label,left,top,right,bottom was expected."),
        (["path,label"], "table.csv' names no images; paths count from the folder of the table."),
        (["path,label", "x.jpg,1", "y.jpg,1"], "table.csv' names 2 images and none of them is there"),
        (["path,label", "a.jpg"], "Line 2 of '.*' is 'a.jpg'; 2 values were expected, as in the header."),
        (["path,label", ",1"], "Line 2 of '.*' is ',1'; the path of an image was expected."),
        (["path,label", "a\0.jpg,1"], "the path of an image was expected"),
        (["path,label", "a.jpg,-1"], "Line 2 .* the label '-1' is neither a class's index nor a name."),
        (["path,label", "a.jpg,3.0"], "the label '3.0' is neither"),
        (["path,label", "a.jpg,1234567890"], "the label '1234567890' is neither"),
        (["path,label", "a.jpg,3", "b/c.png,cat"], "Line 2 of '.*' is '3'; line 3 has a name, 'cat', and labels are"),
        (["path,label", "a.jpg,3", "./a.jpg,3"], "Line 3 of '.*' is 'a.jpg'; line 2 has that image already"),
        (["path,label", 'a.jpg,"cat" s'], "Line 2 of '.*' is not CSV"),
        (["path,label,left,top,right,bottom", "a.jpg,1,1,2,3,"], "Line 2 .* left below right and top below bottom"),
        (["path,label,left,top,right,bottom", "a.jpg,1,3,2,3,4"], "left below right"),
        (["path,label,left,top,right,bottom", "a.jpg,1,0,0,inf,4"], "left below right"),
        (["path,label,left,top,right,bottom", "a.jpg,1,0,0,4,4", "a.jpg,2,0,0,4,4"], "Line 3 .* that image already"),
    ],
)
def test_tables_malformed(table: Callable[..., Path], lines: list[str], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        data.load(f"csv:{table(*lines)}")


def test_a_long_line_is_shown_in_brief(table: Callable[..., Path]) -> None:
    with pytest.raises(DataError) as caught:
        data.load(f"csv:{table('path,label', 'x' * 5000)}")
    assert len(str(caught.value)) < 400


def test_a_table_that_is_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There is no table '.*'; check the path."):
        data.load(f"csv:{tmp_path}")


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.binary(max_size=60) | st.text(alphabet=',."\n\r\0 -1a/jpg', max_size=60).map(str.encode))
def test_any_table_gives_a_data_set_or_our_error(table: Callable[..., Path], rows: bytes) -> None:
    file = table("path,label", "a.jpg,7")
    file.write_bytes(file.read_bytes() + rows)
    with contextlib.suppress(DataError):
        assert "a.jpg" in ids(data.load(f"csv:{file}"))


@pytest.mark.parametrize("compressed", [False, True])
def test_a_table_of_matlab_is_read_as_scipy_reads_it(compressed):
    fields = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("gloss", "O"), ("children", "O"), ("height", "O")]
    rows = [(1, TENCH, "a fish, é", np.arange(3.0), 0.5), (70000, TABBY, "", np.zeros(0), -2.0)]
    stream = io.BytesIO()
    savemat(stream, {"other": [1.0], "synsets": np.array(rows, dtype=fields)}, do_compression=compressed)
    told = loadmat(stream, squeeze_me=True)["synsets"]
    found = read_table(stream.getvalue(), "synsets", 10**6)
    for name in ("ILSVRC2012_ID", "WNID", "height"):
        assert (
            [row[name] for row in found]
            == told[name].tolist()
            == [dict(zip(told.dtype.names, r, strict=True))[name] for r in rows]
        )
    assert [row["gloss"] or "" for row in found] == ["a fish, é", ""]
    assert [row["children"] for row in found] == [None, None]
    with pytest.raises(ValueError, match="there is no table 'none'"):
        read_table(stream.getvalue(), "none", 10**6)


def test_a_table_of_matlab_that_unpacks_to_more_than_is_borne():
    stream = io.BytesIO()
    savemat(stream, {"synsets": np.zeros(10**6)}, do_compression=True)
    with pytest.raises(ValueError, match="it unpacks to more than 1000 bytes"):
        read_table(stream.getvalue(), "synsets", 1000)


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_table_of_matlab_is_read_or_refused(seed):
    """On some of these scipy's reader ends the process."""
    stream, rng = io.BytesIO(), np.random.default_rng(seed)
    savemat(stream, {"synsets": np.array([(1, TENCH)], dtype=[("ILSVRC2012_ID", "O"), ("WNID", "O")])})
    content = bytearray(stream.getvalue())
    for place in rng.integers(128, len(content), 4):
        content[place] = rng.integers(256)
    with contextlib.suppress(ValueError):
        assert isinstance(read_table(bytes(content), "synsets", 10**6), list)
