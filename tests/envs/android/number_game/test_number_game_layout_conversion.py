import numpy as np
import pytest

from agentrl.devices import ScreenRegion, Settled
from agentrl.devices.vision import VisionAudit
from agentrl.envs.android.number_game.app import NumberGameApp
from agentrl.envs.android.number_game.levels import NumberGameLevel
from agentrl.envs.android.number_game.screen_reader import read_screen
from agentrl.envs.android.phone_game.layout_conversion import targets_to_screen, to_layout
from agentrl.types import Image

# Pages that fill a long screen, lie between the browser's bars, or are on one side of a tablet.
SCREENS = [
    ((720, 1600), ScreenRegion(left=0.0, top=0.0, right=1.0, bottom=1.0)),
    ((720, 1280), ScreenRegion(left=0.0, top=0.125, right=1.0, bottom=0.9625)),
    ((1280, 800), ScreenRegion(left=0.3125, top=0.0, right=0.6875, bottom=1.0)),
]
LEVELS = [
    NumberGameLevel(),
    NumberGameLevel(digits=2, cards=4),
    NumberGameLevel(moved=True, timed=5),
    NumberGameLevel(memory=True),
]


def shown(screen: Image) -> Settled:
    return Settled(
        frame=screen, changed=True, state=None, front=None, front_s=0.0, handled=None,
        seconds=0.0, effect_s=None, captures=2, front_at_end=None, moves=False,
    )  # fmt: skip


def on(app: NumberGameApp, size: tuple[int, int], area: ScreenRegion) -> Image:
    """Return a screen of this size, gray outside the app."""
    width, height = size
    screen = np.full((height, width, 3), 60, np.uint8)
    top, bottom = round(area.top * height), round(area.bottom * height)
    left, right = round(area.left * width), round(area.right * width)
    screen[top:bottom, left:right] = app.render(right - left, bottom - top)
    return screen


@pytest.mark.parametrize(
    ("size", "area", "level"),
    [(*SCREENS[number % 3], LEVELS[number % 4]) for number in range(6)],
)
def test_a_game_on_a_page_is_read_and_tapped_at_its_position(
    size: tuple[int, int], area: ScreenRegion, level: NumberGameLevel
) -> None:
    app, audit, moves = NumberGameApp(), VisionAudit(), 0
    for seed in range(4):
        app.launch({"seed": str(seed), "rounds": "2", **level.extras()})
        while not app.state()["done"]:
            state = app.state()
            screen = on(app, size, area)
            read = read_screen(to_layout(shown(screen), area).frame, level)
            audit.compare(read, state)
            places = targets_to_screen(state, area)["touch_targets"]
            target = places["cards"][1] if state["phase"] == "pick" else places["button"]
            x = (target[0] - area.left) / (area.right - area.left)
            y = (target[1] - area.top) / (area.bottom - area.top)
            assert app.touch(x, y), "the tap lands on what it is meant for"
            moves += 1
    found = audit.summary()
    misread = [name for name in found if found[name]["agreed"] < found[name]["of"]]
    assert (misread, moves) == ([], 4 * (5 if level.memory else 3))


def test_below_a_status_bar_everything_is_as_it_was() -> None:
    app = NumberGameApp()
    screen = shown(np.zeros((1280, 720, 3), np.uint8))
    assert to_layout(screen, None) is screen
    state = app.state()
    assert targets_to_screen(state, None) is state
