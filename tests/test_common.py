"""What every package uses: files that are there whole or not at all, and suggestions of names."""

import errno
import os
import stat

import pytest

from fei.common.files import prepare_folder, replacing, write_file, write_files
from fei.common.words import suggestion
from fei.errors import DataError, InputError


def names(folder):
    return sorted(path.name for path in folder.rglob("*"))


def test_files_appear_in_order_once_all_are_on_the_disk(tmp_path, monkeypatch):
    there, seen, replace = tmp_path / "there", [], os.replace
    (tmp_path / "old").touch()

    def watched(source, target):
        seen.append((target.name, len(list(tmp_path.glob(".fei-*")))))
        replace(source, target)

    monkeypatch.setattr(os, "replace", watched)
    write_files(tmp_path, {"a": b"1", "b": "ü", "there": "3"}, gone=["old", "never"])
    assert seen == [("a", 3), ("b", 2), ("there", 1)]
    assert names(tmp_path) == ["a", "b", "there"]
    assert (tmp_path / "b").read_bytes() == "ü".encode()
    assert there.read_text(encoding="utf-8") == "3"


@pytest.mark.skipif(os.name != "posix", reason="folders cannot be written through there")
def test_the_names_are_on_the_disk_after_the_files(tmp_path, monkeypatch):
    """A map that a power cut takes away again must not be noted as kept: its name is written through before that."""
    done, fsync, replace = [], os.fsync, os.replace

    def through(descriptor):
        done.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def renamed(source, target):
        done.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", through)
    monkeypatch.setattr(os, "replace", renamed)
    with replacing(tmp_path / "a") as stream:
        stream.write(b"1")
    assert done == ["file", "rename", "folder"]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_disk_that_refuses_leaves_what_was_there(tmp_path, monkeypatch, failing):
    write_file(tmp_path / "a", "old", what="thing")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, failing, full)
        with pytest.raises(
            DataError, match=r"The thing cannot be written to '.*' \(No space left on device\); free some"
        ):
            write_files(tmp_path, {"a": "new", "b": "new"}, what="thing")
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text(encoding="utf-8") == "old"


def test_a_block_that_fails_changes_nothing(tmp_path):
    def fail(stream):
        stream.write(b"half")
        raise KeyboardInterrupt

    (tmp_path / "a").write_text("old", encoding="utf-8")
    with pytest.raises(KeyboardInterrupt), replacing(tmp_path / "a") as stream:
        fail(stream)
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text(encoding="utf-8") == "old"


def test_a_link_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "precious").write_text("mine", encoding="utf-8")
    (tmp_path / "a").symlink_to("precious")
    write_file(tmp_path / "a", "new", what="thing")
    assert (tmp_path / "precious").read_text(encoding="utf-8") == "mine"
    assert not (tmp_path / "a").is_symlink()


def test_new_files_have_the_permissions_of_any_new_file(tmp_path):
    (tmp_path / "plain").touch()
    write_file(tmp_path / "a", "new", what="thing")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_folders(tmp_path):
    prepare_folder(tmp_path / "deep" / "er")
    assert names(tmp_path) == ["deep", "er"]
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"The report cannot be written to '.*file' \(it is not a folder\); choose"):
        prepare_folder(tmp_path / "file", what="report")
    with pytest.raises(InputError, match="The folder '.*nowhere' for the report does not exist; make it first"):
        write_file(tmp_path / "nowhere" / "a", "", what="report")


@pytest.mark.parametrize(
    ("wrong", "otherwise", "expected"),
    [
        ("Saliencyy", "", "did you mean saliency?"),
        ("gradcan", "", "did you mean gradcam or gradcam++?"),
        ("xyz", "", "choose one of gradcam, gradcam++, saliency"),
        ("xyz", "see there", "see there"),
    ],
)
def test_suggestions(wrong, otherwise, expected):
    assert suggestion(wrong, ["gradcam", "gradcam++", "saliency"], otherwise, cutoff=0.5) == expected
