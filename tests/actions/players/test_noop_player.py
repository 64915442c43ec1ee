"""The player `noop`, which every environment has."""

import numpy as np
import pytest

from agentrl import env_registry
from agentrl.actions.players.noop_player import NOOP
from agentrl.config import EnvConfig
from agentrl.rollout.environments.load_translator_and_players import load_player, open_translator
from agentrl.rollout.environments.resolved_env import resolve_env

TARGETS = {"wait": [0.1, 0.2], "stay": [0.3, 0.4, 0.3, 0.4]}


def reply(id, **settings):
    player = load_player(resolve_env(EnvConfig(id=id, **settings)), NOOP)
    return player.reply({"touch_targets": TARGETS}, np.random.default_rng(0))


def test_every_environment_has_it():
    for game in env_registry.registered_envs():
        assert NOOP in game.players, game.id
    assert NOOP in resolve_env(EnvConfig(id="FrozenLake-v1")).players


@pytest.mark.parametrize(
    ("id", "settings", "expected"),
    [
        ("FlappyBird-v0", {"kwargs": {"mode": "calls"}}, "<action>wait</action>"),
        ("SpaceFighter-v0", {"kwargs": {"mode": "calls"}}, "<action>stay</action>"),
        ("FlappyBird-v0", {}, "<action>tap(0.10, 0.20)</action>"),
        (
            "CartPole-v1",
            {"translator_kwargs": {"names": ["push", "No-Op"]}},
            "<action>No-Op</action>",
        ),
        (
            "CartPole-v1",
            {"translator_kwargs": {"names": ["do_nothing", "x"]}},
            "<action>do_nothing</",
        ),
        ("CartPole-v1", {}, ""),
        ("Sokoban-v0", {}, ""),
        ("NumberGame-v0", {"dialect": "qwen3-vl-mobile-use"}, ""),
    ],
)
def test_it_makes_the_environments_own_action_or_none(id, settings, expected):
    found = reply(id, **settings)
    assert found.startswith(expected)
    assert bool(found) == bool(expected)


def test_its_action_is_valid():
    names = {"translator_kwargs": {"names": ["push", "wait"], "style": "tool"}}
    translator = open_translator(resolve_env(EnvConfig(id="CartPole-v1", **names)))
    assert translator.to_action(reply("CartPole-v1", **names)) == 1


class Own:
    def reply(self, info, rng):
        return "zzz"


def test_your_own_player_of_that_name_takes_precedence():
    assert reply("Sokoban-v0", players={"noop": f"{__name__}:Own"}) == "zzz"
