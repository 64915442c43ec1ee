"""State estimates in replies: what the policy sees, and what it expects to see next.

With `env.state_estimation`, a reply contains both before its action, as JSON objects::

    <observation>{"player":[1,2]}</observation><prediction>{"player":[1,3]}</prediction>
    <action>right</action>

The environment's `StateSchema` defines the keys and the true values, which
`agentrl.rewards.state_estimation` compares with the reply.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from agentrl.actions.reply_values import json_object
from agentrl.errors import ActionError
from agentrl.text.reply_tags import tag_content

OBSERVATION, PREDICTION = "observation", "prediction"
"""Tags around the two estimates."""
VISIBLE, PREDICTABLE = "visible_state", "predictable_state"
"""Keys of the info for the true values of the fields that are visible, and of those among them that
the state before and the action determine."""
MAX_ESTIMATE = 1000
"""Maximum length of an estimate in characters; a longer one is wrong."""


class StateSchema(Protocol):
    """An environment's fields for state estimates, made without arguments."""

    fields: Mapping[str, str]
    """Describes each field's value for the model, such as `[row, column], counted from 0`."""
    predicted: Collection[str]
    """Fields whose next value is determined by the state and the action."""

    def visible(self, info: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the true value of each field that is on the screen; None if it is unknown."""

    def expected(self, info: Mapping[str, Any], actions: Sequence[Any]) -> Mapping[str, Any] | None:
        """Return the predicted fields after actions; None if unknown. Used in demonstrations.

        Args:
            info: the state before the actions.
            actions: a reply's actions, as parsed by the translator.
        """


def describe_estimates(schema: StateSchema) -> str:
    """Explain to the model how to write its estimates."""
    fields = "; ".join(f'"{name}": {text}' for name, text in schema.fields.items())
    said = (
        f"Before your action, write what you see as a JSON object in <{OBSERVATION}>...</"
        f"{OBSERVATION}>, with the keys that apply: {fields}."
    )
    if not schema.predicted:
        return said
    names = " and ".join(f'"{name}"' for name in schema.predicted)
    return f"{said} Then write {names} after your action in <{PREDICTION}>...</{PREDICTION}>."


def true_state(schema: StateSchema, info: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of the info that hold the true state; empty if it is unknown.

    Raises:
        ValueError: the schema returned a field that it does not declare.
    """
    state = schema.visible(info)
    if state is None:
        return {}
    if unknown := state.keys() - schema.fields.keys():
        raise ValueError(f"visible() returned {sorted(unknown)}, which `fields` lacks")
    predictable = {name: value for name, value in state.items() if name in schema.predicted}
    return {VISIBLE: dict(state), PREDICTABLE: predictable}


def write_estimate(tag: str, fields: Mapping[str, Any]) -> str:
    """Write an estimate with its tags."""
    return f"<{tag}>{json.dumps(fields, separators=(',', ':'))}</{tag}>"


def share_of_right_fields(reply: str, tag: str, true: Mapping[str, Any]) -> float:
    """Return the share of the true fields that a reply's estimate contains.

    It is 0 if the reply does not have exactly one such tag with a JSON object of at most
    `MAX_ESTIMATE` characters. Other keys are ignored, and values must be equal as JSON.

    Args:
        reply: the reply.
        tag: `OBSERVATION` or `PREDICTION`.
        true: at least one field.
    """
    try:
        content = tag_content(reply, tag)
        if len(content) > MAX_ESTIMATE:
            return 0.0
        stated = json_object(content, "a JSON object")
    except ActionError:
        return 0.0
    right = sum(name in stated and _is_same(stated[name], value) for name, value in true.items())
    return right / len(true)


def _is_same(stated: Any, true: Any) -> bool:
    """Return whether two values are the same JSON; in Python, True == 1."""
    return json.dumps(stated, sort_keys=True) == json.dumps(true, sort_keys=True)
