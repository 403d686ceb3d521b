"""MATLAB tables: read as scipy reads them, and damaged ones refused."""

import contextlib
import io

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from fei.data.sets._matlab import read_table

TENCH, TABBY = "n01440764", "n02123045"  # synsets of ImageNet


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


def test_tables_and_rows_are_counted(monkeypatch):
    """Eight bytes of a file, which pack to nothing, are a row."""
    stream = io.BytesIO()
    savemat(stream, {"synsets": np.array([(1,)] * 50, dtype=[("ILSVRC2012_ID", "O")])}, do_compression=True)
    assert len(read_table(stream.getvalue(), "synsets", 10**6)) == 50
    monkeypatch.setattr("fei.data.sets._matlab._MOST", 49)
    with pytest.raises(ValueError, match="a table without end"):
        read_table(stream.getvalue(), "synsets", 10**6)
    several = io.BytesIO()
    savemat(several, {f"other{i}": np.zeros(100) for i in range(5)}, do_compression=True)
    with pytest.raises(ValueError, match="it unpacks to more than"):
        read_table(several.getvalue(), "synsets", 3000)


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
