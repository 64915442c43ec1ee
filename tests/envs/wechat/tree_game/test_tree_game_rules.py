import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.envs.wechat.tree_game import layout
from agentrl.envs.wechat.tree_game.equipment import WEIGHTS, Equipment, draw_drop, draw_worn, reach
from agentrl.envs.wechat.tree_game.rules import TreeGameLevel, TreeGamePhase, TreeGameRules
from tests.envs.wechat.tree_game.tree_app import launched, tap

SEEDS = st.integers(min_value=0, max_value=2**32)
CHOICES = st.lists(st.booleans(), min_size=4, max_size=4)


def played(seed: int, choices: list[bool], **level: object) -> TreeGameRules:
    """Return a game after these decisions, where True means replace."""
    game = TreeGameRules(seed, **{"chops": len(choices), "chop_ms": 0, **level})
    for replace in choices:
        assert game.touch(*layout.AXE.center)
        assert game.touch(*(layout.REPLACE if replace else layout.DECOMPOSE).center)
    return game


@given(SEEDS)
@settings(deadline=None, max_examples=25)
def test_no_way_to_play_ends_outside_the_reach_and_some_end_at_its_ends(seed: int) -> None:
    worst, best = reach(seed, 4)
    ends = [played(seed, list(way)).power for way in itertools.product((False, True), repeat=4)]
    assert (min(ends), max(ends)) == (worst, best)


@given(SEEDS, st.integers(1, 12))
@settings(deadline=None)
def test_always_taking_the_better_piece_gives_the_best_power(seed: int, chops: int) -> None:
    game = TreeGameRules(seed, chops=chops, chop_ms=0)
    while game.phase is not TreeGamePhase.FINAL:
        game.touch(*layout.AXE.center)
        state = game.state()
        right = layout.REPLACE if state["optimal"] == "replace" else layout.DECOMPOSE
        game.touch(*right.center)
    assert game.power == game.state()["best_power"] == reach(seed, chops)[1]
    assert (game.state()["regret"], game.right) == (0.0, chops)


@given(SEEDS, CHOICES)
@settings(deadline=None)
def test_the_score_is_how_much_better_each_choice_was_and_the_power_their_sum(
    seed: int, choices: list[bool]
) -> None:
    game, power, score = TreeGameRules(seed, chops=4, chop_ms=0), 0, 0.0
    start = game.power
    for replace in choices:
        game.touch(*layout.AXE.center)
        change = game.change
        assert change == sum(w * d for w, d in zip(WEIGHTS, game.differences, strict=True))
        power += change if replace else 0
        score += float(np.clip((change if replace else -change) / 100, -1, 1))
        game.touch(*(layout.REPLACE if replace else layout.DECOMPOSE).center)
    assert game.power == start + power
    assert game.state()["score"] == pytest.approx(score, abs=1e-3)
    assert 0 <= game.state()["regret"] <= 1


@given(SEEDS, CHOICES, CHOICES)
@settings(deadline=None)
def test_drops_depend_on_the_seed_and_not_on_decisions(
    seed: int, one: list[bool], other: list[bool]
) -> None:
    first, second = played(seed, one, chops=5), played(seed, other, chops=5)
    for game in (first, second):
        game.touch(*layout.AXE.center)
    assert first.drop == second.drop == draw_drop(seed, 4)
    assert len(draw_worn(seed)) == 6


@given(SEEDS, st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=30))
@settings(deadline=None)
def test_any_touches_leave_plain_json_and_the_same_ones_lead_to_the_same(
    seed: int, touches: list[tuple[float, float]]
) -> None:
    one, other = launched(seed, chops=2), launched(seed, chops=2)
    for x, y in touches:
        assert one.touch(x, y) == other.touch(x, y)
    assert one.state() == other.state() == json.loads(json.dumps(one.state()))


def test_a_chop_takes_a_moment_and_is_not_to_be_hurried() -> None:
    game = TreeGameRules(3, chop_ms=120)
    assert (game.tick_ms, game.touch(*layout.REPLACE.center)) == (0, False)
    assert game.touch(*layout.AXE.center)
    assert game.state()["busy"]
    assert not game.touch(*layout.AXE.center)
    for _ in range(3):
        assert (game.phase, game.tick_ms) == (TreeGamePhase.CHOPPING, 50)
        game.tick()
    assert (game.phase, game.tick_ms, game.state()["busy"]) == (TreeGamePhase.DROP, 0, False)


def test_attributes_of_a_piece_trade_off() -> None:
    mixed = 0
    for seed in range(100):
        worn, drop = draw_worn(seed), draw_drop(seed, 0)
        old = worn[drop.slot]
        signs = {int(np.sign(n - o)) for n, o in zip(drop.values, old.values, strict=True)}
        mixed += {1, -1} <= signs
        assert all(1 <= value <= 99 for value in drop.values)
    assert mixed > 85
    assert Equipment(0, (1, 1, 1, 1, 1)).power == sum(WEIGHTS)


def test_noise_turns_some_arrows_and_touches_no_number() -> None:
    def arrows(seed: int, noise: int) -> tuple[int, ...]:
        app = launched(seed, noise=noise)
        tap(app, "chop")
        state = app.state()
        assert state["differences"] == launched_differences(seed)
        return tuple(state["arrows"])

    def launched_differences(seed: int) -> list[int]:
        app = launched(seed)
        tap(app, "chop")
        return list(app.state()["differences"])

    plain = [arrows(seed, 0) for seed in range(60)]
    signs = [tuple(int(np.sign(d)) for d in launched_differences(seed)) for seed in range(60)]
    assert plain == signs
    noisy = [arrows(seed, 30) for seed in range(60)]
    turned = np.mean(np.array(noisy) != np.array(plain))
    assert 0.22 < turned < 0.38
    assert noisy == [arrows(seed, 30) for seed in range(60)]


@pytest.mark.parametrize(
    "wrong", [{"total": "none"}, {"noise": 51}, {"chops": 0}, {"chop_ms": -1}, {"noise": True}]
)
def test_an_invalid_level_is_rejected(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="must be"):
        TreeGameLevel(**wrong)  # type: ignore[arg-type]
