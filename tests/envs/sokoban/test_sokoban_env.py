import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

import agentrl
from agentrl.config import EnvConfig
from agentrl.envs.sokoban.board import CHARACTERS, MOVES
from agentrl.envs.sokoban.board_parser import parse
from agentrl.envs.sokoban.drawing import draw
from agentrl.envs.sokoban.env import Sokoban
from agentrl.envs.sokoban.players import SokobanExpert, SokobanMediocre, SokobanRandom, best
from agentrl.envs.sokoban.solver import is_deadlocked
from agentrl.envs.sokoban.translator import SokobanTranslator
from agentrl.errors import ActionError, ConfigError
from agentrl.rewards import sokoban as rewards
from agentrl.rollout.environments.load_translator_and_players import load_player, open_translator
from agentrl.rollout.environments.resolved_env import resolve_env
from agentrl.types import Episode, ExecutedAction, Outcome, Turn
from tests.envs.sokoban.search import move

UP, DOWN, LEFT, RIGHT = range(4)
TWO_BOXES = "; 0\n#######\n#     #\n# @$. #\n#  $. #\n#     #\n#######\n"
CORNER = "; 0\n#####\n#   #\n# $.#\n#@  #\n#####\n"


@pytest.fixture
def level(tmp_path: Path) -> Callable[..., gymnasium.Env[Any, Any]]:
    """Make environments that play the levels in a string."""

    def make(text: str, **kwargs: Any) -> gymnasium.Env[Any, Any]:
        (tmp_path / "levels.txt").write_text(text)
        return agentrl.make("Sokoban-v0", levels=str(tmp_path / "levels.txt"), **kwargs)

    return make


def play(env: gymnasium.Env[Any, Any], moves: list[int]) -> list[tuple[float, bool, bool]]:
    return [env.step(move)[1:4] for move in moves]


@pytest.mark.parametrize("observation", ["text", "image", "both"])
@pytest.mark.parametrize("mode", ["rgb_array", "ansi"])
def test_gymnasiums_own_check_passes(observation: str, mode: str) -> None:
    env = agentrl.make("Sokoban-v0", size=5, observation=observation, cell=8, render_mode=mode)
    check_env(env.unwrapped)
    env.reset(seed=3)
    shown = env.render()
    assert isinstance(shown, str) == (mode == "ansi")
    assert isinstance(shown, str) or shown.shape == (40, 40, 3)


def test_rewards_are_those_of_the_field(level: Callable[..., gymnasium.Env[Any, Any]]) -> None:
    env = level(TWO_BOXES)
    env.reset(seed=0)
    first, off, *_ = play(env, [RIGHT, RIGHT])
    assert first == (pytest.approx(-0.1 + 1.0), False, False)
    assert off == (pytest.approx(-0.1 - 1.0), False, False)
    env.reset(seed=0)
    walk = play(env, [UP, DOWN, LEFT, LEFT])  # the last move is against the wall
    assert walk == [(-0.1, False, False)] * 4


@given(st.integers(0, 2**32), st.lists(st.integers(0, 3), min_size=1, max_size=60))
@settings(max_examples=40, deadline=None)
def test_each_reward_follows_from_the_two_boards_around_it(seed: int, walk: list[int]) -> None:
    env = Sokoban(size=6, boxes=2, max_steps=50)
    before, _ = env.reset(seed=seed)
    for steps, action in enumerate(walk, 1):
        after, reward, over, truncated, info = env.step(action)
        assert after == move(before, MOVES[action])
        gained = after.count("*") - before.count("*")
        solved = "$" not in after
        assert reward == pytest.approx(-0.1 + (gained > 0) - (gained < 0) + 10 * solved)
        assert (over, truncated) == (solved, not solved and steps >= 50)
        assert info["deadlock"] is is_deadlocked(parse(after))
        if over or truncated:
            break
        before = after


