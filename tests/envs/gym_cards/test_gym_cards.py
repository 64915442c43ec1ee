"""NumberLine and EZPoints behave like gym-cards: its recorded episodes, and its code if present."""

import importlib.util
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

import agentrl
from agentrl.actions.players.player import scripted_reply
from agentrl.config import EnvConfig
from agentrl.envs.gym_cards.drawing import RANKS, draw_points
from agentrl.envs.gym_cards.ez_points import SYMBOLS, EZPoints, is_right
from agentrl.envs.gym_cards.number_line import NumberLine
from agentrl.envs.gym_cards.players import next_part
from agentrl.errors import ConfigError
from agentrl.rollout.environments.load_translator_and_players import load_player, open_translator
from agentrl.rollout.environments.resolved_env import resolve_env

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "gym_cards.py"

# What gym-cards returned for these moves: position and reward after each, then how it ended.
LINES = [
    ((0, 3, 5), "RRR", [(1, 0), (2, 0), (3, 1)], (True, False)),
    ((5, 2, 5), "RLRLLL", [(5, -1), (4, 0), (5, -1), (4, 0), (3, 0), (2, 1)], (True, False)),
    ((0, 1, 5), "L" * 10, [(0, -1)] * 10, (False, True)),
    ((4, 5, 5), "LR" * 5, [(3, -1), (4, 0)] * 5, (False, True)),
    ((0, 2, 2), "LLRR", [(0, -1), (0, -1), (1, 0), (2, 1)], (True, False)),
    ((0, 2, 2), "LLLL", [(0, -1)] * 4, (False, True)),
]
POINTS = [
    ("H2 ST", "2 + 10 =", [0, 0, 0, 10], (True, False)),
    ("H2 S6", "2 * 6 =", [0, 0, 0, 10], (True, False)),
    ("DK C2", "10 2 =", [0, 0, -1], (True, False)),
    ("H6 D6", "6 + 6 =", [0, 0, 0, 10], (True, False)),
    ("H6 D6", "6 * 6 =", [0, 0, 0, -1], (True, False)),
    ("H2 ST", "+ 2 + + 10 =", [0, 0, 0, 0, 0, 10], (True, False)),
    ("H2 ST", "7 2 2 + 10 =", [-1, 0, -1, 0, 0, 10], (True, False)),
    ("H2 ST", "2 + 10 + =", [0, 0, 0, 0, -1], (True, False)),
    ("H2 S6", "2 * 9 6 =", [0, 0, -1, 0, 10], (True, False)),
    ("H2 S6", "2 * + 6 =", [0, 0, 0, 0, 10], (True, False)),
    ("H2 S6", "2 * * 6 =", [0, 0, 0, 0, -1], (True, False)),
    ("H2 S6", "* 2 * 6 =", [0, 0, 0, 0, -1], (True, False)),
    ("H2 S6", "2 9 * 6 7 =", [0, -1, 0, 0, -1, 10], (True, False)),
    ("H2 S6", "2 9 * 6 7 7 =", [0, -1, 0, 0, -1, -1, -1], (False, True)),
    ("H3 S9", "=", [-1], (True, False)),
    ("H3 S9", "3 + 9 * 9 + =", [0, 0, 0, 0, -1, 0, -1], (False, True)),
    ("H3 S4", "3 * 4 + =", [0, 0, 0, 0, -1], (True, False)),
]


@pytest.mark.parametrize(("start", "moves", "rows", "ends"), LINES)
def test_number_line_repeats_a_recorded_walk(start, moves, rows, ends):
    current, target, most = start
    env = agentrl.make("NumberLine-v0", max_position=most)
    env.reset(seed=0, options={"current": current, "target": target})
    for move, row in zip(moves, rows, strict=True):
        _, reward, *found, info = env.step("LR".index(move))
        assert (info["current"], reward) == row
    assert tuple(found) == ends


@pytest.mark.parametrize(("cards", "parts", "rewards", "ends"), POINTS)
def test_ez_points_repeats_a_recorded_formula(cards, parts, rewards, ends):
    env = agentrl.make("EZPoints-v0")
    env.reset(seed=0, options={"cards": cards.split()})
    for part, expected in zip(parts.split(), rewards, strict=True):
        _, reward, *found, info = env.step(SYMBOLS.index(part))
        assert reward == expected
    assert tuple(found) == ends
    assert info["metrics"]["success"] == (reward == 10)


