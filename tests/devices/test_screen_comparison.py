import numpy as np
import pytest

from agentrl.devices.screen_comparison import ScreenComparison
from agentrl.devices.screen_regions import Box
from agentrl.types import Image


def blank(height: int = 1280, width: int = 720) -> Image:
    return np.zeros((height, width, 3), np.uint8)


@pytest.mark.parametrize(
    ("row", "same"),
    [(0, True), (48, True), (49, False), (177, False), (700, False), (1279, False)],
)
def test_a_change_in_any_band_of_the_screen_is_a_change(row: int, same: bool) -> None:
    after = blank()
    after[row, 719] = 9
    assert ScreenComparison(1 / 26).matches(blank(), after) == same


def test_small_noise_is_not_a_change_but_a_resize_is() -> None:
    compare = ScreenComparison()
    assert compare.matches(blank(), blank() + 8)
    assert not compare.matches(blank(), blank() + 9)
    assert not compare.matches(blank(), blank(720, 1280))


def test_a_change_counts_only_outside_ignored_regions() -> None:
    compare = ScreenComparison(ignore=[(0.5, 0.25, 0.75, 0.5)])
    inside, beside = ((320, 360), (639, 539)), ((640, 360), (319, 360), (320, 359), (639, 540))
    for row, column in (*inside, *beside):
        after = blank()
        after[row, column] = 255
        assert compare.matches(blank(), after) == ((row, column) in inside), (row, column)
    turned = blank(720, 1280)
    turned[200, 700] = 255
    assert compare.matches(blank(720, 1280), turned), "regions are shares of whatever is shown"


@pytest.mark.parametrize(
    "box", [(0.5, 0, 0.4, 1), (0, 0, 1, 1.1), (-0.1, 0, 1, 1), (float("nan"), 0, 1, 1)]
)
def test_an_invalid_region_is_refused(box: Box) -> None:
    with pytest.raises(ValueError, match="is not a box"):
        ScreenComparison(ignore=[box])
