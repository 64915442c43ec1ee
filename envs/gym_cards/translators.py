"""The translators of NumberLine and EZPoints: instructions, and names of the actions."""

from collections.abc import Sequence

from gymnasium import spaces

from agentrl.actions.default_translator import SpaceTranslator
from agentrl.envs.gym_cards.ez_points import SYMBOLS
from agentrl.envs.gym_cards.number_line import MOVES

_NUMBER_LINE = (
    "Move the current number to the target, by one in each turn: right adds one, left subtracts "
    "one."
)
_EZ_POINTS = (
    "Write a formula that is worth 12 and uses the number of each card once. An ace counts 1, "
    "jack, queen and king count 10. In each turn, append one number or operator, or finish with =."
)
_FORMULA = "Formula: {{ info.formula | join }}"


class NumberLineTranslator(SpaceTranslator):
    """Shows the picture, and parses one move.

    Args:
        names: names of the two moves.
        instructions: how to play; an empty string gives no instructions at all.
        style: how actions are written: `tag` or `tool`.
    """

    def __init__(
        self,
        names: Sequence[str] = MOVES,
        instructions: str = _NUMBER_LINE,
        style: str = "tag",
    ) -> None:
        super().__init__(
            spaces.Discrete(len(MOVES)), names=names, instructions=instructions, style=style
        )


class EZPointsTranslator(SpaceTranslator):
    """Shows the picture and the formula so far, and parses one number or operator.

    RL4VLM, which introduced the game, also writes the formula into each prompt
    (arXiv:2405.10292).

    Args:
        names: names of the thirteen actions.
        instructions: how to play; an empty string gives no instructions at all.
        text: Jinja2 template of the text below the picture, from the `info`; may be empty.
        style: how actions are written: `tag` or `tool`.
    """

    def __init__(
        self,
        names: Sequence[str] = SYMBOLS,
        instructions: str = _EZ_POINTS,
        text: str = _FORMULA,
        style: str = "tag",
    ) -> None:
        super().__init__(
            spaces.Discrete(len(SYMBOLS)),
            names=names,
            instructions=instructions,
            text=text,
            style=style,
        )
