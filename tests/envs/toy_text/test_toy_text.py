"""Optimal players of Gymnasium's toy text games, and FrozenLake with a new map per episode."""

import re

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv
from scipy.optimize import linprog

import agentrl
from agentrl.actions.players.player import scripted_reply
from agentrl.config import EnvConfig
from agentrl.envs.toy_text import frozen_lake_maps
from agentrl.envs.toy_text.players import FrozenLakeExpert, optimal_actions
from agentrl.errors import ConfigError
from agentrl.rollout.environments.load_translator_and_players import load_player, open_translator
from agentrl.rollout.environments.resolved_env import resolve_env

PLAYERS = "agentrl.envs.toy_text.players"


def mean_return(config, name, episodes):
    env = resolve_env(config)
    player, translator, game = load_player(env, name), open_translator(env), env.make()
    rng, returns = np.random.default_rng(0), []
    for seed in range(episodes):
        observation, info = game.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            action = translator.to_action(scripted_reply(player, observation, info, rng))
            observation, reward, *ends, info = game.step(action)
            total, over = total + reward, any(ends)
        returns.append(total)
    game.close()
    return float(np.mean(returns))


@pytest.mark.parametrize("is_slippery", [True, False])
def test_value_iteration_finds_the_optimum_of_the_linear_program(is_slippery):
    transitions, discount = FrozenLakeEnv(is_slippery=is_slippery).P, 0.95
    # The optimal values are the smallest that are at least as high as any action's.
    bounds, rewards = [], []
    for state, of_state in transitions.items():
        for outcomes in of_state.values():
            row = np.zeros(len(transitions))
            row[state] -= 1.0
            for probability, after, _, ends in outcomes:
                row[after] += 0.0 if ends else discount * probability
            bounds.append(row)
            rewards.append(-sum(p * reward for p, _, reward, _ in outcomes))
    values = linprog(np.ones(16), bounds, rewards, bounds=(None, None)).x
    for state, action in enumerate(optimal_actions(transitions, discount)):
        outcomes = transitions[state][action]
        worth = sum(p * (r + (not ends) * discount * values[s]) for p, s, r, ends in outcomes)
        assert worth == pytest.approx(values[state], abs=1e-6)


@pytest.mark.parametrize(
    ("id", "expert", "kwargs", "least"),
    [
        ("FrozenLake-v1", "FrozenLakeExpert", {}, 0.70),  # Gymnasium's threshold
        ("FrozenLake-v1", "FrozenLakeExpert", {"is_slippery": False}, 1.0),
        ("FrozenLake8x8-v1", "FrozenLakeExpert", {"map_name": "8x8"}, 0.8),
        ("CliffWalking-v1", "CliffWalkingExpert", {}, -13.0),
        ("Taxi-v4", "TaxiExpert", {}, 7.5),
    ],
)
def test_an_expert_reaches_the_known_optimum(id, expert, kwargs, least):
    config = EnvConfig(id=id, kwargs=kwargs, players={"expert": f"{PLAYERS}:{expert}"})
    assert mean_return(config, "expert", 200) >= least


def test_a_frozen_lake_expert_replies_with_the_way_to_the_goal():
    kwargs = {"action_space": gymnasium.spaces.Discrete(4), "names": ["l", "d", "r", "u"]}
    rng = np.random.default_rng(0)

    def moves(square, is_slippery, most):
        expert = FrozenLakeExpert(**kwargs, is_slippery=is_slippery, max_actions_per_reply=most)
        return "".join(re.findall("<action>(.)</action>", expert.reply({}, rng, square)))

    whole = moves(0, False, 10)
    lake, ends = FrozenLakeEnv(is_slippery=False), []
    lake.reset(seed=0)
    for move in whole:
        _, reward, over, *_ = lake.step("ldru".index(move))
        ends.append((reward, over))
    assert ends == [(0, False)] * 5 + [(1, True)]
    assert moves(0, False, 4) == whole[:4]
    assert moves(14, False, 4) == "r"
    assert len(moves(0, True, 4)) == 1


