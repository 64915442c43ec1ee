import gymnasium
import pytest

import agentrl
from agentrl import env_registry
from agentrl.config import Config, DevicesConfig, EnvConfig, EvalConfig
from agentrl.errors import ConfigError
from agentrl.rollout.environments import resolved_env
from agentrl.rollout.environments.load_translator_and_players import load_player, open_translator
from agentrl.rollout.environments.resolved_env import resolve_env
from agentrl.rollout.rollout_plan import plan_rollouts


class Board(gymnasium.Env):
    """An environment that shares some arguments with its translator and its player."""

    def __init__(self, size, mode="tap", rounds=3):
        """Accept the arguments; nothing is played."""


class AnyBoard(gymnasium.Env):
    def __init__(self, **settings):
        """Accept any arguments."""


class Words:
    def __init__(self, mode="tap", polite=False):
        self.mode, self.polite = mode, polite


class Player:
    def __init__(self, mode="tap", rounds=0, polite=False):
        self.given = (mode, rounds, polite)


WORDS = {"translator": f"{__name__}:Words", "players": {"player": f"{__name__}:Player"}}
agentrl.register("Board-v0", f"{__name__}:Board", **WORDS)
agentrl.register("FilledBoard-v0", f"{__name__}:Board", **WORDS, kwargs={"size": 4})
agentrl.register("AnyBoard-v0", f"{__name__}:AnyBoard", **WORDS)
agentrl.register("PhoneBoard-v0", f"{__name__}:Board", app=f"{__name__}:Board", **WORDS)


def board(kwargs, translator=None, id="Board-v0"):
    return EnvConfig(id=id, kwargs=kwargs, translator_kwargs=translator or {})


@pytest.mark.parametrize(
    "config", [board({"mode": "select"}), board({}, {"mode": "select"})], ids=["env", "translator"]
)
def test_shared_arguments_reach_environment_and_translator(config):
    assert resolve_env(config).kwargs == {"mode": "select"}
    assert open_translator(resolve_env(config)).mode == "select"
    assert load_player(resolve_env(config), "player").given == ("select", 0, False)


def test_other_arguments_reach_only_the_one_that_takes_them():
    config = board({"size": 4, "rounds": 5}, {"polite": True})
    assert resolve_env(config).kwargs == {"size": 4, "rounds": 5}
    assert open_translator(resolve_env(config)).polite
    assert load_player(resolve_env(config), "player").given == ("tap", 5, True)


def test_players_have_settings_of_their_own():
    config = board({"rounds": 5})
    config.player_kwargs = {"rounds": 7, "polite": True}
    assert load_player(resolve_env(config), "player").given == ("tap", 7, True)
    config.player_kwargs = {"polit": True}
    with pytest.raises(ConfigError, match=r"env\.player_kwargs\.polit.*did you mean 'polite'"):
        load_player(resolve_env(config), "player")


def test_contradicting_arguments_are_an_error():
    config = board({"mode": "tap"}, {"mode": "select"})
    for use in (lambda env: env.kwargs, open_translator):
        with pytest.raises(ConfigError, match=r"kwargs\.mode=select contradicts env\.kwargs"):
            use(resolve_env(config))
    assert resolve_env(board({"mode": "tap"}, {"mode": "tap"})).kwargs == {"mode": "tap"}


@pytest.mark.parametrize(
    "config",
    [
        board({"size": 3, "max_episode_steps": 9, "render_mode": None}),
        board({}, id="FilledBoard-v0"),
        board({"whatever": 1}, id="AnyBoard-v0"),
    ],
)
def test_valid_arguments_pass(config):
    resolve_env(config).check_arguments()


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"size": 3, "rouds": 5}, r"env\.kwargs\.rouds: .*did you mean 'rounds'.*size, mode, roun"),
        ({}, r"env\.kwargs: Board-v0 requires size"),
        ({"size": 3, "disable_env_checker": True}, r"env\.kwargs\.disable_env_checker: Board-v0"),
    ],
)
def test_invalid_arguments_are_named(kwargs, words):
    with pytest.raises(ConfigError, match=words):
        resolve_env(board(kwargs)).check_arguments()


@pytest.mark.adb
def test_mode_of_the_number_game_is_set_once(adb_server, tmp_path):
    settings = ["env.kwargs={mode: select}", "devices.source=virtual:1", f"run.dir={tmp_path}"]
    found = agentrl.evaluate("number_game", policy="expert", episodes=1, overrides=settings)
    assert found.metrics["accuracy"] == 1.0
    assert found.metrics["turns"] == 10  # the button is pressed for the player


def test_allowed_packages_reach_an_environment_with_a_phone_that_takes_them(monkeypatch):
    game, chrome = resolve_env(EnvConfig()), ["com.android.chrome"]
    given = []
    monkeypatch.setattr(
        env_registry, "make_registered", lambda *arguments: given.append(arguments[2])
    )
    monkeypatch.setattr(resolved_env, "with_text_actions", lambda made: made)
    game.with_allowed_apps(chrome).make(device="emulator-5554")
    assert (given[0]["allow"], given[0]["device"]) == (chrome, "emulator-5554")
    assert game.with_allowed_apps([]) is game
    no_phone = resolve_env(board({"size": 4}))
    assert no_phone.with_allowed_apps(chrome) is no_phone
    job = Config(devices=DevicesConfig(allow=chrome), eval=EvalConfig(kwargs={"rounds": 2}))
    assert plan_rollouts(job).env("train", "").allowed_apps == (*chrome,)
    assert plan_rollouts(job).env("eval", "").allowed_apps == (*chrome,)
    with pytest.raises(ConfigError, match="PhoneBoard-v0 does not guard its phone"):
        resolve_env(board({"size": 4}, id="PhoneBoard-v0")).with_allowed_apps(chrome)