def test_the_last_box_ends_the_game_and_brings_ten(
    level: Callable[..., gymnasium.Env[Any, Any]],
) -> None:
    env = level(TWO_BOXES, max_steps=6)
    _, info = env.reset(seed=0)
    assert (info["optimal"], info["success"], info["on_target"]) == (4, False, 0)
    play(env, [RIGHT, LEFT, DOWN])
    _, reward, terminated, truncated, info = env.step(RIGHT)
    assert (reward, terminated, truncated) == (pytest.approx(10.9), True, False)
    assert (info["success"], info["moves"], info["pushes"]) == (True, 4, 2)
    assert info["metrics"] == {
        "success": 1.0, "on_target": 1.0, "deadlock": 0.0, "efficiency": 1.0
    }  # fmt: skip


def test_a_blocked_move_takes_its_turn_and_changes_nothing(
    level: Callable[..., gymnasium.Env[Any, Any]],
) -> None:
    env = level("; 0\n#######\n#@$$..#\n#     #\n#######\n", max_steps=2)
    before, _ = env.reset(seed=0)
    for truncated in (False, True):
        after, reward, terminated, cut, info = env.step(RIGHT)  # against two boxes in a row
        assert (after, reward, terminated, cut) == (before, -0.1, False, truncated)
        assert not info["changed"]
    assert info["moves"] == 2


def test_a_solution_in_the_last_step_is_no_truncation(
    level: Callable[..., gymnasium.Env[Any, Any]],
) -> None:
    env = level("#####\n#@$.#\n#####\n", max_steps=1)
    env.reset(seed=0)
    assert env.step(RIGHT)[2:4] == (True, False)


def test_a_lost_board_is_reported_or_ends_the_episode(
    level: Callable[..., gymnasium.Env[Any, Any]],
) -> None:
    lost = [RIGHT, UP]  # the box goes into the upper row, which has no target
    expected = {"off": (None, False), "report": (True, False), "end": (True, True)}
    for mode, (reported, ends) in expected.items():
        env = level(CORNER, deadlock=mode, max_steps=12)
        env.reset(seed=0)
        play(env, lost[:1])
        _, reward, terminated, truncated, info = env.step(lost[1])
        assert (info["deadlock"], terminated, truncated) == (reported, ends, False)
        # Ending early is worth no more than doing nothing until the end.
        assert reward == pytest.approx(-0.1 * (11 if ends else 1))


def test_the_same_seed_gives_the_same_game_and_another_seed_another() -> None:
    env = agentrl.make("Sokoban-v0", size=6, observation="both", cell=6)
    again = pickle.loads(pickle.dumps(env.unwrapped))
    for seed in (0, 1):
        seen, info = env.reset(seed=seed)
        other, other_info = again.reset(seed=seed)
        assert info == other_info
        assert seen["text"] == other["text"]
        np.testing.assert_array_equal(seen["image"], other["image"])
    assert len({env.reset(seed=seed)[0]["text"] for seed in range(50)}) > 45


def test_the_state_key_names_seed_and_board() -> None:
    env = agentrl.make("Sokoban-v0", size=5)
    keys = {env.reset(seed=seed)[1]["state_key"] for seed in (1, 2, 1)}
    assert len(keys) == 2
    _, info = env.reset(seed=1)
    ways = [move for move in range(4) if env.unwrapped._board.move(move) != env.unwrapped._board]
    *_, moved = env.step(ways[0])
    assert moved["state_key"] != info["state_key"]
    json.dumps(moved)


def test_levels_of_a_file_come_in_turn_and_in_one_size(
    level: Callable[..., gymnasium.Env[Any, Any]],
) -> None:
    env = level(f"{CORNER}\n{TWO_BOXES}", observation="both", cell=4)
    assert env.observation_space["image"].shape == (24, 28, 3)
    for seed, number in ((0, 0), (1, 1), (2, 0), (100_000_001, 1)):
        seen, info = env.reset(seed=seed)
        assert env.observation_space.contains(seen)
        assert info["level"] == number
    assert info["optimal"] == 4


