"""Episodes whose actions are written in the dialects of known models."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from agentrl.actions.dialect import Dialect
from agentrl.actions.screen_actions import Done, Tap
from agentrl.actions.screen_dialogue import ScreenDialogue
from agentrl.config import Config, EnvConfig, ModelConfig
from agentrl.devices.adb import AdbServer
from agentrl.errors import ConfigError
from agentrl.extension_points import DIALECT
from agentrl.policies.configured_image_size import resize_for
from agentrl.policies.open_encoder import open_encoder
from agentrl.policies.scripted_policy import ScriptedPolicy
from agentrl.rollout.environments.env_runner import EnvRunner
from agentrl.rollout.environments.load_translator_and_players import load_player, open_translator
from agentrl.rollout.environments.resolved_env import history_of, resolve_env
from agentrl.rollout.run_episode import EpisodeLimits, EpisodeRequest, run_episode
from agentrl.types import IMAGE, Episode, Message, Observation, Outcome
from virtual_phone import spawn

NAMES = [one.name for one in DIALECT.extensions() if one.origin == "agentrl"]
HERE = Path(__file__)


class Dots(gymnasium.Env[np.ndarray, np.ndarray]):
    """An environment that shows a dot to click, in pixels."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 255, (300, 500, 3), np.uint8)
        self.action_space = spaces.Box(np.array([0, 0]), np.array([499, 299]), dtype=np.int64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._dot = self.np_random.integers([500, 300])
        return self._shown(), {"dot": self._dot.tolist()}

    def step(self, action: np.ndarray) -> Any:
        missed = int(np.abs(np.asarray(action) - self._dot).max())
        return self._shown(), float(missed <= 1), True, False, {"missed": missed}

    def _shown(self) -> np.ndarray:
        picture = np.zeros((300, 500, 3), np.uint8)
        picture[self._dot[1], self._dot[0]] = 255
        return picture


class DotPlayer:
    """Clicks the dot."""

    dialect: Dialect

    def reply(self, info: dict[str, Any], rng: np.random.Generator) -> str:
        width, height = info["screen_size"]
        x, y = info["dot"]
        tap = Tap((x + 0.5) / width, (y + 0.5) / height)
        return self.dialect.spell(tap, self.dialect.screen((width, height)), "There it is.")


class Finisher(gymnasium.Env[np.ndarray, Any]):
    """An environment that ends when the agent declares the task finished."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 255, (64, 64, 3), np.uint8)
        self.action_space = spaces.Text(10)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return np.zeros((64, 64, 3), np.uint8), {}

    def step(self, action: Any) -> Any:
        return np.zeros((64, 64, 3), np.uint8), 0.0, isinstance(action, Done), False, {}


class FinisherTranslator:
    """Parses taps and the end of the task."""

    def __init__(self) -> None:
        self._dialogue: ScreenDialogue | None = None

    @property
    def dialect(self) -> Dialect | None:
        return None if self._dialogue is None else self._dialogue.dialect

    @dialect.setter
    def dialect(self, dialect: Dialect) -> None:
        self._dialogue = ScreenDialogue(dialect, "Say that it is done.", (Tap, Done))

    def instructions(self) -> str:
        assert self._dialogue is not None
        return self._dialogue.instructions()

    def to_observation(self, observation: np.ndarray, info: Any) -> Observation:
        assert self._dialogue is not None
        self._dialogue.see(observation)
        return Observation(images=(observation,))

    def to_message(self, observation: Observation) -> Message:
        assert self._dialogue is not None
        return self._dialogue.message(IMAGE, observation.images)

    def to_action(self, reply: str) -> Any:
        assert self._dialogue is not None
        return self._dialogue.parse(reply)

    def no_action(self) -> None:
        return None


class Finishing:
    """Declares the task finished."""

    dialect: Dialect

    def reply(self, info: dict[str, Any], rng: np.random.Generator) -> str:
        return self.dialect.spell(Done(), self.dialect.screen((64, 64)))


@pytest.fixture(scope="module")
def phone(adb_server: AdbServer) -> Iterator[str]:
    """Start a phone with the number game."""
    app = "agentrl.envs.android.number_game.app:NumberGameApp"
    with spawn(1, [app], effect_delay_ms=(0, 10)) as phones:
        yield phones.serials[0]
    adb_server.disconnect(phones.serials[0])


async def played(config: EnvConfig, player: str, folder: Path | None = None) -> Episode:
    """Play one episode of a scripted player that writes actions like the model in this folder."""
    model = ModelConfig(max_pixels=40_000)
    encoder = None if folder is None else open_encoder(model, folder)

    def resize_of(dialect: Dialect) -> Any:
        return resize_for(dialect, model, encoder)

    runner = EnvRunner(resolve_env(config), None, resize_of=resize_of)
    try:
        return await run_episode(
            EpisodeRequest(split="train", step=0, group=0, member=0, seed=1),
            config.id,
            runner,
            ScriptedPolicy(
                load_player(resolve_env(config), player, resize_of),
                encoder,
                history=history_of(config),
            ),
            0,
            EpisodeLimits(max_turns=30, deadline_s=60),
        )
    finally:
        runner.close()


def dots(name: str) -> EnvConfig:
    return EnvConfig(
        id=f"{HERE}:Dots",
        dialect=name,
        players={"clicks": f"{HERE}:DotPlayer"},
        translator_kwargs={"instructions": "Click the dot."},
    )


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("tag", "tool")])
async def test_a_dot_on_any_screen_is_hit(name: str, tiny_vlm: Path) -> None:
    for folder in (tiny_vlm, None):
        episode = await played(dots(name), "clicks", folder)
        assert episode.outcome is Outcome.TERMINATED, episode.error
        # A grid of 1000 is finer than 500 pixels; the model sees a smaller picture.
        assert episode.turns[0].info["missed"] <= 1, episode.turns[0].reply
        assert episode.turns[0].env_reward == 1.0


@pytest.mark.quick("tag", "tool", "qwen2_5_vl_mobile_use", "ui_tars")
@pytest.mark.adb
@pytest.mark.parametrize("name", NAMES)
async def test_an_expert_wins_a_phone_game_in_each_dialect(
    name: str, tiny_vlm: Path, phone: str
) -> None:
    kwargs = {"rounds": 3, "device": phone}
    config = EnvConfig(id="NumberGame-v0", dialect=name, kwargs=kwargs)
    episode = await played(config, "expert", tiny_vlm)
    assert episode.outcome is Outcome.TERMINATED, episode.error
    assert episode.turns[-1].info["metrics"]["accuracy"] == 1.0
    assert not any(turn.parse_error for turn in episode.turns)


@pytest.mark.parametrize("name", ["mai-ui", "qwen3-vl-mobile-use", "autoglm"])
async def test_what_the_agent_says_of_the_outcome_is_in_the_info(name: str) -> None:
    config = EnvConfig(
        id=f"{HERE}:Finisher",
        dialect=name,
        translator_class=f"{HERE}:FinisherTranslator",
        players={"finishes": f"{HERE}:Finishing"},
    )
    episode = await played(config, "finishes")
    assert episode.outcome is Outcome.TERMINATED
    assert episode.turns[0].info["status"] == (None if name == "autoglm" else "success")


async def test_the_prompt_states_the_size_that_the_model_sees(tiny_vlm: Path) -> None:
    episode = await played(dots("qwen2.5-vl-mobile-use"), "clicks", tiny_vlm)
    height, width = episode.turns[0].images[0].shape[:2]
    assert (width, height) != (500, 300)
    assert f"resolution is {width}x{height}." in episode.instructions


def test_a_calls_mode_has_no_dialect() -> None:
    config = EnvConfig(id="NumberGame-v0", dialect="ui-tars", kwargs={"mode": "select"})
    with pytest.raises(ConfigError, match=r"set env\.kwargs\.mode=tap"):
        open_translator(resolve_env(config))


def test_a_translator_without_dialects_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match=r"env\.dialect=tag: the translator of Sokoban-v0"):
        open_translator(resolve_env(EnvConfig(id="Sokoban-v0", dialect="tag")))


def test_a_space_without_touches_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match="does not support the action space"):
        open_translator(resolve_env(EnvConfig(id="Taxi-v4", dialect="autoglm")))


def test_a_dialect_brings_its_history_and_a_setting_overrides_it() -> None:
    assert history_of(EnvConfig(dialect="ui-tars")).screens == 5
    assert history_of(EnvConfig(dialect="ui-tars", history="window:2")).turns == 2
    assert history_of(EnvConfig()).turns is None


def test_arguments_without_a_dialect_are_a_mistake() -> None:
    config = Config()
    config.env.dialect_kwargs = {"outside": "clamp"}
    with pytest.raises(ConfigError, match=r"has no effect without env\.dialect"):
        config.validate()
