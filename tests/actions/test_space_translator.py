import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Discrete

from agentrl.actions.space_translator import RandomPlayer, SpaceTranslator
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
        ({"text": "{{ seen }}"}, r"unknown variable .seen.; it may use observation, info"),
        ({"names": ["a", "b"]}, "must be 4 unique names"),
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
