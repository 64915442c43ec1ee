"""The player `noisy`, which every environment with an expert and a random player has."""

import numpy as np
import pytest

from agentrl import env_registry
from agentrl.actions.players.noisy_player import NoisyPlayer
from agentrl.actions.players.player import scripted_reply, takes_observation
from agentrl.config import EnvConfig
from agentrl.errors import ConfigError
from agentrl.rollout.environments.load_translator_and_players import load_player
from agentrl.rollout.environments.resolved_env import resolve_env


class Good:
    def reply(self, info, rng):
        return "good"


class Seeing:
    def reply(self, info, rng, observation):
        return f"saw {observation}"


def noisy(id="Sokoban-v0", **settings):
    return load_player(resolve_env(EnvConfig(id=id, **settings)), "noisy")


@pytest.mark.parametrize("noise", [0.0, 0.3, 1.0])
def test_the_share_of_random_replies_is_the_noise(noise):
    player, rng = NoisyPlayer(Good(), Seeing(), noise), np.random.default_rng(0)
    replies = [scripted_reply(player, 7, {}, rng) for _ in range(2000)]
    assert set(replies) <= {"good", "saw 7"}
    assert replies.count("saw 7") / 2000 == pytest.approx(noise, abs=0.03)


def test_it_needs_the_observation_if_one_of_its_players_does():
    assert takes_observation(NoisyPlayer(Good(), Seeing()))
    assert takes_observation(NoisyPlayer(Seeing(), Good()))
    assert not takes_observation(NoisyPlayer(Good(), Good()))  # so its replies can be relabeled


def test_every_environment_with_an_expert_and_a_random_player_has_it():
    for game in env_registry.registered_envs():
        both = {"expert", "random"} <= game.players.keys()
        assert ("noisy" in game.players) == both, game.id
    lake = EnvConfig(id="FrozenLake-v1")
    assert "noisy" not in resolve_env(lake).players
    lake.players = {"expert": f"{__name__}:Seeing"}
    assert load_player(resolve_env(lake), "noisy").takes_observation


def test_your_own_player_of_that_name_takes_precedence():
    env = resolve_env(EnvConfig(id="Sokoban-v0", players={"noisy": f"{__name__}:Good"}))
    assert isinstance(load_player(env, "noisy"), Good)


def test_both_players_get_the_other_settings_and_the_dialect():
    reply = noisy(player_kwargs={"noise": 0.0, "think": False}, translator_kwargs={"style": "tool"})
    board = "#####\n#@$.#\n#####"
    text = reply.reply({"board": board}, np.random.default_rng(0))
    assert text == '<tool_call>{"name": "right", "arguments": {}}</tool_call>'
    noisy("NumberGame-v0", dialect="qwen3-vl-mobile-use")
    # An environment's own argument of the same name is something else.
    noisy("TreeGame-v0", kwargs={"noise": 30})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"player_kwargs": {"noise": 1.5}}, "env.player_kwargs.noise=1.5: must lie between 0"),
        ({"player_kwargs": {"noise": "much"}}, "the player 'noisy' of Sokoban-v0 cannot be const"),
        ({"player_kwargs": {"nois": 0.1}}, "no player of Sokoban-v0 accepts it .*mean 'noise'"),
        ({"player_kwargs": {"expert": 0.1}}, "env.player_kwargs.expert: no player of Sokoban-v0"),
        (
            {"players": {"expert": "Sokoban-v0/noisy"}},
            "env.players.expert: NoisyPlayer needs",
        ),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        noisy(**settings)
