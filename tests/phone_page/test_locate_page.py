import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.phone_page import locate_page
from agentrl.phone_page.locate_page import PagePosition
from agentrl.types import Image


def screen(width: int, height: int, seed: int = 0) -> Image:
    """Something busy: icons and words of a browser."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)


def on_screen(capture: Image, page: Image, left: int, top: int) -> Image:
    capture = capture.copy()
    capture[top : top + page.shape[0], left : left + page.shape[1]] = page
    return capture


@settings(max_examples=25, deadline=None)
@given(
    st.integers(64, 300), st.integers(64, 500), st.integers(0, 80), st.integers(0, 80),
    st.integers(1, 70_000),
)  # fmt: skip
def test_a_page_is_found_to_the_pixel(
    width: int, height: int, left: int, top: int, number: int
) -> None:
    page = locate_page.pattern(width, height, number)
    capture = on_screen(screen(width + left + 20, height + top + 20), page, left, top)
    found = locate_page.find_pattern(capture, page)
    assert found == PagePosition(left=left, top=top, width=width, height=height, deviation=0)
    assert found.deviation == 0
    assert np.array_equal(found.crop(capture), page)


@pytest.mark.parametrize("scale", [0.5, 0.75, 1.5])
def test_a_page_is_found_on_a_screen_of_another_resolution(scale: float) -> None:
    page = locate_page.pattern(720, 1200, 5)
    scaled = cv2.resize(page, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    capture = on_screen(screen(1200, 2000), scaled.astype(np.uint8), 10, 90)
    found = locate_page.find_pattern(capture, page)
    assert found is not None
    assert (found.left, found.top) == (10, 90)
    assert (found.width, found.height) == (round(720 * scale), round(1200 * scale))


def test_a_page_is_found_behind_a_cutout_and_with_shifted_colors() -> None:
    page = locate_page.pattern(720, 1200, 5)
    seen = np.clip(page + np.array([9, -7, 5]), 0, 255).astype(np.uint8)
    seen[:30, 330:390] = 0
    capture = on_screen(screen(720, 1280), seen, 0, 50)
    found = locate_page.find_pattern(capture, page)
    assert found is not None
    assert (found.left, found.top, found.width, found.height) == (0, 50, 720, 1200)
    assert 5 <= found.deviation <= 9


def test_other_content_or_an_older_pattern_is_not_found() -> None:
    page = locate_page.pattern(720, 1200, 5)
    capture = on_screen(screen(720, 1280), page, 0, 50)
    assert locate_page.find_pattern(screen(720, 1280), page) is None
    assert locate_page.find_pattern(np.zeros((1280, 720, 3), np.uint8), page) is None
    assert locate_page.find_pattern(capture, locate_page.pattern(720, 1200, 6)) is None
    assert locate_page.find_pattern(capture, locate_page.pattern(720, 1280, 5)) is None
    covered = capture.copy()
    covered[400:700, 100:600] = 240  # a dialog
    assert locate_page.find_pattern(covered, page) is None


def test_a_moved_page_is_found_by_its_content() -> None:
    page = screen(300, 400, seed=1)
    capture = on_screen(screen(320, 500), page, 7, 61)
    found = locate_page.find_moved_page(capture, page, 0)
    assert found == PagePosition(left=7, top=61, width=300, height=400, deviation=0)
    capture[100:120, 50:70] ^= 255
    assert locate_page.find_moved_page(capture, page, 0) is None
    assert locate_page.find_moved_page(capture, screen(321, 400), 0) is None


def test_a_capture_shows_a_page_only_if_every_pixel_matches() -> None:
    page = screen(300, 400, seed=1)
    place = PagePosition(left=7, top=61, width=300, height=400, deviation=2)
    capture = on_screen(screen(320, 500), page, 7, 61)
    assert place.shows(capture, page)
    near = np.clip(page.astype(int) + 9, 0, 255).astype(np.uint8)
    assert place.shows(on_screen(capture, near, 7, 61), page)
    capture[460, 306] = 255 - capture[460, 306] // 2
    assert not place.shows(capture, page)
    assert not place.shows(capture[:300], page)
