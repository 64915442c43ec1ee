import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Tuple

from agentrl.actions.default_translator import SpaceTranslator
from agentrl.actions.players.random_player import RandomPlayer
from agentrl.check.support.random_episodes import play_randomly
from agentrl.config import EnvConfig
from agentrl.data.observation_conversion import has_symbolic_grid
from agentrl.errors import ConfigError
from agentrl.types import Observation

TRANSLATOR = SpaceTranslator(Discrete(2), ["left", "right"])


def first_observation(id, **settings):
    """The observation that a translator makes of an environment's reset."""
    made = gymnasium.make(id, disable_env_checker=True)
    translator = SpaceTranslator(made.action_space, **settings)
    made = gymnasium.make(id, render_mode=translator.render_mode, disable_env_checker=True)
    translator.attach_env(made)
    return translator.to_observation(*made.reset(seed=0))


def test_an_image_stays_an_image_and_other_arrays_become_text() -> None:
    picture = np.full((20, 30, 3), 7, np.uint8)
    shown = TRANSLATOR.to_observation(picture, {})
    np.testing.assert_array_equal(shown.images[0], picture)
    assert TRANSLATOR.to_observation(np.array([1, 2]), {}) == Observation(text="[1 2]")


def test_a_gray_image_becomes_rgb_and_a_small_board_becomes_text() -> None:
    (picture,) = TRANSLATOR.to_observation(np.full((20, 30), 7, np.uint8), {}).images
    assert picture.shape == (20, 30, 3)
    board = TRANSLATOR.to_observation(np.arange(4, dtype=np.uint8).reshape(2, 2), {})
    assert board == Observation(text="0 1\n2 3")


def test_the_keys_of_a_dictionary_label_its_parts() -> None:
    parts = {"screen": np.zeros((16, 16, 3), np.uint8), "mission": "go", "at": (np.int64(1), 2)}
    shown = TRANSLATOR.to_observation(parts, {})
    assert len(shown.images) == 1
    assert shown.text == "mission: go\nat: 1, 2"


@pytest.mark.parametrize("text", [None, "so"])
def test_images_are_found_at_any_depth(text: str | None) -> None:
    picture = np.zeros((16, 16, 3), np.uint8)
    translator = SpaceTranslator(Discrete(2), text=text)
    for observation in ((picture, 1), {"agent": {"rgb": picture, "at": [1]}}, [(picture,)]):
        assert len(translator.to_observation(observation, {}).images) == 1


@pytest.mark.parametrize(
    "array", [np.zeros((40, 60, 3)), np.zeros((3, 40, 60), np.uint8), np.zeros(1001)]
)
def test_a_large_array_that_is_not_an_image_is_a_config_error(array: np.ndarray) -> None:
    with pytest.raises(ConfigError, match="uint8"):
        TRANSLATOR.to_observation(array, {})


PICTURES = np.random.default_rng(3).integers(0, 256, (2, 20, 30, 3)).astype(np.uint8)
FIRST = PICTURES[0]
LAYOUTS = {
    "chw": (FIRST.transpose(2, 0, 1), None, 1),
    "hwc": (FIRST / np.float32(255), None, 1),
    "nhwc": (PICTURES / 127.5 - 1, [-1, 1], 2),
    "nchw": (PICTURES.transpose(0, 3, 1, 2).astype(np.float32), [0, 255], 2),
}
"""By layout, an array, the range of its numbers, and how many pictures it holds."""


@pytest.mark.parametrize("layout", LAYOUTS)
def test_images_in_other_layouts_and_ranges_are_the_same_images(layout: str) -> None:
    array, limits, count = LAYOUTS[layout]
    translator = SpaceTranslator(Discrete(2), image_layout=layout, image_range=limits)
    shown = translator.to_observation({"screen": array, "level": 3}, {})
    assert shown.text == "level: 3"
    np.testing.assert_array_equal(shown.images, PICTURES[:count])


@pytest.mark.parametrize("layout", ["nhw", "hwn"])
def test_stacked_gray_frames_are_several_images(layout: str) -> None:
    frames = PICTURES[..., 0]
    array = frames if layout == "nhw" else frames.transpose(1, 2, 0)
    shown = SpaceTranslator(Discrete(2), image_layout=layout).to_observation(array, {})
    np.testing.assert_array_equal([image[..., 1] for image in shown.images], frames)


