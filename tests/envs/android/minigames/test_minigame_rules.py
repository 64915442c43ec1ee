import itertools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.envs.android.minigames.flappy_bird import rules as flappy_bird
from agentrl.envs.android.minigames.flappy_bird.rules import FlappyBird
from agentrl.envs.android.minigames.flip.rules import MISS, PAIR, Flip
from agentrl.envs.android.minigames.game_2048 import rules as game_2048
from agentrl.envs.android.minigames.game_2048.rules import Game2048, slide
from agentrl.envs.android.minigames.minigame_rules import SWIPES, direction
from agentrl.envs.android.minigames.snake.rules import LENGTH, Snake, on_board
from agentrl.envs.android.minigames.space_fighter import rules as space_fighter
from agentrl.envs.android.minigames.space_fighter.rules import SpaceFighter
from agentrl.envs.android.minigames.timberman import rules as timberman
from agentrl.envs.android.minigames.timberman.rules import Timberman

SEEDS = st.integers(min_value=0, max_value=2**32)
GAMES = [Game2048, Timberman, Snake, Flip, FlappyBird, SpaceFighter]
TICKS = {Timberman: 1, Snake: 1, FlappyBird: 4, SpaceFighter: 1}
"""In a turn of the games in which time passes."""
LINES = st.lists(st.sampled_from([0, 0, 2, 4, 8]), min_size=4, max_size=4).map(tuple)
BOARDS = st.lists(LINES, min_size=4, max_size=4).map(tuple)


def play(game: Any, dice: int, turns: int = 60) -> list[dict[str, Any]]:
    """Return the states of a game played with random moves."""
    rng = np.random.default_rng(dice)
    states = [game.state()]
    while not game.done and len(states) <= turns:
        move = rng.choice(game.moves()).item()
        game.flip(move) if isinstance(game, Flip) else game.move(move)
        for _ in range(TICKS.get(type(game), 0)):
            game.tick()
        states.append(game.state())
    return states


@pytest.mark.parametrize("make", GAMES)
@settings(max_examples=10, deadline=None)
@given(seed=SEEDS, dice=SEEDS)
def test_same_seed_and_same_moves_give_the_same_game(
    make: Callable[[int], Any], seed: int, dice: int
) -> None:
    states = play(make(seed), dice)
    assert states == play(make(seed), dice)
    assert json.loads(json.dumps(states)) == states


@pytest.mark.parametrize("make", GAMES)
@settings(max_examples=10, deadline=None)
@given(seed=SEEDS, dice=SEEDS)
def test_a_game_that_is_over_stays_as_it_is(
    make: Callable[[int], Any], seed: int, dice: int
) -> None:
    game = make(seed)
    end = play(game, dice, turns=2000)[-1]
    assert game.done
    assert end["success"] is not end["lost"]
    assert end["moves"] == []
    for x, y in ((0.1, 0.9), (0.5, 0.5), (0.9, 0.3)):
        assert not game.touch(x, y)
        assert not game.swipe(x, y, 1 - x, 0.2)
        assert not game.tick()
    assert (game.state(), game.tick_ms) == (end, 0)


@pytest.mark.parametrize("make", GAMES)
def test_other_seeds_give_other_games(make: Callable[[int], Any]) -> None:
    ends = {json.dumps(play(make(seed), 0)[-1]) for seed in range(20)}
    assert len(ends) > 10


@pytest.mark.parametrize("make", [Game2048, Timberman, Snake, FlappyBird])
@given(seed=SEEDS, dice=SEEDS)
@settings(max_examples=10, deadline=None)
def test_the_score_never_falls(make: Callable[[int], Any], seed: int, dice: int) -> None:
    scores = [state["score"] for state in play(make(seed), dice)]
    assert scores == sorted(scores)
    assert scores[0] == 0


@pytest.mark.parametrize("make", GAMES)
def test_a_negative_seed_is_rejected(make: Callable[[int], Any]) -> None:
    with pytest.raises(ValueError, match="seed is -1"):
        make(-1)


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (Game2048, {"goal": 100}),
        (Game2048, {"goal": 4}),
        (Timberman, {"goal": 0}),
        (Snake, {"goal": 46}),
        (Flip, {"pairs": 5}),
        (FlappyBird, {"goal": 0}),
        (SpaceFighter, {"length": 0}),
    ],
)
def test_an_invalid_level_is_rejected(make: Any, wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="|".join(wrong)):
        make(0, **wrong)


@pytest.mark.parametrize("make", [Timberman, Snake, FlappyBird, SpaceFighter])
def test_an_unknown_move_is_rejected(make: Any) -> None:
    with pytest.raises(ValueError, match="'jump' is not a move"):
        make(0).move("jump")


@given(*[st.floats(0.0, 1.0)] * 4)
def test_the_direction_of_a_swipe_is_independent_of_its_position(
    x1: float, y1: float, x2: float, y2: float
) -> None:
    opposite = {"up": "down", "down": "up", "left": "right", "right": "left"}
    if (x1, y1) != (x2, y2):
        assert opposite[direction(x1, y1, x2, y2)] == direction(x2, y2, x1, y1)
    for name, path in SWIPES.items():
        assert direction(path.x1, path.y1, path.x2, path.y2) == name