def test_a_level_that_takes_too_long_to_solve_has_no_optimal_length(
    level: Callable[..., gymnasium.Env[Any, Any]],
) -> None:
    _, info = level(TWO_BOXES, solver_states=0).reset(seed=0)
    assert info["optimal"] is None
    assert "efficiency" not in info["metrics"]


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        ({"observation": "sound"}, "observation is 'sound'"),
        ({"deadlock": "yes"}, "deadlock is 'yes'"),
        ({"size": [5, 5, 5]}, r"size is \[5, 5, 5\]"),
        ({"size": "5"}, "size is 5"),
        ({"cell": 1}, "cell is 1"),
        ({"max_steps": 0}, "max_steps is 0"),
        ({"split": "test"}, "split is 'test'"),
        ({"size": 5, "min_moves": 40}, "use fewer moves, fewer boxes or a larger room"),
        ({"size": [4, 4]}, "have no room"),
        ({"levels": "/nowhere/levels.txt"}, "cannot be read"),
        ({"render_mode": "human"}, "render_mode is 'human'"),
    ],
)
def test_invalid_settings_are_rejected(kwargs: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Sokoban(**kwargs)


@pytest.mark.parametrize("given", [{"size": 7}, {"boxes": 1}, {"min_moves": 1}, {"max_moves": 9}])
def test_settings_of_generated_levels_are_rejected_together_with_a_file(
    level: Callable[..., gymnasium.Env[Any, Any]], given: dict[str, int]
) -> None:
    (name,) = given
    said = f"{name}: can only be set for generated levels, but levels=.*{name}=null"
    with pytest.raises(ConfigError, match=said):
        level(TWO_BOXES, **given)
    level(TWO_BOXES, **dict.fromkeys(given))  # null is accepted


def test_several_rejected_settings_are_named_together(
    level: Callable[..., gymnasium.Env[Any, Any]],
) -> None:
    with pytest.raises(ConfigError, match="size, boxes: can only be set for generated levels"):
        level(TWO_BOXES, boxes=2, size=5)


def test_unavailable_levels_are_rejected_before_any_episode(tmp_path: Path) -> None:
    (tmp_path / "levels.txt").write_text(TWO_BOXES)
    for wrong in ({"size": 99}, {"levels": str(tmp_path / "levels.txt"), "min_moves": 1}):
        with pytest.raises(
            ConfigError, match=r"env.kwargs: (the height is 99|min_moves: can only be set for gen)"
        ):
            resolve_env(EnvConfig(id="Sokoban-v0", kwargs=wrong)).check_arguments()


def test_generated_levels_have_seven_rows_and_one_box_by_default() -> None:
    plain, given = (Sokoban(**kwargs) for kwargs in ({}, {"size": 7, "boxes": 1, "min_moves": 1}))
    assert [plain.reset(seed=s) for s in range(5)] == [given.reset(seed=s) for s in range(5)]
    assert plain.reset(seed=0)[0].count("\n") == 6
    assert Sokoban(min_moves=8, max_moves=9).reset(seed=0)[1]["optimal"] in (8, 9)


def test_a_split_without_levels_is_a_config_error(
    level: Callable[..., gymnasium.Env[Any, Any]],
) -> None:
    splits = []
    for split in ("train", "eval"):
        try:
            level(CORNER, split=split)
        except ConfigError as error:
            splits.append(str(error))
    (said,) = splits
    assert "no level in these files belongs to split" in said


# --- picture --------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", [4, 5, 7, 16, 28, 33])
def test_each_cell_is_a_tile_of_its_own_and_kinds_differ(cell: int) -> None:
    board = parse("######\n#@ $.#\n#+* *#\n# $  #\n######".replace("+", " ").replace("@", "+"))
    picture = draw(board, cell)
    assert picture.shape == (5 * cell, 6 * cell, 3)
    tiles: dict[str, bytes] = {}
    for row, line in enumerate(board.text().split("\n")):
        for column, character in enumerate(line):
            tile = picture[row * cell : (row + 1) * cell, column * cell : (column + 1) * cell]
            assert tiles.setdefault(character, tile.tobytes()) == tile.tobytes()
    assert len(set(tiles.values())) == len(tiles) == len(set(CHARACTERS) - {"@"})


# --- text -----------------------------------------------------------------------------------


@pytest.mark.parametrize("style", ["tag", "tool"])
def test_the_translator_parses_the_experts_replies(style: str) -> None:
    translator, rng = SokobanTranslator(style=style), np.random.default_rng(0)
    env = agentrl.make("Sokoban-v0", boxes=2)
    for seed in range(5):
        _, info = env.reset(seed=seed)
        over = False
        while not over:
            reply = SokobanExpert(style=style).reply(info, rng)
            *_, over, _, info = env.step(translator.to_action(reply))
        assert info["success"]
        assert info["moves"] == info["optimal"]
        assert info["metrics"]["efficiency"] == 1.0


@pytest.mark.parametrize(
    "reply", ["", "up", "<action>jump</action>", "<action>up</action><action>up</action>"]
)
def test_a_reply_without_a_move_raises_action_error(reply: str) -> None:
    translator = SokobanTranslator()
    with pytest.raises(ActionError):
        translator.to_action(reply)
    assert translator.no_action() is None


def test_each_name_is_its_own_move() -> None:
    translator = SokobanTranslator()
    assert [translator.to_action(f"<action>{name}</action>") for name in MOVES] == [0, 1, 2, 3]


def test_the_model_sees_the_requested_observation_and_its_legend() -> None:
    shown = {}
    for observation in ("text", "image", "both"):
        config = EnvConfig(id="Sokoban-v0", kwargs={"observation": observation})
        translator = open_translator(resolve_env(config))
        env = agentrl.make("Sokoban-v0", observation=observation)
        message = translator.to_message(translator.to_observation(*env.reset(seed=0)))
        shown[observation] = (len(message.images), "#" in message.text, "<image>" in message.text)
        words = translator.instructions()
        assert ("# is a wall" in words) == (observation != "image")
        assert ("blue disc" in words) == (observation != "text")
        assert "<action>up</action>" in words
    assert shown == {"text": (0, True, False), "image": (1, False, True), "both": (1, True, True)}
    assert not SokobanTranslator(instruct=False).instructions()


def test_spaced_text_has_a_blank_between_the_signs() -> None:
    translator = SokobanTranslator(spaced=True)
    assert translator.to_observation("####\n#@ #", {}).text == "# # # #\n# @ _ #"
    assert "_ floor" in translator.instructions()


# --- players --------------------------------------------------------------------------------


def success(player: SokobanExpert, games: int = 100, **kwargs: Any) -> float:
    env = agentrl.make("Sokoban-v0", size=5, min_moves=3, max_steps=30, **kwargs)
    rng, solved = np.random.default_rng(0), 0
    for seed in range(games):
        _, info = env.reset(seed=seed)
        over = truncated = False
        while not (over or truncated):
            action = SokobanTranslator().to_action(player.reply(info, rng))
            *_, over, truncated, info = env.step(action)
        solved += info["success"]
    return solved / games


def test_the_expert_solves_all_and_the_others_do_not() -> None:
    assert success(SokobanExpert()) == 1.0
    assert 0.0 < success(SokobanRandom(), deadlock="end") < 0.3
    assert 0.4 < success(SokobanMediocre(), deadlock="end") < 0.8
    assert success(SokobanMediocre(skill=0.0), deadlock="end") < 0.3


LOST, DONE = "#####\n#$ .#\n# @ #\n#####", "#####\n# @*#\n#####"


@pytest.mark.parametrize("board", [LOST, DONE])
def test_the_expert_still_moves_on_a_lost_board(board: str) -> None:
    reply = SokobanExpert().reply({"board": board}, np.random.default_rng(0))
    assert SokobanTranslator().to_action(reply) in range(4)


AROUND = "######\n#.   #\n#@$  #\n#    #\n######"
"""The box must go up and left: the player walks below it first."""


def test_a_thought_says_where_player_box_and_target_are_and_which_way_to_push() -> None:
    rng, info = np.random.default_rng(0), {"board": AROUND}
    reply = SokobanExpert().reply(info, rng)
    assert reply == "<think>2 1 2 2 1 1 up</think><action>down</action>"
    hasty = SokobanMediocre(skill=0.0).reply(info, rng)
    assert hasty == "<think>2 1 2 2 1 1 right</think><action>right</action>"
    assert SokobanExpert(think=False).reply(info, rng) == "<action>down</action>"


def test_with_several_moves_per_reply_the_expert_goes_to_the_box_and_pushes_it() -> None:
    config = EnvConfig(id="Sokoban-v0", max_actions_per_reply=3)
    rng, info = np.random.default_rng(0), {"board": AROUND}
    reply = load_player(resolve_env(config), "expert").reply(info, rng)
    thought = "<think>2 1 2 2 1 1 up</think>"
    moves = "<action>down</action><action>right</action><action>up</action>"
    assert reply == thought + moves
    hasty = SokobanMediocre(skill=0.0, max_actions_per_reply=3).reply(info, rng)
    assert hasty.count("<action>") == 1
    assert SokobanExpert(max_actions_per_reply=2).reply(info, rng).count("<action>") == 2
    assert SokobanRandom(max_actions_per_reply=3).reply(info, rng).count("<action>") == 3


def test_reasoning_names_the_box_to_push_next_and_its_target() -> None:
    board = "########\n#.  $@.#\n#   $  #\n#      #\n########"
    plan = best(board)
    assert plan is not None
    text = board
    while (after := move(text, MOVES[plan.moves[0]])).replace("@", " ") == text.replace("@", " "):
        text, plan = after, best(after)
        assert plan is not None
    row, column = divmod(plan.box, 8)
    assert text.split("\n")[row][column] == "$"
    assert board.split("\n")[plan.target // 8][plan.target % 8] == "."


def test_players_take_the_style_of_the_translator() -> None:
    config = EnvConfig(id="Sokoban-v0", translator_kwargs={"style": "tool"})
    player = load_player(resolve_env(config), "random")
    assert player.reply({}, np.random.default_rng(0)).startswith('<tool_call>{"name": "')


# --- rewards --------------------------------------------------------------------------------


def turn(action: int | None, changed: bool, success: bool = False) -> Turn:
    return Turn(
        prompt_ids=(), reply_ids=(), reply_logprobs=(), reply_versions=(), reply="", images=(),
        shown="", frames=(), action=action, parse_error=None if action is not None else "none",
        env_reward=-0.1, state_key=None, info={"changed": changed, "success": success},
    )  # fmt: skip


def test_rewards_beside_the_games_own() -> None:
    turns = (turn(0, True), turn(None, True), turn(1, False), turn(2, True, success=True))
    episode = Episode(
        id="e", env_id="Sokoban-v0", seed=0, group="g", member=0, reset_info={}, turns=turns,
        instructions="", final_shown="", final_frames=(),
        outcome=Outcome.TERMINATED, error=None, device=None,
    )  # fmt: skip
    assert rewards.format(episode) == [0.0, -1.0, 0.0, 0.0]
    assert rewards.useless(episode) == [0.0, 0.0, -1.0, 0.0]
    assert rewards.success(episode) == 1.0
    chunk = tuple(
        ExecutedAction(action=1, reward=-0.1, info={"changed": changed}, shown="")
        for changed in (False, True, False)
    )
    episode = replace(episode, turns=(replace(turns[0], chunk=chunk),))
    assert rewards.useless(episode) == [-2.0]