def test_brightness_out_of_range_is_an_error_instead_of_white() -> None:
    translator = SpaceTranslator(Discrete(2), image_layout="hwc")
    with pytest.raises(ConfigError, match=r"from 0 to 255, outside 0 to 1; set .*image_range"):
        translator.to_observation(FIRST.astype(np.float32), {})


def test_a_symbolic_grid_is_shown_as_a_picture() -> None:
    pytest.importorskip("minigrid")
    config = EnvConfig(id="minigrid:MiniGrid-Empty-5x5-v0")
    (seen, *_) = play_randomly(config, 1).translated
    assert [image.shape for image in seen.images] == [(160, 160, 3)]
    assert seen.text == "direction: 0\nmission: get to the green goal square"
    asked = EnvConfig(id=config.id, translator_kwargs={"show": "observation"})
    assert "2 5 0" in play_randomly(asked, 1).translated[0].text


def test_what_is_a_symbolic_grid() -> None:
    grids = [Box(0, 9, (8, 8), np.int8), Box(0, 255, (7, 7, 3), np.uint8), MultiBinary([3, 3])]
    others = [
        Box(0, 255, (64, 64, 3), np.uint8), Box(0, 255, (3, 32, 32), np.uint8),
        Box(0, 255, (4, 84, 84), np.uint8), Box(0, 1, (8, 8)), Box(0, 9, (8,), np.int8),
        Discrete(4),
    ]  # fmt: skip
    assert all(map(has_symbolic_grid, [*grids, Dict({"a": Tuple([grids[0]])})]))
    assert not any(map(has_symbolic_grid, [*others, Dict({"a": Tuple(others)})]))


def test_text_of_the_environment_cannot_pass_for_an_image_placeholder() -> None:
    message = TRANSLATOR.to_message(Observation(text="a <image> b"))
    assert message.text.count("<image>") == 0


def test_instructions_contain_the_answer_format_unless_they_are_empty() -> None:
    assert TRANSLATOR.instructions() == (
        "Answer with one of <action>left</action>, <action>right</action>."
    )
    text = SpaceTranslator(Discrete(2), instructions="Go home.").instructions()
    assert text.startswith("Go home. Answer with one of <action>0</action>")
    assert SpaceTranslator(Discrete(2), instructions="").instructions() == ""


def test_the_rendered_text_can_be_shown() -> None:
    text = first_observation("FrozenLake-v1", show="ansi").text
    assert text.splitlines()[0] == "[S]FFF"
    taxi = first_observation("Taxi-v4", show=["ansi", "observation"]).text
    assert taxi.startswith("+---------+")
    assert taxi.splitlines()[-1].isdigit()


def test_a_template_formats_the_observation() -> None:
    shown = first_observation("FrozenLake-v1", text="row {{ observation // 4 }} of {{ info.prob }}")
    assert shown == Observation(text="row 0 of 1")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"show": "rendered"}, "did you mean 'render'"),
        ({"show": []}, "must not be empty"),
        ({"show": ["render", "ansi"]}, "contain both"),
        ({"text": "{{ observation"}, "cannot be rendered: TemplateSyntaxError"),
        (
            {"text": "{{ seen }}"},
            r"unknown variable .seen.; the template can use observation, info",
        ),
        ({"names": ["a", "b"]}, "must be a list of 4 unique names"),
        ({"names": ["a", "b", "c", "c"]}, "unique"),
        ({"style": "tags"}, "did you mean 'tag'"),
    ],
)
def test_invalid_settings_are_config_errors(settings, message) -> None:
    with pytest.raises(ConfigError, match=message):
        first_observation("FrozenLake-v1", **settings)


def test_a_missing_render_mode_is_a_config_error() -> None:
    made = gymnasium.make("Blackjack-v1", disable_env_checker=True)
    with pytest.raises(ConfigError, match="needs the render mode 'ansi'"):
        SpaceTranslator(made.action_space, show="ansi").attach_env(made)


def test_another_action_space_is_a_config_error() -> None:
    made = gymnasium.make("FrozenLake-v1", disable_env_checker=True)
    with pytest.raises(ConfigError, match="must be the same"):
        TRANSLATOR.attach_env(made)


def test_the_random_player_plays_only_allowed_actions() -> None:
    player, rng = RandomPlayer(Discrete(3), ["a", "b", "c"]), np.random.default_rng(0)
    said = {player.reply({}, rng) for _ in range(60)}
    assert said == {f"<action>{name}</action>" for name in "abc"}
    mask = np.array([0, 1, 0], np.int8)
    assert {player.reply({"action_mask": mask}, rng) for _ in range(9)} == {"<action>b</action>"}
