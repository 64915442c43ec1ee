from typing import Any

from agentrl.rewards import minigames
from tests.replay.episodes import episode, turn


def snake(head: tuple[int, int], food: tuple[int, int] | None, score: int) -> dict[str, Any]:
    return {"body": [head], "food": food, "score": score, "changed": True}


def test_the_reward_is_the_change_of_worth() -> None:
    turns = (turn(env_reward=0.5), turn(env_reward=-1.0))
    assert minigames.outcome(episode("e", turns)) == [0.5, -1.0]


def test_invalid_replies_and_actions_without_effect_cost() -> None:
    turns = (turn(info={"changed": True}), turn(info={"changed": False}), turn(parse_error="none"))
    assert minigames.format(episode("e", turns)) == [0.0, -1.0, -1.0]
    early = turn(info={"changed": False, "clock": "running"})
    assert minigames.format(episode("e", (early,))) == [0.0]


def test_a_step_towards_the_food_earns_as_much_as_a_step_away_costs() -> None:
    infos = [snake((1, 3), (3, 3), 0), snake((2, 3), (3, 3), 0), snake((2, 3), (3, 3), 0)]
    infos += [snake((3, 3), (0, 0), 1), snake((3, 4), (0, 0), 1), snake((3, 3), None, 2)]
    turns = tuple(turn(info=info) for info in infos[1:])
    played = episode("e", turns, reset_info=infos[0])
    assert minigames.closer(played) == [1.0, 0.0, 1.0, -1.0, 1.0]
