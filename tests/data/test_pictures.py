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
from agentrl.data.image_loading import PictureError
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


def test_every_form_of_a_picture_is_the_same_picture(tmp_path):
    for form, value in forms(tmp_path).items():
        assert np.array_equal(image_loading.load(value, tmp_path), picture()), form


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("nothing.png", "no such file"),
        ("../secret.png", "leads out of"),
        ("/etc/hostname", "leads out of"),
        ("https://example.com/a.png", "nothing is fetched"),
        ("file:///etc/hostname", "nothing is fetched"),
        ("data:image/png;base64,!!!", "broken base64"),
        ("a\0b.png", "cannot be a path"),
        (b"no picture", "cannot identify"),
        (b"", "cannot identify"),
        (png()[:60], "the bytes|truncated|broken|cannot"),
        (jpeg()[:-400], "truncated"),
        ({"bytes": None, "path": None}, "is no picture"),
        (None, "is no picture"),
        (7, "is no picture"),
        (np.zeros((4, 4), np.uint8), "must be uint8"),
        (np.zeros((0, 4, 3), np.uint8), "must be uint8"),
    ],
)
def test_what_is_no_picture_is_named_with_the_reason(tmp_path, value, words):
    with pytest.raises(PictureError, match=words):
        image_loading.load(value, tmp_path)


def test_link_that_leads_out_is_refused_and_a_named_root_allows_it(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.png").write_bytes(png())
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.png").symlink_to(tmp_path / "out" / "a.png")
    with pytest.raises(PictureError, match="image_root"):
        image_loading.load("a.png", tmp_path / "data")
    assert image_loading.load("data/a.png", tmp_path).shape == (6, 8, 3)


def test_transparent_pictures_lie_on_white():
    glass = PIL.Image.new("RGBA", (4, 4), (0, 0, 0, 0))
    held = io.BytesIO()
    glass.save(held, "PNG")
    assert (image_loading.load(held.getvalue(), None) == 255).all()


def test_photo_taken_sideways_is_turned_upright():
    wide = PIL.Image.fromarray(picture(height=4, width=8))
    exif = PIL.Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    held = io.BytesIO()
    wide.save(held, "JPEG", exif=exif)
    assert image_loading.load(held.getvalue(), None).shape == (8, 4, 3)


def test_grey_of_sixteen_bits_keeps_its_shades():
    deep = PIL.Image.fromarray(np.array([[0, 32768, 65535]], np.uint16))
    held = io.BytesIO()
    deep.save(held, "PNG")
    assert image_loading.load(held.getvalue(), None)[0, :, 0].tolist() == [0, 128, 255]


def test_picture_too_large_to_be_meant_is_refused_before_it_is_decoded():
    vast = PIL.Image.new("1", (20_000, 20_000))
    held = io.BytesIO()
    vast.save(held, "PNG")
    with pytest.raises(PictureError, match=r"20000x20000|decompression bomb"):
        image_loading.load(held.getvalue(), None)


@pytest.mark.parametrize("value", ["a.png", POSTSCRIPT])
def test_picture_that_is_a_program_is_not_run(tmp_path, monkeypatch, value):
    started = []
    monkeypatch.setattr(PIL.EpsImagePlugin, "Ghostscript", lambda *a, **k: started.append(a))
    (tmp_path / "a.png").write_bytes(POSTSCRIPT)
    with pytest.raises(PictureError, match="cannot identify"):
        image_loading.load(value, tmp_path)
    assert not started


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "PPM", "TIFF"])
def test_plain_pictures_are_read_whatever_they_are_called(tmp_path, kind):
    PIL.Image.fromarray(picture()).save(tmp_path / "a.picture", kind)
    assert image_loading.load("a.picture", tmp_path).shape == (6, 8, 3)


def test_named_pipe_is_no_picture_and_nobody_waits_for_it(tmp_path):
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(PictureError, match=r"'a.png': is no regular file"):
        image_loading.load("a.png", tmp_path)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_picture_or_an_error_of_ours(data):
    with pytest.raises(PictureError):
        image_loading.load(data, None)
