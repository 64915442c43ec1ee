from hypothesis import given
from hypothesis import strategies as st

from agentrl.phone_page.painted_frames import PaintedFrames


def test_a_state_is_published_once_its_picture_is_painted() -> None:
    frames = PaintedFrames()
    frames.change("launched", redraw=True)
    assert frames.state is None
    assert frames.draw() == 1
    frames.change("touched", redraw=True)
    assert frames.paint(1)
    assert frames.state == "launched"
    assert frames.paint(frames.draw())
    assert frames.state == "touched"


def test_a_touch_without_effect_is_published_at_once_if_the_picture_is_painted() -> None:
    frames = PaintedFrames()
    frames.change("one", redraw=True)
    frames.change("one, touched", redraw=False)
    assert frames.state is None
    frames.paint(frames.draw())
    assert frames.state == "one, touched"
    frames.change("one, touched twice", redraw=False)
    assert frames.state == "one, touched twice"


def test_a_picture_that_is_not_on_its_way_cannot_be_painted() -> None:
    frames = PaintedFrames()
    frames.change("one", redraw=True)
    assert not frames.paint(1)
    frames.draw()
    frames.change("two", redraw=True)
    assert not frames.paint(2)
    assert frames.state is None


def test_a_forgotten_state_is_not_published() -> None:
    frames = PaintedFrames()
    frames.change("one", redraw=True)
    frames.paint(frames.draw())
    frames.forget()
    assert frames.state is None


@given(st.lists(st.sampled_from(["change", "touch", "draw", "paint"]), max_size=60))
def test_the_state_is_always_that_of_the_picture_on_the_page(steps: list[str]) -> None:
    frames, drawn, on_page = PaintedFrames(), 0, 0
    shown: dict[int, str | None] = {0: None}  # by picture: the last state that it belonged to
    for count, step in enumerate(steps):
        if step in ("change", "touch"):
            frames.change(str(count), redraw=step == "change")
            shown[frames.number] = str(count)
        elif step == "draw":
            drawn = frames.draw()
        else:
            frames.paint(drawn)
            on_page = drawn
        assert frames.state == shown[on_page]
        assert len(frames._states) <= 3
