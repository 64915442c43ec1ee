from importlib.util import find_spec

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as PillowImage
from PIL import ImageDraw, ImageFont

from agentrl import extras
from agentrl.devices.vision import (
    UNREAD,
    WHOLE,
    Glyphs,
    OcrReader,
    Template,
    VisionAudit,
    color_fraction,
    color_regions,
    dominant_color,
    find_template,
    ocr,
)
from agentrl.errors import ConfigError

_GROUND, _RED, _GREEN = (235, 240, 245), (220, 50, 40), (30, 170, 80)


def screen(width=360, height=640):
    return np.full((height, width, 3), _GROUND, np.uint8)


def jpeg(frame, quality=60):
    _, data = cv2.imencode(".jpg", frame[..., ::-1].copy(), [cv2.IMWRITE_JPEG_QUALITY, quality])
    return cv2.imdecode(data, cv2.IMREAD_COLOR)[..., ::-1].copy()


def noisy(frame, seed=0):
    noise = np.random.default_rng(seed).normal(0, 6, frame.shape)
    return np.clip(frame + noise, 0, 255).astype(np.uint8)


def picture(size=24, shapes="OX"):
    """A tile with a sign on it, uint8[size, size, 3]."""
    tile = np.full((size, size, 3), (60, 90, 160), np.uint8)
    thick, most = max(1, size // 8), size - size // 6
    if "O" in shapes:
        cv2.circle(tile, (size // 2, size // 2), size // 3, (250, 250, 250), thick)
    if "X" in shapes:
        cv2.line(tile, (size // 6, size // 6), (most, most), (250, 210, 40), thick)
    return tile


def put(frame, tile, x, y):
    frame[y : y + tile.shape[0], x : x + tile.shape[1]] = tile


def digits(text, size, bold=0):
    """Dark digits on a light ground, with space around: uint8[H, W, 3]."""
    font = ImageFont.load_default(size)
    wide = round(font.getlength(text)) + size
    canvas = PillowImage.new("RGB", (wide, 2 * size), _GROUND)
    at = (size // 2, size // 2)
    ImageDraw.Draw(canvas).text(at, text, fill=(30, 40, 60), font=font, stroke_width=bold)
    return np.asarray(canvas)


def on_screen(part, width):
    frame = screen(width, part.shape[0])
    put(frame, part, 0, 0)
    return frame, (0.0, 0.0, part.shape[1] / width, 1.0)


@pytest.fixture(scope="module")
def glyphs():
    """The ten digits, cut from one screenshot 720 pixels wide."""
    frame, boxes = screen(720, 120), {}
    for place, sign in enumerate("0123456789"):
        part = digits(sign, 48)
        put(frame, part, 70 * place, 0)
        boxes[sign] = (70 * place / 720, 0.0, (70 * place + part.shape[1]) / 720, 0.8)
    return Glyphs.crop(frame, boxes)


# --- colours ----------------------------------------------------------------------------------


def test_color_fraction_is_the_painted_fraction_even_when_compressed():
    frame = screen()
    frame[:160, :180] = _RED
    for seen in (frame, jpeg(frame), noisy(frame)):
        assert color_fraction(seen, _RED) == pytest.approx(1 / 8, abs=0.01)
        assert color_fraction(seen, _RED, (0, 0, 0.5, 0.25)) > 0.97
        assert color_fraction(seen, _GREEN) < 0.01


def test_color_regions_are_separate_and_sorted_by_size():
    frame = screen()
    frame[100:200, 50:150] = _GREEN
    frame[400:440, 200:240] = _GREEN
    large, small = color_regions(jpeg(frame), _GREEN)
    assert large.area == pytest.approx(100 * 100 / (360 * 640), rel=0.05)
    assert large.box == pytest.approx((50 / 360, 100 / 640, 150 / 360, 200 / 640), abs=0.01)
    assert small.box == pytest.approx((200 / 360, 400 / 640, 240 / 360, 440 / 640), abs=0.01)
    assert color_regions(frame, _RED) == ()


def test_a_box_has_the_nearest_color_of_a_palette_or_none():
    frame = screen()
    frame[:320] = (225, 60, 50)
    palette = {"red": _RED, "green": _GREEN}
    assert dominant_color(jpeg(frame), palette, (0, 0, 1, 0.5)) == "red"
    assert dominant_color(frame, palette, (0, 0.5, 1, 1)) is None
    assert dominant_color(frame, palette, (0, 0.2, 1, 0.8), share=0.9) is None
    with pytest.raises(ValueError, match="palette is empty"):
        dominant_color(frame, {})


# --- templates --------------------------------------------------------------------------------


@given(x=st.integers(0, 130), y=st.integers(0, 170), spoiled=st.sampled_from([None, jpeg, noisy]))
@settings(max_examples=8, deadline=None)
def test_a_template_is_found_where_it_was_put(x, y, spoiled):
    frame = screen(160, 200)
    put(frame, picture(), x, y)
    seen = spoiled(frame) if spoiled else frame
    (match,) = find_template(seen, Template(pixels=picture(), screen_width=160))
    assert match.box == pytest.approx((x / 160, y / 200, (x + 24) / 160, (y + 24) / 200), abs=0.013)
    assert match.score > 0.9


def test_a_template_is_found_on_screens_of_other_sizes():
    template = Template(pixels=picture(48), screen_width=720)
    for width in (360, 1080):
        frame = screen(width, width * 16 // 9)
        put(frame, picture(48 * width // 720), width // 4, width // 2)
        (match,) = find_template(frame, template, (0.2, 0.2, 0.4, 0.4))
        assert match.box[0] == pytest.approx(0.25, abs=0.01)
        assert match.box[2] - match.box[0] == pytest.approx(48 / 720, rel=0.1)


def test_each_of_several_matches_is_found_once_and_other_pictures_are_not():
    frame = screen()
    for x in (20, 100, 104 + 24):
        put(frame, picture(), x, 50)
    put(frame, picture(shapes="O"), 200, 300)
    found = find_template(frame, Template(pixels=picture(), screen_width=360), threshold=0.9)
    assert sorted(round(match.box[0] * 360) for match in found) == [20, 100, 128]
    assert len(find_template(frame, Template(pixels=picture(), screen_width=360), most=2)) == 2


def test_transparent_pixels_are_not_compared(tmp_path):
    mask = np.zeros((24, 24), np.uint8)
    cv2.circle(mask, (12, 12), 10, 255, -1)
    cv2.imwrite(str(tmp_path / "disc.png"), np.dstack([picture()[..., ::-1], mask]))
    template = Template.read(tmp_path / "disc.png", screen_width=360)
    frame = noisy(screen(), 3)
    stripes = np.indices((100, 100)).sum(axis=0) // 5 % 2 == 0
    frame[200:300, 200:300] = np.where(stripes[..., None], (20, 20, 20), (230, 230, 90))
    shown = mask > 0
    frame[230:254, 240:264][shown] = picture()[shown]
    (match,) = find_template(frame, template, scales=(1.0,))
    assert (round(match.box[0] * 360), round(match.box[1] * 640)) == (240, 230)
    whole = Template(pixels=picture(), screen_width=360)
    assert find_template(frame, whole, scales=(1.0,), threshold=0.9) == ()


def test_templates_that_cannot_be_found_are_refused(tmp_path):
    with pytest.raises(ValueError, match="a single color"):
        Template.crop(screen(), (0, 0, 0.1, 0.1))
    with pytest.raises(ValueError, match="mask"):
        Template(pixels=picture(), screen_width=360, mask=np.zeros((3, 3), np.uint8))
    with pytest.raises(ConfigError, match=r"absent\.png is not an 8-bit picture"):
        Template.read(tmp_path / "absent.png", 360)


# --- glyphs -----------------------------------------------------------------------------------


@given(
    number=st.integers(0, 99_999),
    width=st.sampled_from([360, 720, 1080]),
    bold=st.booleans(),
    spoiled=st.sampled_from([None, jpeg, noisy]),
)
@settings(max_examples=15, deadline=None)
def test_numbers_are_read_at_any_size(glyphs, number, width, bold, spoiled):
    part = digits(str(number), 48 * width // 720, int(bold and width > 360))
    frame, box = on_screen(part, width)
    row = glyphs.read(spoiled(frame) if spoiled else frame, box)
    assert (row.text, row.covered > 0.9) == (str(number), True)


def test_an_empty_box_reads_as_nothing_and_unknown_glyphs_are_not_covered(glyphs):
    row = glyphs.read(jpeg(screen()), (0.1, 0.1, 0.5, 0.2))
    assert (row.text, row.covered) == ("", 1.0)
    frame, box = on_screen(digits("1#K9", 48), 720)
    assert glyphs.read(frame, box).covered < 0.9


def test_glyphs_without_ink_are_refused():
    with pytest.raises(ValueError, match="no ink"):
        Glyphs.crop(screen(), {"1": (0.1, 0.1, 0.2, 0.2)})


# --- hostile frames ---------------------------------------------------------------------------


@pytest.mark.parametrize("sides", [(1, 1), (3, 2000), (160, 90), (2000, 3)])
@pytest.mark.parametrize("level", [0, 255])
def test_on_flat_frames_of_any_size_nothing_is_found(glyphs, sides, level):
    frame = np.full((*sides, 3), level, np.uint8)
    assert find_template(frame, Template(pixels=picture(), screen_width=360)) == ()
    assert glyphs.read(frame, WHOLE).text == ""
    assert dominant_color(frame, {"red": _RED}) is None
    assert color_regions(frame, _RED) == ()


@pytest.mark.parametrize(
    "frame",
    [
        None,
        np.zeros((4, 4), np.uint8),
        np.zeros((4, 4, 4), np.uint8),
        np.zeros((4, 4, 3)),
        np.zeros((0, 4, 3), np.uint8),
    ],
    ids=["none", "grey", "rgba", "float", "empty"],
)
def test_invalid_frames_are_refused(glyphs, frame):
    for look in (
        lambda: color_fraction(frame, _RED),
        lambda: color_regions(frame, _RED),
        lambda: find_template(frame, Template(pixels=picture(), screen_width=360)),
        lambda: glyphs.read(frame, WHOLE),
    ):
        with pytest.raises(ValueError, match="a frame must be uint8"):
            look()


def test_invalid_boxes_are_refused():
    with pytest.raises(ValueError, match="is not a box"):
        color_fraction(screen(), _RED, (0.5, 0, 0.4, 1))


# --- OCR --------------------------------------------------------------------------------------


def test_without_ocr_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "rapidocr", None)
    with pytest.raises(ConfigError) as raised:
        OcrReader()
    assert str(raised.value) == extras.NO_OCR
    assert "pip install 'agentrl-screens[ocr]'" in extras.NO_OCR


with_ocr = pytest.mark.skipif(
    find_spec("rapidocr") is None or find_spec("onnxruntime") is None, reason=extras.NO_OCR
)


@with_ocr
def test_text_is_read_by_ocr():
    frame = screen(480, 200)
    put(frame, digits("Gold 1234", 40), 20, 10)
    put(frame, digits("Level 7", 40), 200, 110)
    reader: ocr.TextReader = OcrReader()
    first, second = reader.read(frame)
    assert (first.text.replace(" ", ""), second.text.replace(" ", "")) == ("Gold1234", "Level7")
    assert first.box[1] < 0.5 < second.box[1]
    assert reader.read(screen(5, 40)) == ()


@with_ocr
@pytest.mark.slow  # RapidOCR enlarges the shorter side to 736 pixels, the longer one alike
def test_a_frame_too_slim_for_the_model_is_widened_for_ocr():
    assert OcrReader().read(screen(5, 900)) == ()


# --- audit ------------------------------------------------------------------------------------


def test_an_audit_counts_and_reports_what_was_misread():
    kept, frame = [], screen(4, 4)
    audit = VisionAudit(keep=kept.append)
    compared = audit.compare(
        {"score": 90, "lamp": UNREAD, "places": (0.5, [1, 2]), "extra": 1},
        {"score": 100, "lamp": None, "places": [0.5, [1, 2]], "seed": 7},
        frame,
    )
    assert compared == {
        "agreed": ["places"],
        "differs": {
            "score": {"read": 90, "true": 100},
            "lamp": {"read": "unread", "true": None},
        },
    }
    assert [(d.field, d.read, d.true) for d in kept] == [("score", 90, 100), ("lamp", UNREAD, None)]
    assert all(d.frame is frame for d in kept)
    again = VisionAudit()
    again.add_comparison(compared)
    assert again.summary() == audit.summary()
    assert audit.table().splitlines()[1].split() == [
        "score",
        "0",
        "1",
        "0.0%",
        "0.0",
        "to",
        "79.3%",
    ]


@pytest.mark.parametrize(("read", "true"), [(True, 1), (0, False), ("1", 1), ([1], [1, 2])])
def test_different_values_do_not_agree(read, true):
    assert not VisionAudit().add("fact", read, true)
