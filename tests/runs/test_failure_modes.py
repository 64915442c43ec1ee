import json
from dataclasses import replace

import numpy as np
import pytest

from agentrl.actions.screen_actions import Done, Tap
from agentrl.replay.episode_json import from_json, to_json
from agentrl.runs.failure_modes import failure_modes, longest_loop
from agentrl.types import ExecutedAction
from tests.replay.episodes import episode, screen, turn

SAME, OTHER = screen(3), screen(500)


def seen(action, image=SAME, **changes):
    return turn(action=action, images=(image,), **changes)


def modes(*turns, **info):
    last = replace(turns[-1], info={**turns[-1].info, **info})
    return failure_modes(episode("e", turns=(*turns[:-1], last)))


@pytest.mark.parametrize(
    ("turns", "loop"),
    [
        ([], 0),
        ([seen(1)] * 3, 3),
        ([seen(1), seen(2), seen(1)], 1),
        ([seen(1), seen(1, OTHER), seen(1)], 1),
        ([seen(1), seen(1), seen(2), seen(2), seen(2)], 3),
        ([seen(np.array([0.5, 0.25]))] * 2, 2),
        ([seen([np.array([0.5]), Tap(0.1, 0.2)])] * 2, 2),  # several actions in a reply
        # Replies without an action are counted as unreadable.
        ([seen(None, parse_error="no action")] * 3, 0),
        ([seen(1), seen(None, parse_error="no action"), seen(1)], 1),
        # Only the newest screen counts, not the conversation before it.
        ([turn(action=1, images=(SAME,)), turn(action=1, images=(SAME, SAME))], 2),
        ([turn(action=1, shown="A wall."), turn(action=1, shown="A wall.")], 2),
        ([turn(action=1, shown="A wall."), turn(action=1, shown="A door.")], 1),
        # Nothing is known about screens that were not kept, or are private.
        ([turn(action=1)] * 3, 1),
        ([turn(action=1, shown="")] * 3, 1),
        ([turn(action=1, frames=("a",)), turn(action=1, frames=("a",))], 2),
        ([turn(action=1, frames=("a",)), turn(action=1, frames=("b",))], 1),
    ],
)
def test_a_loop_is_the_same_action_on_the_same_screen(turns, loop):
    assert longest_loop(turns) == loop


def test_an_episode_is_stuck_if_it_repeats_itself_three_times_without_success():
    assert modes(*[seen(1)] * 2)["stuck"] == 0
    assert modes(*[seen(1)] * 3)["stuck"] == 1
    assert modes(*[seen(1)] * 3, metrics={"success": 0})["stuck"] == 1
    assert modes(*[seen(1)] * 3, metrics={"success": 1})["stuck"] == 0


def test_the_share_of_replies_that_were_cut_off():
    cut = replace(seen(1), reply_truncated=True)
    assert modes(cut, seen(2), seen(3), cut)["truncated_replies"] == 0.5
    assert failure_modes(episode("e"))["truncated_replies"] == 0


@pytest.mark.parametrize(
    ("action", "info", "expected"),
    [
        (Done("success"), {"metrics": {"success": 0.0}}, 1.0),
        (Done(), {"metrics": {"success": 0.0}}, 1.0),
        (Done("success"), {"metrics": {"success": 1.0}}, 0.0),
        (Done("success"), {"success": False}, 1.0),
        (Done("infeasible"), {"success": False}, None),  # says that it is not done
        (Done("success"), {}, None),  # the truth is unknown
        (Tap(0.1, 0.2), {"success": False}, None),
    ],
)
def test_a_false_completion_is_a_claim_without_success(action, info, expected):
    assert modes(seen(1), seen(action), **info).get("false_completion") == expected
    played = episode("e", turns=(replace(seen(action), info=info),))
    recorded = from_json(json.loads(json.dumps(to_json(played))))
    assert failure_modes(recorded).get("false_completion") == expected


def test_a_claim_counts_among_several_actions_of_a_reply():
    two = [ExecutedAction(action=one, reward=0, info={}, shown="") for one in (Tap(0, 0), Done())]
    last = replace(seen([one.action for one in two]), chunk=tuple(two))
    assert modes(last, success=False)["false_completion"] == 1


@pytest.mark.parametrize(
    ("reported", "expected"), [(3, 3.0), (["com.mail"], 1.0), ([], 0.0), (None, None), ("x", None)]
)
def test_side_effects_are_counted_or_listed_by_the_environment(reported, expected):
    assert modes(seen(1), side_effects=reported).get("side_effects") == expected