def test_noise_lies_between_the_expert_and_the_random_player():
    def config(noise):
        players = {"expert": f"{PLAYERS}:CliffWalkingExpert"}
        kwargs = {"noise": noise}
        wrapper = {"wrapper": "gymnasium.wrappers:TimeLimit", "kwargs": {"max_episode_steps": 60}}
        job = {"id": "CliffWalking-v1", "players": players, "wrappers": [wrapper]}
        return agentrl.load_config("frozen_lake", [f"env={job | {'player_kwargs': kwargs}}"]).env

    assert mean_return(config(0.0), "noisy", 1) == -13
    some, much = (mean_return(config(noise), "noisy", 20) for noise in (0.3, 1.0))
    assert -13 > some > much


def test_a_map_depends_only_on_the_seed_and_the_splits_are_disjoint():
    found = {}
    for split in ("train", "eval"):
        game = agentrl.make("FrozenLakeMaps-v0", split=split)
        maps = [game.reset(seed=seed)[1]["map"] for seed in range(100)]
        assert maps == [game.reset(seed=seed)[1]["map"] for seed in range(100)]
        mirrored = {
            "\n".join("".join(column) for column in zip(*rows.split("\n"), strict=True))
            for rows in maps
        }
        found[split] = set(maps) | mirrored
    assert len(found["train"]) > 40
    assert not found["train"] & found["eval"]


def test_it_plays_and_looks_like_gymnasiums_frozen_lake():
    ours = agentrl.make("FrozenLakeMaps-v0", is_slippery=False, render_mode="rgb_array")
    rng = np.random.default_rng(0)
    for seed in range(10):
        _, info = ours.reset(seed=seed)
        theirs = gymnasium.make(
            "FrozenLake-v1", desc=info["map"].split("\n"), is_slippery=False,
            render_mode="rgb_array",
        )  # fmt: skip
        theirs.reset(seed=0)
        over = False
        while not over:
            assert np.array_equal(ours.render(), theirs.render())
            action = int(rng.integers(4))
            *first, info = ours.step(action)
            *second, _ = theirs.step(action)
            assert first == second
            over = any(first[2:])
        assert info["metrics"]["success"] == first[1]
        theirs.close()
    ours.close()


def test_the_expert_crosses_every_map():
    config = EnvConfig(id="FrozenLakeMaps-v0", kwargs={"is_slippery": False, "split": "eval"})
    assert mean_return(config, "expert", 40) == 1.0


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"size": 2}, "size=2: must be from 3 to 16"),
        ({"frozen": 0}, "frozen=0: must be a probability above 0"),
        ({"split": "test"}, "split='test': must be one of all, train, eval"),
        ({"held_out": 1}, "held_out=1: must be a share between 0 and 1"),
        ({"reward_schedule": [1, 0]}, "reward_schedule=.*: must be three rewards"),
    ],
)
def test_invalid_arguments_are_refused(kwargs, message):
    with pytest.raises(ConfigError, match=message):
        agentrl.make("FrozenLakeMaps-v0", **kwargs)


def test_pictures_without_pygame_are_refused_with_the_installation(monkeypatch):
    monkeypatch.setattr(frozen_lake_maps, "find_spec", lambda name: None)
    frozen_lake_maps.FrozenLakeMaps()
    with pytest.raises(ConfigError, match=r"needs pygame.*agentrl-screens\[toy-text\]"):
        frozen_lake_maps.FrozenLakeMaps(render_mode="rgb_array")


def test_an_empty_split_is_reported():
    game = agentrl.make("FrozenLakeMaps-v0", frozen=1.0, split="eval", held_out=0.01)
    with pytest.raises(ConfigError, match="none of 1,000 maps belongs to the split 'eval'"):
        game.reset(seed=0)