def test_a_formula_is_worth_what_python_says():
    rng = np.random.default_rng(0)
    right = 0
    for _ in range(3000):
        parts = [str(part) for part in rng.choice(["2", "10", "6", "+", "*", " "], 5)]
        try:
            value = eval("".join(parts))
        except SyntaxError:
            value = None
        expected = value == 12 and sum(part.isdigit() for part in parts) == 2
        assert is_right(parts) == expected, parts
        right += expected
    assert right > 20


@pytest.mark.skipif("AGENTRL_GYM_CARDS" not in os.environ, reason="needs gym-cards' source")
def test_random_walks_equal_those_of_gym_cards(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARK.parent))
    monkeypatch.setenv("XDG_DATA_HOME", "")  # restored afterwards
    spec = importlib.util.spec_from_file_location("gym_cards_benchmark", BENCHMARK)
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    table = benchmark.compare(Path(os.environ["AGENTRL_GYM_CARDS"]), 200)
    for column in table.columns[-3:]:
        assert list(column.cells) == ["0", "0"], column.header


def test_starts_have_the_published_probabilities():
    line, points = agentrl.make("NumberLine-v0"), agentrl.make("EZPoints-v0")
    starts, deals = Counter(), Counter()
    for seed in range(1500):
        info = line.reset(seed=seed)[1]
        starts[info["current"], info["target"]] += 1
        info = points.reset(seed=seed)[1]
        deals[tuple(sorted(info["numbers"]))] += 1
    expected = Counter()
    for current in range(6):
        for target in range(6):
            expected[current, (target + 1) % 5 if current == target else target] += 1 / 36
    _check(starts, expected)
    expected = Counter()
    for rank in range(2, 14):
        number = min(rank, 10)
        product = 0.5 if number in (2, 3, 4, 6) else 0.0
        expected[tuple(sorted((number, 12 - number)))] += (1 - product) / 12
        if product:
            expected[tuple(sorted((number, 12 // number)))] += product / 12
    _check(deals, expected)


def _check(counts, expected):
    assert counts.keys() == expected.keys()
    total = sum(counts.values())
    pairs = [(counts[key], expected[key] * total) for key in expected]
    assert scipy.stats.chisquare(*zip(*pairs, strict=True)).pvalue > 1e-4


def test_every_card_is_drawn_differently():
    cards = [suit + rank for suit in "HSDC" for rank in RANKS]
    assert len({draw_points((card, "S2"), "").tobytes() for card in cards}) == 52


@pytest.mark.parametrize("id", ["NumberLine-v0", "EZPoints-v0"])
@pytest.mark.parametrize("style", ["tag", "tool"])
def test_the_expert_always_succeeds_and_the_random_player_seldom(id, style):
    env = resolve_env(EnvConfig(id=id, translator_kwargs={"style": style}))
    success = {}
    for name in ("expert", "random", "noisy"):
        player, translator, game = load_player(env, name), open_translator(env), env.make()
        rng, wins = np.random.default_rng(0), []
        for seed in range(60):
            observation, info = game.reset(seed=seed)
            over = False
            while not over:
                action = translator.to_action(scripted_reply(player, observation, info, rng))
                observation, _, *ends, info = game.step(action)
                over = any(ends)
            wins.append(info["metrics"]["success"])
        success[name] = np.mean(wins)
    assert success["expert"] == 1.0
    assert success["random"] < success["noisy"] < 1.0


def test_the_expert_repairs_a_formula_if_it_can():
    assert next_part((2, 10), (" ", "2", "*")) == "="  # lost: 2 * 10 is not 12
    assert next_part((2, 6), (" ", "2", "*")) == "6"
    assert next_part((2, 6), ("+",)) == "2"
    assert next_part((2, 10), ()) == "2"


@pytest.mark.parametrize(
    ("env", "kwargs", "message"),
    [
        (NumberLine, {"max_position": 1}, "max_position=1: must be from 2 to 9999"),
        (NumberLine, {"render_mode": "ansi"}, "render_mode='ansi': must be rgb_array"),
        (EZPoints, {"render_mode": "ansi"}, "render_mode='ansi': must be rgb_array"),
    ],
)
def test_invalid_arguments_are_refused(env, kwargs, message):
    with pytest.raises(ConfigError, match=message):
        env(**kwargs)
