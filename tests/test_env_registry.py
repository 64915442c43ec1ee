from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gymnasium
import pytest

import agentrl
from agentrl import env_registry
from agentrl.config import EnvConfig, WrapperConfig
from agentrl.errors import ConfigError
from agentrl.rollout.environments.load_translator_and_players import (
    load_player,
    open_translator,
    read_interface,
)
from agentrl.rollout.environments.resolved_env import resolve_env

CODE = """
import gymnasium

class Coin(gymnasium.Env):
    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Discrete(2)
    def __init__(self, bias=0.5, render_mode=None):
        self.bias = bias
        if bias == "exit": raise SystemExit(0)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}
    def step(self, action):
        return 0, 1.0, True, False, {}

class Doubled(gymnasium.RewardWrapper):
    def __init__(self, env, by=2):
        super().__init__(env)
        self.by = by
    def reward(self, reward):
        return self.by * reward
"""


class Plain(gymnasium.Env):
    """An unregistered environment."""

    action_space = gymnasium.spaces.Discrete(3)
    observation_space = gymnasium.spaces.Discrete(1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}


@pytest.fixture
def coin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    file = f"coin_{tmp_path.name}.py"  # no two modules of one name
    (tmp_path / file).write_text(CODE)
    monkeypatch.chdir(tmp_path)
    return file


@pytest.mark.parametrize(
    ("id", "own"),
    [
        ("FrozenLake-v1", "FrozenLake-v1"),
        ("gymnasium:FrozenLake-v1", "FrozenLake-v1"),
        (f"{__name__}:Plain", "test_env_registry/Plain-v0"),
        ("agentrl.envs:NumberGame-v0", "NumberGame-v0"),
    ],
)
def test_an_environment_is_found_by_each_of_its_names(id: str, own: str) -> None:
    assert env_registry.find_env(id).id == own
    assert env_registry.find_env(id) == env_registry.find_env(id)


def test_a_class_in_a_file_is_an_environment_with_wrappers(coin: str) -> None:
    wrapper = WrapperConfig(wrapper=f"{coin}:Doubled", kwargs={"by": 3})
    config = EnvConfig(id=f"{coin}:Coin", kwargs={"bias": 0.1}, wrappers=[wrapper])
    made = resolve_env(config).make()
    assert made.unwrapped.bias == 0.1
    made.reset(seed=1)
    assert made.step(0)[1] == 3.0
    assert open_translator(resolve_env(config)).to_action("<action>1</action>") == 1
    assert load_player(resolve_env(config), "random")
    assert (
        read_interface(resolve_env(config))["action_space"]
        is read_interface(resolve_env(config))["action_space"]
    )


def test_equal_class_and_module_names_in_different_packages_do_not_collide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    for folder, bias in (("heads", 1), ("tails", 2)):
        (tmp_path / folder).mkdir()
        code = CODE.replace("bias=0.5", f"bias={bias}")
        assert code != CODE
        (tmp_path / folder / "coins.py").write_text(code)
    names = [f"{folder}.coins:Coin" for folder in ("heads", "tails", "heads")]
    assert [resolve_env(EnvConfig(id=name)).make().unwrapped.bias for name in names] == [1, 2, 1]
    assert env_registry.find_env(names[0]).id != env_registry.find_env(names[1]).id


class Loud:
    """A translator for a third-party environment."""

    def __init__(self, mark="!"):
        self.mark = mark

    def instructions(self):
        return f"Play{self.mark}"


class Stubborn:
    def reply(self, info, rng):
        return "<action>2</action>"


def test_a_configuration_may_name_a_translator_and_players() -> None:
    config = EnvConfig(
        id="FrozenLake-v1",
        translator_class=f"{__name__}:Loud",
        players={"stubborn": f"{__name__}:Stubborn"},
        translator_kwargs={"mark": "?"},
    )
    assert open_translator(resolve_env(config)).instructions() == "Play?"
    assert load_player(resolve_env(config), "stubborn").reply({}, None) == "<action>2</action>"
    with pytest.raises(ConfigError, match="did you mean 'stubborn'"):
        load_player(resolve_env(config), "stuborn")


def test_the_default_translator_is_made_without_a_configuration() -> None:
    translator = agentrl.make_translator("FrozenLake-v1", {"names": ["l", "d", "r", "u"]})
    assert translator.to_action("<action>u</action>") == 3


@pytest.mark.parametrize(
    ("id", "message"),
    [
        ("FrozenLak-v1", "did you mean 'FrozenLake-v1'"),
        ("Taxi-v3", "use `Taxi-v4`"),
        ("FrozenLake-v9", "agentrl envs list"),
        ("no_module_of_mine:X-v0", "cannot be imported"),
        (f"{__name__}:Plane", "'Plane' does not exist .did you mean 'Plain'"),
        (f"{__name__}:Loud", "'Loud' is not a gymnasium.Env"),
        ("http://127.0.0.1:99999", "must have the form http://HOST:PORT"),
    ],
)
def test_an_unknown_environment_is_a_config_error(id: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve_env(EnvConfig(id=id)).make()


def test_a_file_is_imported_once_by_concurrent_threads(tmp_path: Path) -> None:
    file = tmp_path / f"slow_{tmp_path.name}.py"
    file.write_text(f"import time\ntime.sleep(0.5)\n{CODE}")
    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(lambda _: env_registry.find_env(f"{file}:Coin").id, range(4)))) == 1


def test_an_environment_on_a_phone_without_a_default_phone_says_how_to_open_one() -> None:
    class Bare(gymnasium.Env):
        def __init__(self, device): ...

    env_registry.register("BarePhone-v0", Bare, app=f"{__name__}:App")
    with pytest.raises(ConfigError, match=r"`device: str = \"virtual\"` and open it with"):
        env_registry.make("BarePhone-v0")


def test_an_environment_that_cannot_be_made_is_a_config_error(coin: str) -> None:
    for config, message in (
        (EnvConfig(id=f"{coin}:Coin", kwargs={"bia": 1}), "rejects the arguments"),
        (
            EnvConfig(id="FrozenLake-v1", kwargs={"map_name": "5x5"}),
            "cannot be constructed: KeyError",
        ),
        (EnvConfig(id="NumberGame-v0"), "played on a phone"),
        (
            EnvConfig(id=f"{coin}:Coin", kwargs={"bias": "exit"}),
            "cannot be constructed: SystemExit",
        ),
        (
            EnvConfig(
                id=f"{coin}:Coin",
                wrappers=[WrapperConfig(wrapper=f"{coin}:Doubled", kwargs={"times": 3})],
            ),
            "failed with kwargs=",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            read_interface(resolve_env(config))["action_space"]


def test_all_references_of_built_in_environments_resolve() -> None:
    # other tests of this process may have registered games of theirs, in files that are gone
    own = [
        game
        for game in env_registry.registered_envs()
        if str(game.entry_point).startswith("agentrl.")
    ]
    assert own
    for game in own:
        references = [game.translator, *game.players.values(), *filter(None, [game.app])]
        for reference in references:
            assert callable(agentrl.user_code.load(reference)), (game.id, reference)
