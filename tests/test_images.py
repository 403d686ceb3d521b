"""Images come out as a person sees them, and a hostile file costs neither memory nor control."""

import contextlib
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import skimage.data
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from fei.data import demo_image, images, read_image
from fei.errors import DataError, FEIError, InputError

pytestmark = pytest.mark.slow

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def png(width: int, height: int, data: bytes, *, bits: int = 8, colour: int = 2, key: bytes = b"") -> bytes:
    """A PNG file, written by hand: by default 8-bit RGB with the given compressed pixels, and no transparent colour."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0))
    transparent = chunk(b"tRNS", key) if key else b""
    return b"\x89PNG\r\n\x1a\n" + header + transparent + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def deep_png(*samples: int, colour: int, key: bytes = b"") -> bytes:
    """A PNG file of one row with 16 bits a sample."""
    row = b"\0" + struct.pack(f">{len(samples)}H", *samples)
    return png(len(samples) // {0: 1, 2: 3, 4: 2, 6: 4}[colour], 1, zlib.compress(row), bits=16, colour=colour, key=key)


def deep_tiff(planes: list[list[int]], *, photometric: int, planar: int = 1, orientation: int = 1) -> bytes:
    """A TIFF file of one row with 16 bits a sample, written by hand; each plane is the row in one colour."""
    count, width = len(planes), len(planes[0])
    rows = planes if planar == 2 else [[plane[x] for x in range(width) for plane in planes]]
    pixels = [struct.pack(f"<{len(row)}H", *row) for row in rows]
    entries = 10
    table = 8 + 2 + 12 * entries + 4  # what follows the header and the list of tags
    bits, offsets, counts = table, table + 2 * count, table + 2 * count + 4 * len(rows)
    data = counts + 4 * len(rows)
    starts = [data + i * len(pixels[0]) for i in range(len(rows))]
    one = len(rows) == 1
    tags = [
        *[(256, 4, 1, width), (257, 4, 1, 1), (258, 3, count, 16 if count == 1 else bits), (259, 3, 1, 1)],
        *[(262, 3, 1, photometric), (273, 4, len(rows), starts[0] if one else offsets), (274, 3, 1, orientation)],
        *[(277, 3, 1, count), (279, 4, len(rows), len(pixels[0]) if one else counts), (284, 3, 1, planar)],
    ]
    header = b"II*\0" + struct.pack("<IH", 8, entries) + b"".join(struct.pack("<HHII", *tag) for tag in tags)
    lists = struct.pack(f"<{count}H", *[16] * count) + struct.pack(f"<{len(rows)}I", *starts)
    return header + bytes(4) + lists + struct.pack(f"<{len(rows)}I", *map(len, pixels)) + b"".join(pixels)


# Where the corner marked red ends up: a 3 × 2 image whose stored top-left pixel is red, for each EXIF orientation.
# From the EXIF standard: 1 = row 0 is the top and column 0 the left; 6 = row 0 is the right side, column 0 the top ...
@pytest.mark.parametrize(
    ("orientation", "size", "red_at"),
    [
        (1, (3, 2), (0, 0)),
        (2, (3, 2), (2, 0)),
        (3, (3, 2), (2, 1)),
        (4, (3, 2), (0, 1)),
        (5, (2, 3), (0, 0)),
        (6, (2, 3), (1, 0)),
        (7, (2, 3), (1, 2)),
        (8, (2, 3), (0, 2)),
    ],
)
@pytest.mark.parametrize("ending", ["png", "tiff", "webp"])
def test_exif_orientation_is_applied_once(
    tmp_path: Path, ending: str, orientation: int, size: tuple[int, int], red_at: tuple[int, int]
) -> None:
    image = Image.new("RGB", (3, 2), BLUE)
    image.putpixel((0, 0), RED)
    exif = Image.Exif()
    exif[0x0112] = orientation
    lossless = {"lossless": True} if ending == "webp" else {}
    image.save(tmp_path / f"photo.{ending}", exif=exif, **lossless)

    upright = read_image(tmp_path / f"photo.{ending}")
    assert upright.size == size
    assert upright.getpixel(red_at) == RED
    assert sum(upright.getpixel((x, y)) == RED for x in range(size[0]) for y in range(size[1])) == 1
    assert images.to_rgb(upright).size == size


def test_jpeg_orientation(tmp_path: Path) -> None:
    image = Image.new("RGB", (64, 32), BLUE)
    image.paste(RED, (0, 0, 16, 16))
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / "photo.jpg", exif=exif, quality=95)
    upright = np.asarray(read_image(tmp_path / "photo.jpg")).astype(int)
    assert upright.shape == (64, 32, 3)
    assert np.abs(upright[4, 28] - RED).max() < 10
    assert np.abs(upright[4, 4] - BLUE).max() < 10


def test_greyscale(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 100, 255]], dtype=np.uint8)).save(tmp_path / "grey.png")
    assert np.asarray(read_image(tmp_path / "grey.png")).tolist() == [[[0] * 3, [100] * 3, [255] * 3]]


def test_bilevel(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 255]], dtype=np.uint8)).convert("1").save(tmp_path / "bilevel.png")
    assert np.asarray(read_image(tmp_path / "bilevel.png")).tolist() == [[[0] * 3, [255] * 3]]


@pytest.mark.parametrize("ending", ["png", "tiff"])
def test_16_bit_greyscale_is_scaled_not_clipped(tmp_path: Path, ending: str) -> None:
    Image.fromarray(np.array([[0, 257, 25700, 25829, 65535]], dtype=np.uint16)).save(tmp_path / f"deep.{ending}")
    assert np.asarray(read_image(tmp_path / f"deep.{ending}"))[0, :, 0].tolist() == [0, 1, 100, 101, 255]


def test_16_bit_greyscale_with_a_transparent_shade_is_put_on_white(tmp_path: Path) -> None:
    (tmp_path / "key.png").write_bytes(deep_png(0, 25700, 25701, colour=0, key=struct.pack(">H", 25700)))
    assert np.asarray(read_image(tmp_path / "key.png"))[0, :, 0].tolist() == [0, 255, 100]


def test_16_bit_greyscale_in_which_zero_is_white(tmp_path: Path) -> None:
    """Photometric 0, as scanners and X-ray machines write it; turned to stand on its head, once."""
    (tmp_path / "scan.tiff").write_bytes(deep_tiff([[0, 25700, 65535]], photometric=0))
    assert np.asarray(read_image(tmp_path / "scan.tiff"))[0, :, 0].tolist() == [255, 155, 0]
    (tmp_path / "scan.tiff").write_bytes(deep_tiff([[0, 25700, 65535]], photometric=0, orientation=3))
    assert np.asarray(read_image(tmp_path / "scan.tiff"))[0, :, 0].tolist() == [0, 155, 255]


@pytest.mark.parametrize("ending", ["png", "tiff"])
def test_16_bit_colour_is_scaled_not_clipped(tmp_path: Path, ending: str) -> None:
    pixels = [0, 25700, 65535, 257, 65535, 514]
    planes = [pixels[channel::3] for channel in range(3)]
    content = deep_png(*pixels, colour=2) if ending == "png" else deep_tiff(planes, photometric=2)
    (tmp_path / f"deep.{ending}").write_bytes(content)
    assert np.asarray(read_image(tmp_path / f"deep.{ending}")).tolist() == [[[0, 100, 255], [1, 255, 2]]]


def test_16_bit_colour_plane_by_plane_is_refused(tmp_path: Path) -> None:
    """Pillow takes the bytes of such a file for pixels of 8 bits."""
    (tmp_path / "planes.tiff").write_bytes(deep_tiff([[0, 1], [2, 3], [4, 5]], photometric=2, planar=2))
    with pytest.raises(DataError, match="planes.tiff' is a 16-bit TIFF with one plane per colour, which is not read"):
        read_image(tmp_path / "planes.tiff")


def test_16_bit_transparency_is_put_on_white(tmp_path: Path) -> None:
    (tmp_path / "rgba.png").write_bytes(deep_png(65535, 0, 0, 65535, 65535, 0, 0, 0, colour=6))
    assert np.asarray(read_image(tmp_path / "rgba.png")).tolist() == [[list(RED), list(WHITE)]]
    (tmp_path / "la.png").write_bytes(deep_png(25700, 65535, 25700, 0, colour=4))
    assert np.asarray(read_image(tmp_path / "la.png")).tolist() == [[[100] * 3, list(WHITE)]]


def test_floating_point_in_the_unit_interval(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0.0, 0.5, 1.0]], dtype=np.float32)).save(tmp_path / "float.tiff")
    assert np.asarray(read_image(tmp_path / "float.tiff"))[0, :, 1].tolist() == [0, 128, 255]


@pytest.mark.parametrize("value", [1.5, -0.5, float("nan")])
def test_floating_point_of_unknown_scale_is_refused(tmp_path: Path, value: float) -> None:
    Image.fromarray(np.array([[0.0, value]], dtype=np.float32)).save(tmp_path / "float.tiff")
    with pytest.raises(DataError, match=r"float.tiff' has floating-point pixels outside \[0, 1\]"):
        read_image(tmp_path / "float.tiff")


def test_32_bit_integers_of_unknown_scale_are_refused(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 1 << 20]], dtype=np.int32)).save(tmp_path / "int.tiff")
    with pytest.raises(DataError, match=r"integer pixels outside \[0, 65535\]"):
        read_image(tmp_path / "int.tiff")


def test_cmyk(tmp_path: Path) -> None:
    """Full cyan is red taken away from white; full black is black."""
    cmyk = Image.new("CMYK", (32, 16), (255, 0, 0, 0))
    cmyk.paste((0, 0, 0, 255), (16, 0, 32, 16))
    cmyk.save(tmp_path / "print.jpg", quality=95)
    rgb = np.asarray(read_image(tmp_path / "print.jpg")).astype(int)
    assert np.abs(rgb[8, 4] - (0, 255, 255)).max() < 10
    assert np.abs(rgb[8, 28]).max() < 10


def test_a_colour_mode_without_a_conversion_is_refused() -> None:
    with pytest.raises(DataError, match=r"The image has the colour mode La, which is not read; save it as RGB"):
        images.to_rgb(Image.new("La", (2, 2)))


def test_palette(tmp_path: Path) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([*RED, *GREEN])
    image.putpixel((1, 0), 1)
    image.save(tmp_path / "palette.png")
    assert np.asarray(read_image(tmp_path / "palette.png")).tolist() == [[list(RED), list(GREEN)]]


def test_palette_with_a_transparent_entry_is_put_on_white(tmp_path: Path) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([*RED, *GREEN])
    image.putpixel((1, 0), 1)
    image.save(tmp_path / "palette.png", transparency=0)
    assert np.asarray(read_image(tmp_path / "palette.png")).tolist() == [[list(WHITE), list(GREEN)]]


def test_palette_with_a_table_of_transparency_is_put_on_white(tmp_path: Path) -> None:
    image = Image.new("P", (3, 1))
    image.putpalette([*RED, *GREEN, 0, 0, 0])
    image.putdata([0, 1, 2])
    image.save(tmp_path / "palette.png", transparency=bytes([0, 255, 51]))
    # 51 is a fifth of 255: a fifth black and four fifths white.
    assert np.asarray(read_image(tmp_path / "palette.png")).tolist() == [[list(WHITE), list(GREEN), [204] * 3]]


def test_a_palette_that_is_missing(tmp_path: Path) -> None:
    Image.new("P", (2, 2)).save(tmp_path / "a.png")
    content = (tmp_path / "a.png").read_bytes()
    place = content.index(b"PLTE")
    length = int.from_bytes(content[place - 4 : place])
    (tmp_path / "a.png").write_bytes(content[: place - 4] + content[place + 8 + length :])
    with pytest.raises(DataError, match="a.png' takes its colours from a palette that is missing; save it as RGB"):
        read_image(tmp_path / "a.png")


def test_transparency_is_put_on_white(tmp_path: Path) -> None:
    pixels = np.array([[(*RED, 255), (*RED, 0), (0, 0, 0, 51)]], dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "clear.png")
    # 51 is a fifth of 255: a fifth black and four fifths white.
    assert np.asarray(read_image(tmp_path / "clear.png")).tolist() == [[list(RED), list(WHITE), [204] * 3]]


def test_a_transparent_colour_is_put_on_white(tmp_path: Path) -> None:
    image = Image.new("RGB", (2, 1), BLUE)
    image.putpixel((0, 0), RED)
    image.save(tmp_path / "key.png", transparency=RED)
    assert np.asarray(read_image(tmp_path / "key.png")).tolist() == [[list(WHITE), list(BLUE)]]


def test_greyscale_with_alpha_is_put_on_white(tmp_path: Path) -> None:
    Image.merge("LA", [Image.new("L", (1, 1), 10), Image.new("L", (1, 1), 0)]).save(tmp_path / "la.png")
    assert read_image(tmp_path / "la.png").getpixel((0, 0)) == WHITE


@pytest.mark.parametrize("ending", ["gif", "webp", "tiff"])
def test_of_an_animation_the_first_frame_is_taken(tmp_path: Path, ending: str) -> None:
    first, second = Image.new("RGB", (4, 4), RED), Image.new("RGB", (4, 4), GREEN)
    lossless = {"lossless": True} if ending == "webp" else {}
    first.save(tmp_path / f"film.{ending}", save_all=True, append_images=[second], **lossless)
    assert read_image(tmp_path / f"film.{ending}").getpixel((0, 0)) == RED


def test_the_name_does_not_decide_the_format(tmp_path: Path) -> None:
    Image.new("RGB", (2, 2), RED).save(tmp_path / "picture.bmp")
    (tmp_path / "picture.bmp").rename(tmp_path / "picture.jpg")
    assert read_image(str(tmp_path / "picture.jpg")).getpixel((1, 1)) == RED


@pytest.mark.parametrize("name", ["absent.png", "zero\0.png"])
def test_a_missing_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="There is no image file '.*/(absent|zero\\\\x00).png'; check the path"):
        read_image(tmp_path / name)


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder; give the path of an image file"):
        read_image(tmp_path)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(InputError, match="pipe.png' is not a regular file"):
        read_image(tmp_path / "pipe.png")


@pytest.mark.parametrize("content", [b"", b"no image at all", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"])
def test_what_is_no_image(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file.png").write_bytes(content)
    with pytest.raises(DataError, match=r"file.png' cannot be read as an image: it is damaged, cut short"):
        read_image(tmp_path / "file.png")


def test_a_format_that_is_not_needed_is_not_tried(tmp_path: Path) -> None:
    """Every decoder is a door; some, such as the one for EPS, start other programs."""
    Image.new("RGB", (2, 2), RED).save(tmp_path / "old.pcx")
    with pytest.raises(DataError, match="old.pcx' cannot be read as an image: .* in a format other than JPEG, PNG"):
        read_image(tmp_path / "old.pcx")


@pytest.mark.parametrize("ending", ["jpg", "png", "gif", "bmp", "tiff", "webp", "ppm"])
def test_a_truncated_file(tmp_path: Path, ending: str) -> None:
    demo_image("chelsea").save(tmp_path / f"whole.{ending}")
    whole = (tmp_path / f"whole.{ending}").read_bytes()
    (tmp_path / f"half.{ending}").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=f"half.{ending}' cannot be read as an image"):
        read_image(tmp_path / f"half.{ending}")


@pytest.mark.parametrize(("width", "height"), [(12_001, 10_000), (1 << 30, 1 << 30)])
def test_a_decompression_bomb_is_refused_before_it_is_decoded(tmp_path: Path, width: int, height: int) -> None:
    """The pixels are no compressed data at all: decoding them would fail with another sentence."""
    (tmp_path / "bomb.png").write_bytes(png(width, height, b"not decoded"))
    with pytest.raises(DataError, match="bomb.png' has more than 120 million pixels; save it smaller"):
        read_image(tmp_path / "bomb.png")


def test_the_largest_image_passes_the_size_check(tmp_path: Path) -> None:
    (tmp_path / "large.png").write_bytes(png(12_000, 10_000, b"no pixels"))
    with pytest.raises(DataError, match="cannot be read as an image"):
        read_image(tmp_path / "large.png")


def test_a_photograph_of_108_megapixels(tmp_path: Path) -> None:
    """The largest that telephones take; black and white here, so that the file is small and the test quick."""
    row = b"\0" + bytes([0b10000000]) + bytes(1499)
    (tmp_path / "large.png").write_bytes(png(12_000, 9_000, zlib.compress(row * 9_000, 1), bits=1, colour=0))
    image = read_image(tmp_path / "large.png")
    assert image.size == (12_000, 9_000)
    assert [image.getpixel((x, 8_999)) for x in (0, 1)] == [WHITE, (0, 0, 0)]


def test_a_single_pixel(tmp_path: Path) -> None:
    Image.new("RGB", (1, 1), GREEN).save(tmp_path / "dot.png")
    assert np.asarray(read_image(tmp_path / "dot.png")).tolist() == [[list(GREEN)]]


def test_an_oversized_file_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "huge.png").open("wb") as file:
        file.truncate(images.MAX_FILE_BYTES + 1)  # sparse: it takes no room on the disk
    with pytest.raises(DataError, match="huge.png' has 500 MB and at most 500 MB are read"):
        read_image(tmp_path / "huge.png")


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), ending=st.sampled_from(["jpg", "png", "gif", "tiff", "webp"]))
def test_a_damaged_file_gives_an_image_or_our_error(tmp_path: Path, data: st.DataObject, ending: str) -> None:
    file = tmp_path / f"damaged.{ending}"
    exif = Image.Exif()
    exif[0x0112] = 6
    demo_image("chelsea").resize((24, 16)).save(file, exif=exif)
    content = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    file.write_bytes(content)
    with contextlib.suppress(FEIError):
        assert read_image(file).mode == "RGB"


def test_demo_image_is_scikit_images_own() -> None:
    for name in ("astronaut", "chelsea", "coffee", "rocket"):
        assert np.array_equal(np.asarray(demo_image(name)), getattr(skimage.data, name)())


@pytest.mark.parametrize("name", ["dog", "../photographs/chelsea", "README"])
def test_an_unknown_demo_image(name: str) -> None:
    with pytest.raises(InputError, match="There is no demo image '.*'; choose one of astronaut, .*chelsea, .*coffee"):
        demo_image(name)
