"""State estimates are scored by the true state, and a turn without one is not judged."""

from dataclasses import replace

import pytest

from agentrl.actions.state_estimates import PREDICTABLE, VISIBLE, share_of_right_fields
from agentrl.check.support.sample_episode import sample_episode
from agentrl.rewards import state_estimation

TRUE = {"player": [1, 2], "boxes": [[2, 2]]}


@pytest.mark.parametrize(
    ("reply", "share"),
    [
        ('<observation>{"player": [1, 2], "boxes": [[2, 2]]}</observation>', 1.0),
        ('<think>x</think><observation>{"boxes":[[2,2]],"player":[1,2]}</observation> y', 1.0),
        ('<observation>{"player": [1, 2], "boxes": [[2, 3]]}</observation>', 0.5),
        ('<observation>{"player": [1, 2]}</observation>', 0.5),
        ('<observation>{"player": [1, 2], "mood": "good"}</observation>', 0.5),
        ('<observation>{"player": [true, 2]}</observation>', 0.0),  # in Python, True == 1
        ('<observation>{"player": "[1, 2]"}</observation>', 0.0),
        ('<observation>{"player": [1.0, 2]}</observation>', 0.0),
        ("<observation>[[1, 2]]</observation>", 0.0),
        ("<observation>dict(player=[1, 2])</observation>", 0.0),
        ('<observation>{"player": [1, 2]}', 0.0),
        ('<observation>{"player": [1, 2]}</observation><observation>{}</observation>', 0.0),
        ('<prediction>{"player": [1, 2]}</prediction>', 0.0),
        ("<observation>" + "[" * 5000 + "</observation>", 0.0),
        ('<observation>{"player": [1, 2]' + " " * 1000 + "}</observation>", 0.0),
        ('<observation>{"player": ' + "9" * 5000 + "}</observation>", 0.0),
        ("", 0.0),
    ],
)
def test_the_share_of_right_fields_is_read_strictly(reply, share):
    assert share_of_right_fields(reply, "observation", TRUE) == share


def estimate(tag, player):
    return f'<{tag}>{{"player":{player}}}</{tag}>'


def info(player):
    if player is None:
        return {}
    return {VISIBLE: {"player": player}, PREDICTABLE: {"player": player}}


def episode(start, *turns):
    """Make an episode of (reply, true square after it, action) turns."""
    played = sample_episode()
    (first, *_) = played.turns
    return replace(
        played,
        reset_info=info(start),
        turns=tuple(
            replace(first, reply=reply, info=info(after), action=action)
            for reply, after, action in turns
        ),
    )


def test_the_observation_is_compared_with_the_state_before_the_reply():
    played = episode(
        [0, 0],
        (estimate("observation", [0, 0]), [0, 1], 2),
        (estimate("observation", [0, 0]), [0, 2], 2),  # it is on [0, 1]
    )
    assert state_estimation.observation(played) == [0.0, -1.0]


def test_the_prediction_is_compared_with_the_state_after_the_reply():
    played = episode(
        [0, 0],
        (estimate("prediction", [0, 1]), [0, 1], 2),
        (estimate("prediction", [0, 1]), [0, 2], 2),
    )
    assert state_estimation.prediction(played) == [0.0, -1.0]


def test_turns_without_a_true_state_leave_the_mean_as_it_is():
    played = episode(
        None,
        ("", [0, 1], 2),  # the state before it is unknown
        (estimate("observation", [0, 1]), [0, 1], 2),
        ("", [0, 2], 2),
    )
    # The judged turns have 0 and -1; the first gets their mean.
    assert state_estimation.observation(played) == [-0.5, 0.0, -1.0]


def test_a_prediction_without_an_executed_action_is_not_judged():
    played = episode(
        [0, 0],
        (estimate("prediction", [5, 5]), [0, 0], None),
        (estimate("prediction", [0, 1]), [0, 1], 2),
    )
    assert state_estimation.prediction(played) == [0.0, 0.0]


def test_an_episode_without_any_true_state_has_no_such_reward():
    played = episode(None, (estimate("observation", [0, 0]), None, 2))
    assert state_estimation.observation(played) is None
    assert state_estimation.prediction(played) is None
