from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentrl.replay.frames.mask import masked
from agentrl.replay.reader import Run
from agentrl.replay.recorder import Recorder

SECRET = (255, 0, 255)
spans = st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted).filter(lambda s: s[0] < s[1])


@settings(
    deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(spans, spans), min_size=1, max_size=3), st.integers(8, 90))
def test_a_masked_region_reaches_no_file(
    tmp_path: Path, regions: list[tuple[list[float], list[float]]], width: int
) -> None:
    image = np.full((64, width, 3), 200, np.uint8)
    boxes = [(left, top, right, bottom) for (left, right), (top, bottom) in regions]
    for left, top, right, bottom in boxes:
        rows = slice(int(top * 64), int(np.ceil(bottom * 64)))
        image[rows, int(left * width) : int(np.ceil(right * width))] = SECRET
    before = image.copy()
    with Recorder(tmp_path, mask=boxes) as recorder:
        name = recorder.frame(image)
    assert np.array_equal(image, before), "the policy sees the true screen"
    stored = Run(tmp_path).frame(name)
    assert stored is not None
    assert stored.shape == image.shape
    assert not (stored == SECRET).all(axis=2).any()


@pytest.mark.parametrize("side", [36, 720])
def test_scaling_does_not_blend_masked_pixels_into_the_rest(side: int) -> None:
    screen = np.zeros((720, 720, 3), np.uint8)
    screen[200:400, 300:500] = 255
    scaled = cv2.resize(screen, (side, side), interpolation=cv2.INTER_AREA)
    hidden = masked(scaled, [(300 / 720, 200 / 720, 500 / 720, 400 / 720)])
    assert not hidden.any()
    assert scaled.any()


def test_pixels_beside_the_mask_stay() -> None:
    image = np.full((100, 100, 3), 9, np.uint8)
    hidden = masked(image, [(0.2, 0.2, 0.4, 0.4)])
    assert (hidden[50:] == 9).all()
    assert masked(image, []) is image