# 2048


@given(BOARDS, st.sampled_from(game_2048.MOVES))
def test_a_slide_keeps_the_sum_of_the_tiles_and_never_makes_room_less(
    board: game_2048.Board, name: str
) -> None:
    after, merged = slide(board, name)
    assert sum(map(sum, after)) == sum(map(sum, board))
    assert len(game_2048.empty(after)) == len(game_2048.empty(board)) + len(merged)


@given(BOARDS)
def test_the_four_slides_are_rotations_of_each_other(board: game_2048.Board) -> None:
    mirrored = tuple(row[::-1] for row in board)
    turned = tuple(zip(*board, strict=True))
    left, merged = slide(board, "left")
    assert slide(mirrored, "right") == (tuple(row[::-1] for row in left), merged)
    assert slide(turned, "up") == (tuple(zip(*left, strict=True)), merged)
    assert slide(turned[::-1], "down") == (tuple(zip(*left, strict=True))[::-1], merged)


@pytest.mark.parametrize(
    ("row", "slid", "merged"),
    [
        ((2, 2, 2, 2), (4, 4, 0, 0), (4, 4)),
        ((2, 2, 4, 0), (4, 4, 0, 0), (4,)),
        ((0, 2, 0, 2), (4, 0, 0, 0), (4,)),
        ((4, 2, 2, 0), (4, 4, 0, 0), (4,)),
        ((2, 4, 2, 4), (2, 4, 2, 4), ()),
    ],
)
def test_a_tile_merges_once_in_a_move(
    row: game_2048.Row, slid: game_2048.Row, merged: game_2048.Row
) -> None:
    still = ((0, 0, 0, 0),) * 3
    assert slide((row, *still), "left") == ((slid, *still), merged)


@given(SEEDS, SEEDS)
@settings(max_examples=10, deadline=None)
def test_each_move_of_2048_adds_one_tile_of_2_or_4(seed: int, dice: int) -> None:
    sums = [sum(map(sum, state["board"])) for state in play(Game2048(seed), dice)]
    assert {after - before for before, after in itertools.pairwise(sums)} <= {2, 4}


def test_a_board_on_which_nothing_moves_is_lost_and_the_goal_wins() -> None:
    game = Game2048(0, goal=16)
    game.board = ((2, 4, 2, 4), (4, 2, 4, 2)) * 2
    assert game.lost
    game.board = ((8, 8, 0, 0), *((0,) * 4,) * 3)
    assert not game.move("up")
    assert game.move("left")
    assert (game.won, game.lost, game.score) == (True, False, 16)


# Timberman


@given(SEEDS)
def test_there_is_always_a_side_to_chop_on(seed: int) -> None:
    tree = timberman.grow(seed, 60)
    assert timberman.grow(seed, 30) == tree[:30]
    for now, above in itertools.pairwise(tree):
        assert {"left", "right"} - {now, above}


def test_a_branch_on_his_side_ends_the_game_before_and_after_the_chop() -> None:
    game = Timberman(0)
    game._pieces = ("", "right", "", *game._pieces[3:])
    assert game.move("right")
    assert (game.lost, game.score) == (True, 0), "it came down upon him"
    game = Timberman(0)
    game._pieces = ("right", "", *game._pieces[2:])
    assert game.move("right")
    assert (game.lost, game.score) == (True, 0), "he ran into it"


def test_the_bar_runs_out_and_a_chop_fills_it_a_little() -> None:
    game = Timberman(0)
    for _ in range(5):
        game.tick()
    game.move("left")
    assert game.time_left == timberman.BAR - 3
    while not game.done:
        game.tick()
    assert (game.lost, game.time_left) == (True, 0)


# Snake


@given(SEEDS, SEEDS)
@settings(max_examples=30, deadline=None)
def test_the_snake_never_overlaps_and_grows_by_one_per_food(seed: int, dice: int) -> None:
    for state in play(Snake(seed), dice):
        body = [tuple(cell) for cell in state["body"]]
        assert len(set(body)) == len(body) == LENGTH + state["score"]
        assert all(on_board(cell) for cell in body)
        assert state["food"] is None or tuple(state["food"]) not in body
        steps = itertools.pairwise(body)
        assert all(abs(x - u) + abs(y - v) == 1 for (x, y), (u, v) in steps)


def test_the_snake_does_not_turn_back_and_may_follow_its_tail() -> None:
    game = Snake(0)
    game.body, game.heading, game.food = ((2, 2), (2, 3), (3, 3), (3, 2)), "up", (0, 0)
    assert not game.move("down")
    assert game.move("right")
    game.tick()
    assert (game.body[0], game.lost) == ((3, 2), False)


