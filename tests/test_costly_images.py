"""Image files that would take a decoder gigabytes or hours: their structure is grown here, not their size."""

import io
import struct
import tracemalloc
import zlib

import pytest
from PIL import Image

from fei.data import read_image
from fei.data._costly import unfolds
from fei.errors import DataError

SHARED, TAGS = 200_000, 400  # bytes that all tags share, and how many: 80 MB
SHORT, LONG = 3, 4


@pytest.fixture
def little_memory():
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000


def directory(tags, order="<", after=b"", first=8):
    """A TIFF file of these tags, as (number, type, count, value); None is the place of what comes after them."""
    end = first + 2 + 12 * len(tags) + 4
    entries = b"".join(struct.pack(f"{order}HHII", *tag[:3], end if tag[3] is None else tag[3]) for tag in tags)
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", first)
    return head.ljust(first, b"\x80") + struct.pack(f"{order}H", len(tags)) + entries + bytes(4) + after


def picture_tags(width=1, **other):
    """The tags of a grey picture whose pixels are behind the head."""
    known = {256: width, 257: width, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: width, 279: width * width}
    return [(tag, LONG, 1, value) for tag, value in (known | other).items()]


def shared(tags=TAGS, size=SHARED):
    return [(40_000 + i, 7, size, None) for i in range(tags)]


def exif(tags=TAGS, size=SHARED, order="<"):
    return directory(shared(tags, size), order, after=bytes(size))


def saved(kind, **how):
    file = io.BytesIO()
    Image.new("RGB", (8, 8), "teal").save(file, kind, **how)
    return file.getvalue()


def png_with(name, content):
    plain, chunk = saved("PNG"), name + content
    return plain[:33] + struct.pack(">I", len(content)) + chunk + struct.pack(">I", zlib.crc32(chunk)) + plain[33:]


def jpeg_with(content):
    """A JPEG with metadata in as many segments as they need."""
    plain, parts = saved("JPEG"), [content[i : i + 65_000] for i in range(0, len(content), 65_000)]
    segments = b"".join(b"\xff\xe1" + struct.pack(">H", len(part) + 8) + b"Exif\0\0" + part for part in parts)
    return plain[:2] + segments + plain[2:]


def test_a_tiff_whose_tags_share_their_bytes(tmp_path, little_memory):
    for order in "<>":
        tags = [*picture_tags(), *shared()]
        (tmp_path / "a.tif").write_bytes(directory(tags, order, after=bytes(SHARED), first=16))
        with pytest.raises(DataError, match="metadata that are far larger than the file"):
            read_image(tmp_path / "a.tif")
    (tmp_path / "a.tif").write_bytes(directory([*picture_tags(), *shared(1)], after=bytes(SHARED), first=16))
    assert read_image(tmp_path / "a.tif").size == (1, 1)


@pytest.mark.parametrize("make", [lambda: png_with(b"eXIf", exif()), lambda: jpeg_with(exif())], ids=["PNG", "JPEG"])
def test_metadata_whose_tags_share_their_bytes(tmp_path, little_memory, make):
    (tmp_path / "a").write_bytes(make())
    assert read_image(tmp_path / "a").size == (8, 8)  # the pixels are none the worse


def test_metadata_of_two_files_in_one(tmp_path, little_memory):
    """The list of a JPEG's further pictures is a directory, too."""
    plain, listed = saved("JPEG"), exif(4000, 10_000)
    segment = b"\xff\xe2" + struct.pack(">H", len(listed) + 6) + b"MPF\0" + listed
    (tmp_path / "a.jpg").write_bytes(plain[:2] + segment + plain[2:])
    assert read_image(tmp_path / "a.jpg").size == (8, 8)


def test_metadata_of_avif(tmp_path):
    pytest.importorskip("PIL._avif")
    (tmp_path / "a.avif").write_bytes(saved("AVIF", exif=exif()))
    with pytest.raises(DataError, match="metadata that are far larger than the file"):
        read_image(tmp_path / "a.avif")
    (tmp_path / "a.avif").write_bytes(saved("AVIF", exif=exif(1)))
    assert read_image(tmp_path / "a.avif").size == (8, 8)


