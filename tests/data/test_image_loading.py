import base64
import io
import os

import numpy as np
import PIL.EpsImagePlugin
import PIL.Image
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.data import image_loading
from agentrl.data.image_loading import ImageError
from tests.data.rows import POSTSCRIPT, jpeg, picture, png


def forms(folder):
    (folder / "a.png").write_bytes(png())
    (folder / ("b" * 80)).write_bytes(png())
    encoded = base64.b64encode(png()).decode()
    return {
        "path": "a.png",
        "long name without a dot": "b" * 80,
        "absolute path inside": str(folder / "a.png"),
        "bytes": png(),
        "bytearray": bytearray(png()),
        "base64": encoded,
        "base64 of urls, without padding": encoded.translate(str.maketrans("+/", "-_")).rstrip("="),
        "data URI": f"data:image/png;base64,{encoded}",
        "PIL": PIL.Image.fromarray(picture()),
        "array": picture(),
        "Hugging Face's, with bytes": {"bytes": png(), "path": "elsewhere.png"},
        "Hugging Face's, with a path": {"bytes": None, "path": "a.png"},
    }


def test_every_form_of_an_image_gives_the_same_pixels(tmp_path):
    for form, value in forms(tmp_path).items():
        assert np.array_equal(image_loading.load_image(value, tmp_path), picture()), form


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("nothing.png", "no such file"),
        ("../secret.png", "outside"),
        ("/etc/hostname", "outside"),
        ("https://example.com/a.png", "URLs are not fetched"),
        ("file:///etc/hostname", "outside .*; set image_root"),
        ("file://elsewhere/a.png", "URLs are not fetched"),
        ("data:image/png;base64,!!!", "broken base64"),
        ("a\0b.png", "not a valid path"),
        (b"not an image", "not recognized"),
        (b"", "not recognized"),
        (png()[:60], "the bytes|truncated|broken|not recognized"),
        (jpeg()[:-400], "truncated"),
        ({"bytes": None, "path": None}, "is not an image"),
        (None, "is not an image"),
        (7, "is not an image"),
        (np.zeros((4, 4), np.uint8), "must be uint8"),
        (np.zeros((0, 4, 3), np.uint8), "must be uint8"),
    ],
)
def test_an_unreadable_image_is_an_error_with_its_reason(tmp_path, value, message):
    with pytest.raises(ImageError, match=message):
        image_loading.load_image(value, tmp_path)


def test_a_link_outside_the_root_is_refused_unless_image_root_contains_it(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.png").write_bytes(png())
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.png").symlink_to(tmp_path / "out" / "a.png")
    with pytest.raises(ImageError, match="image_root"):
        image_loading.load_image("a.png", tmp_path / "data")
    assert image_loading.load_image("data/a.png", tmp_path).shape == (6, 8, 3)


def test_transparent_images_are_composed_over_white():
    glass = PIL.Image.new("RGBA", (4, 4), (0, 0, 0, 0))
    held = io.BytesIO()
    glass.save(held, "PNG")
    assert (image_loading.load_image(held.getvalue(), None) == 255).all()


def test_exif_orientation_is_applied():
    wide = PIL.Image.fromarray(picture(height=4, width=8))
    exif = PIL.Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    held = io.BytesIO()
    wide.save(held, "JPEG", exif=exif)
    assert image_loading.load_image(held.getvalue(), None).shape == (8, 4, 3)


def test_sixteen_bit_gray_keeps_its_shades():
    deep = PIL.Image.fromarray(np.array([[0, 32768, 65535]], np.uint16))
    held = io.BytesIO()
    deep.save(held, "PNG")
    assert image_loading.load_image(held.getvalue(), None)[0, :, 0].tolist() == [0, 128, 255]


def test_a_huge_image_is_refused_before_it_is_decoded():
    vast = PIL.Image.new("1", (20_000, 20_000))
    held = io.BytesIO()
    vast.save(held, "PNG")
    with pytest.raises(ImageError, match=r"20000x20000|decompression bomb"):
        image_loading.load_image(held.getvalue(), None)


@pytest.mark.parametrize("value", ["a.png", POSTSCRIPT])
def test_a_postscript_image_is_not_executed(tmp_path, monkeypatch, value):
    started = []
    monkeypatch.setattr(PIL.EpsImagePlugin, "Ghostscript", lambda *a, **k: started.append(a))
    (tmp_path / "a.png").write_bytes(POSTSCRIPT)
    with pytest.raises(ImageError, match="not recognized"):
        image_loading.load_image(value, tmp_path)
    assert not started


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "PPM", "TIFF"])
def test_the_file_name_suffix_does_not_matter(tmp_path, kind):
    PIL.Image.fromarray(picture()).save(tmp_path / "a.picture", kind)
    assert image_loading.load_image("a.picture", tmp_path).shape == (6, 8, 3)


def test_a_named_pipe_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(ImageError, match=r"'a.png' is not a regular file"):
        image_loading.load_image("a.png", tmp_path)


@given(st.binary(max_size=200))
def test_any_bytes_are_an_image_or_an_image_error(data):
    with pytest.raises(ImageError):
        image_loading.load_image(data, None)
