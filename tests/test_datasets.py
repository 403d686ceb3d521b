"""Data sets come out with the right labels and boxes, nothing is left out in silence, and no list leads astray."""

import contextlib
import os
import random
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from dataset_files import ids, labels, put, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from fei import data
from fei.data import Dataset, Item
from fei.errors import DataError, InputError
from fei.models.sources import import_torchvision

# -- the data set itself -------------------------------------------------------------------------------------------

pytestmark = pytest.mark.slow


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
    with pytest.raises(InputError, match="`count` is .*; give how many images to choose, 1 or more."):
        dataset_of("ab").sample(count)


def test_a_wrong_seed() -> None:
    with pytest.raises(InputError, match="`seed` is 0.5; give a whole number."):
        dataset_of("ab").sample(1, seed=0.5)


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
        ("https://example.org/a.jpg", "There is no kind of data set 'https'; give a path or one of"),
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
    assert dataset.problems == (f"'{locked}' cannot be listed, since permission is missing; it was left out.",)
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
    with pytest.raises(DataError, match="has no class folders; give each class one"):
        data.load(f"imagefolder:{tmp_path}")
    (tmp_path / "cat").mkdir()
    with pytest.raises(DataError, match="No class folder of '.*' holds an image, the first being 'cat'"):
        data.load(f"imagefolder:{tmp_path}")


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