def test_metadata_as_text(tmp_path, little_memory):
    text = b"Raw profile type exif\0\0" + zlib.compress(b"\nexif\n   1\n" + exif(4000, 10_000).hex().encode())
    (tmp_path / "a.png").write_bytes(png_with(b"zTXt", text))
    assert read_image(tmp_path / "a.png").size == (8, 8)


def test_ordinary_metadata_are_read(tmp_path):
    image = Image.new("RGB", (8, 4), "teal")
    told = image.getexif()
    told[0x0112] = 6
    for kind in ("JPEG", "PNG", "WEBP", "TIFF"):
        image.save(tmp_path / "a", kind, exif=told)
        assert read_image(tmp_path / "a").size == (4, 8)


@pytest.mark.parametrize(
    "content", [b"", b"II*\0", b"MM\0+" + bytes(20), b"II*\0\xff\xff\xff\xff", b"II+\0" + b"\xff" * 99]
)
def test_directories_that_are_none(content):
    assert not unfolds(content)


def test_tiles_larger_than_their_image(tmp_path, little_memory):
    packed = zlib.compress(bytes(10_000))
    tags = {key: value for key, *_, value in picture_tags() if key not in (273, 278, 279)}
    for side, refused in ((20_000, True), (256, False)):
        tiled = tags | {256: 10, 257: 10, 259: 8, 322: side, 323: side, 324: None, 325: len(packed)}
        (tmp_path / "a.tif").write_bytes(
            directory([(tag, LONG, 1, value) for tag, value in tiled.items()], after=packed)
        )
        if refused:
            with pytest.raises(DataError, match="tiles that are far larger"):
                read_image(tmp_path / "a.tif")
        else:
            with pytest.raises(DataError, match="damaged"):  # as there are too few pixels
                read_image(tmp_path / "a.tif")


@pytest.mark.parametrize("comments", [(b"\xff" + b"a" * 255) * 5000, b"\0!\xfe" * 66_000], ids=["long", "many"])
def test_comments_of_a_gif(tmp_path, little_memory, comments):
    plain = saved("GIF")
    place = plain.index(b",")
    for told, refused in ((b"\x03abc", False), (comments, True)):
        (tmp_path / "a.gif").write_bytes(plain[:place] + b"!\xfe" + told + b"\0" + plain[place:])
        if refused:
            with pytest.raises(DataError, match="more comments than picture"):
                read_image(tmp_path / "a.gif")
        else:
            assert read_image(tmp_path / "a.gif").size == (8, 8)


def test_pixels_of_an_odd_range(tmp_path):
    (tmp_path / "a.ppm").write_bytes(b"P6 1100 1100 254\n" + bytes(3 * 1100 * 1100))
    with pytest.raises(DataError, match="read one by one"):
        read_image(tmp_path / "a.ppm")
    (tmp_path / "a.ppm").write_bytes(b"P6 1100 1100 255\n" + bytes(3 * 1100 * 1100))
    assert read_image(tmp_path / "a.ppm").size == (1100, 1100)


@pytest.mark.parametrize("marker", [0x02, 0x4F, 0xBF])
def test_scans_behind_a_marker_that_the_decoder_skips(tmp_path, marker):
    """After damage libjpeg looks for the next marker it knows, so what seems the length of another hides nothing."""
    file = io.BytesIO()
    Image.new("L", (64, 64), 128).save(file, "JPEG", progressive=True)
    plain = file.getvalue()
    first = plain.index(b"\xff\xda")
    head = plain[first : first + 2 + struct.unpack(">H", plain[first + 2 : first + 4])[0]]
    last = plain[plain.rindex(b"\xff\xda") : -2]
    restarts = b"\xff\xdd\0\4\0\1"
    hidden = bytes([0xFF, marker, 0xFF, 0xFF]) + last * 70
    (tmp_path / "a.jpg").write_bytes(plain[:first] + restarts + head + b"\0\0" + hidden + b"\xff\xd9")
    with pytest.raises(DataError, match="65 scans or more"):
        read_image(tmp_path / "a.jpg")