def test_the_wall_ends_the_game_and_so_does_hunger() -> None:
    game = Snake(0)
    for _ in range(10):
        game.tick()
    assert game.lost
    game, turns = Snake(0), 0
    game.body, game.food = ((1, 0), (0, 0), (0, 1)), (5, 7)
    while not game.done:  # in circles in the corner
        head = game.body[0]
        game.move({(1, 0): "down", (1, 1): "left", (0, 1): "up", (0, 0): "right"}[head])
        game.tick()
        turns += 1
    assert game.lost
    assert turns == 2 * 48 + 1


# Flip


@given(SEEDS, SEEDS, st.sampled_from([3, 6, 8]))
@settings(max_examples=30, deadline=None)
def test_at_most_two_cards_lie_open_beside_the_pairs(seed: int, dice: int, pairs: int) -> None:
    game = Flip(seed, pairs=pairs)
    assert sorted(game.cards) == sorted([*range(pairs)] * 2)
    for state in play(game, dice, turns=200):
        found = [game.cards[card] for card in state["found"]]
        assert sorted(found) == sorted([*set(found)] * 2)
        assert len(state["open"]) <= 2
        shown = {card for card, face in enumerate(state["faces"]) if face is not None}
        assert shown == {*state["found"], *state["open"]}
        known = {card for card, face in enumerate(state["known"]) if face is not None}
        assert shown <= known


def test_a_pair_pays_and_a_miss_costs_and_is_turned_back_by_the_next_touch() -> None:
    game = Flip(0, pairs=3)
    game.cards = (0, 1, 0, 1, 2, 2)
    assert game.flip(0)
    assert not game.flip(0)
    assert game.flip(1)
    assert (game.score, game.open) == (MISS, (0, 1))
    assert not game.flip(1)
    assert game.flip(2)
    assert game.open == (2,)
    assert game.flip(0)
    assert (game.score, game.found, game.open) == (MISS + PAIR, frozenset({0, 2}), ())
    assert not game.flip(2)


# Flappy Bird


@given(SEEDS)
@settings(max_examples=10)
def test_gates_lie_on_the_field_and_a_longer_flight_begins_with_the_shorter_one(seed: int) -> None:
    gaps = flappy_bird.draw_gaps(seed, 30)
    assert flappy_bird.draw_gaps(seed, 10) == gaps[:10]
    assert all(0 <= gap <= flappy_bird.ROWS - flappy_bird.GAP for gap in gaps)
    assert all(abs(a - b) <= 2 for a, b in itertools.pairwise(gaps))


@given(st.lists(st.booleans(), min_size=1, max_size=20))
def test_a_turn_always_lifts_or_drops_the_bird_by_one_cell(flaps: list[bool]) -> None:
    bird = flappy_bird.Bird(0)
    for flap in flaps:
        before = bird.y
        for tick in range(4):
            bird = bird.after(flap and tick == 0)
        assert bird.y - before == (-8 if flap else 8)


def test_ground_ceiling_and_posts_end_the_flight() -> None:
    for name, ticks in (("wait", 4), ("flap", 1)):
        game = FlappyBird(0)
        while not game.done:
            game.move(name)
            for _ in range(ticks):
                game.tick()
        assert (game.lost, game.score) == (True, 0)
    bird = flappy_bird.Bird(20)
    assert flappy_bird.hits(bird, ((8, 3),))
    assert not flappy_bird.hits(bird, ((8, 1),))
    assert not flappy_bird.hits(bird, ((24, 3),))


# Space fighter


@given(SEEDS, SEEDS)
@settings(max_examples=10, deadline=None)
def test_score_and_lives_count_enemies_shot_and_hits_taken(seed: int, dice: int) -> None:
    states = play(SpaceFighter(seed), dice, turns=100)
    for before, after in itertools.pairwise(states):
        lost = before["lives"] - after["lives"]
        assert lost in (0, 1)
        assert (after["score"] - before["score"] + 10 * lost) % 10 == 0
        assert after["score"] - before["score"] >= -10 * lost
        assert abs(after["ship"] - before["ship"]) <= 1
        rows = [row for _, _, row in after["things"]]
        assert len(rows) == len(set(rows)), "one thing in a row: there is always a way past it"
        assert ["ship", after["ship"], space_fighter.ROWS - 1] not in after["things"]
    assert states[-1]["lost"] == (states[-1]["lives"] == 0)


def test_a_shot_destroys_an_enemy_and_a_rock_swallows_it() -> None:
    for kind, score, left in (("enemy", 10, 0), ("rock", 0, 1)):
        game = SpaceFighter(0)
        game.things, game.shots = ((kind, 0, 3),), ((0, 5),)
        game.tick()
        assert game.score == score
        assert len([thing for thing in game.things if thing[1] == 0 and thing[2] > 0]) == left
        assert (0, 3) not in game.shots


def test_the_ship_flies_one_column_per_tick_to_its_target() -> None:
    game = SpaceFighter(0)
    assert game.send(4)
    assert not game.send(4)
    assert not game.send(5)
    ships = []
    for _ in range(3):
        game.tick()
        ships.append(game.ship)
    assert ships == [3, 4, 4]
