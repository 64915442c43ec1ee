import gymnasium
import numpy as np
import pytest

from agentrl.data.discrete import DiscreteTranslator
from agentrl.errors import ConfigError
from agentrl.types import Observation

TRANSLATOR = DiscreteTranslator(["left", "right"])


def test_a_picture_is_shown_and_words_are_told() -> None:
    picture = np.full((4, 6, 3), 7, np.uint8)
    shown = TRANSLATOR.to_observation(picture, {})
    np.testing.assert_array_equal(shown.images[0], picture)
    assert TRANSLATOR.to_observation(np.array([1, 2]), {}) == Observation(text="[1 2]")


@pytest.mark.parametrize("array", [np.zeros((4, 6, 3)), np.zeros((3, 4, 6), np.uint8)])
def test_an_array_that_is_no_picture_is_refused(array: np.ndarray) -> None:
    with pytest.raises(ConfigError, match="uint8"):
        TRANSLATOR.to_observation(array, {})


@pytest.mark.parametrize(
    "space", [gymnasium.spaces.Discrete(3), gymnasium.spaces.Box(0.0, 1.0, (2,))]
)
def test_actions_without_a_name_are_refused(space: gymnasium.Space) -> None:
    TRANSLATOR.check(gymnasium.spaces.Discrete(2))
    with pytest.raises(ConfigError, match="names="):
        TRANSLATOR.check(space)
