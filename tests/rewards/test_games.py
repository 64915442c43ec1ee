"""Rewards of games: each needs certain keys of `info`, and some games share a reward."""

from typing import Any

import pytest

from agentrl.config import RewardConfig
from agentrl.errors import RewardError
from agentrl.rewards import form, minigames, number_game, sokoban, tree_game
from agentrl.rollout.rewards.scoring import RewardFunctions, env_reward
from agentrl.types import ExecutedAction
from tests.replay.episodes import episode, turn

NEEDS = {
    "number_game:format": "changed",
    "tree_game:format": "changed",
    "tree_game:regret": "regret",
    "sokoban:useless": "changed",
    "sokoban:success": "success",
    "minigames:format": "changed",
    "minigames:closer": "food",
    "form:effect": "changed",
    "matching:exact": "ground_truth",
}


@pytest.mark.parametrize("reward", NEEDS)
def test_a_reward_of_another_game_names_the_missing_info(reward: str) -> None:
    first = {"score": 0, "success": False, "regret": 1.0}  # only the last info has the outcome
    played = episode("e1", (turn(info={"score": 0}),), env_id="Pong-v0", reset_info=first)
    scorer = RewardFunctions([RewardConfig(function=f"agentrl.rewards.{reward}")])
    with pytest.raises(RewardError) as raised:
        scorer.score(played)
    said = str(raised.value)
    assert f"reward {reward.partition(':')[2]}: " in said
    assert f"the info of Pong-v0 has no '{NEEDS[reward]}'" in said


def test_invalid_replies_need_no_info_of_the_game() -> None:
    played = episode("e", (turn(parse_error="none", action=None, info={}),))
    assert number_game.format(played) == minigames.format(played) == sokoban.format(played) == [-1]
    assert tree_game.format(played) == [-0.5]
    assert sokoban.useless(played) == [0]


def test_outcome_rewards_use_the_last_turn() -> None:
    def played(**last: Any) -> Any:
        first = turn(info={"success": False, "regret": 0.9})
        return episode("e", (first, turn(info=last)), reset_info={"success": False, "regret": 1.0})

    assert sokoban.success(played(success=True)) == 1.0
    assert sokoban.success(played(success=False)) == 0.0
    assert tree_game.regret(played(regret=0.25)) == [0.0, -0.25]


def test_similar_games_share_one_reward_function() -> None:
    assert env_reward is number_game.outcome is tree_game.outcome is minigames.outcome
    assert sokoban.format is form.action
    assert number_game.format is minigames.format is form.effect
    played = episode("e", (turn(info={"changed": False}), turn(info={"changed": True})))
    assert form.effect(played) == [-1.0, 0.0]
    assert tree_game.format(played) == form.effect(played, cost=0.5) == [-0.5, 0.0]


def test_each_action_of_a_turn_without_effect_costs() -> None:
    chunk = tuple(
        ExecutedAction(action=1, reward=0.0, info={"changed": changed}, shown="")
        for changed in (False, True, False)
    )
    invalid = turn(parse_error="action 4 of 4: no action", chunk=chunk)
    assert form.effect(episode("e", (turn(chunk=chunk), invalid)), cost=0.5) == [-1.0, -1.5]


def test_on_a_running_clock_actions_without_effect_cost_nothing() -> None:
    early = turn(info={"changed": False, "clock": "running"})
    assert form.effect(episode("e", (early,))) == [0.0]
