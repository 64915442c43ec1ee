"""Values of Gymnasium spaces in replies: names of choices, numbers within bounds, and text."""

import re
from collections.abc import Sequence
from typing import Any

from gymnasium import spaces

from agentrl.actions.action_calls import Numbers
from agentrl.actions.reply_values import is_finite
from agentrl.errors import ActionError, ConfigError
from agentrl.text.formatting import quoted
from agentrl.text.name_suggestions import did_you_mean, list_names

# Delimiters of calls and their arguments.
_MARKS = re.compile(r"[()<>\",]")
# Maximum number of an alphabet's characters that a message shows.
_MOST_CHARACTERS = 40


def choice_names(given: Any, count: int, key: str, start: int = 0) -> Sequence[str]:
    """Return the names of a space's choices; by default, the space's own numbers."""
    if given is None:
        return Numbers(count, start)
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ConfigError(f"{key} must be a list of {count} names, got {given!r}")
    names = tuple(str(name).strip() for name in given)
    if len(names) != count or len(set(names)) != count or not all(names):
        raise ConfigError(f"{key} must be a list of {count} unique names, got {list(names)}")
    if odd := [name for name in names if _MARKS.search(name)]:
        raise ConfigError(
            f"{key}: {odd[0]!r} contains a bracket, a comma or a quote, which delimit calls; "
            "remove it"
        )
    return names


def listed(names: Sequence[str]) -> str:
    """List names as `left, stay, right`, and numbers as `0 to 41`."""
    return str(names) if isinstance(names, Numbers) else list_names(names)


def read_choice(word: str, names: Sequence[str], parameter: str) -> int:
    """Return the index of a choice by name."""
    if word not in names:
        meant = "" if isinstance(names, Numbers) else did_you_mean(word, names)
        raise ActionError(
            f"{parameter} is {quoted(word)}; it must be one of {listed(names)}{meant}"
        )
    return names.index(word)


def parameter_names(given: Sequence[str] | None, count: int) -> tuple[str, ...]:
    """Return the names of an action's components in lower case; by default, `a0`, `a1`, ..."""
    if given is None:
        return tuple(f"a{part}" for part in range(count))
    names = tuple(map(str, given))
    if len(names) != count or len(set(names)) != count or not all(n.isidentifier() for n in names):
        raise ConfigError(
            f"env.translator_kwargs.parameters must be {count} unique identifiers, got "
            f"{list(names)}"
        )
    return tuple(name.lower() for name in names)


def read_number(value: Any, name: str, low: float, high: float, *, whole: bool) -> float:
    """Check a number in a `Box` against the kind of number and the bounds."""
    if not is_finite(value) or (whole and not isinstance(value, int)):
        raise ActionError(f"{name} is {quoted(value)}, not {'a whole' if whole else 'a'} number")
    if not low <= value <= high:
        raise ActionError(f"{name} is {value:g}; it must be from {low:g} to {high:g}")
    return value


def write_number(value: Any, low: float, high: float, *, whole: bool) -> str:
    """Format a number in a `Box`, with three decimals if that stays within the bounds."""
    text = f"{value:d}" if whole else f"{value:.3f}"
    return text if low <= float(text) <= high else repr(float(value))


def read_text(text: str, space: spaces.Text) -> str:
    """Check that a string belongs to a `Text` space, and return it."""
    if space.contains(text):
        return text
    if not space.min_length <= len(text) <= space.max_length:
        problem = (
            f"has {len(text)} characters; it must have {space.min_length} to {space.max_length}"
        )
    else:
        letters = "".join(sorted(space.character_set))
        odd = next((c for c in text if c not in space.character_set), "")
        more = "..." if len(letters) > _MOST_CHARACTERS else ""
        problem = f"contains {odd!r}; allowed characters are {letters[:_MOST_CHARACTERS]!r}{more}"
    raise ActionError(f"the text {quoted(text)} {problem}")
