"""Bounds of settings, declared in their types, and code that checks them."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le, Lt

from agentrl.errors import ConfigError

MAX_EPISODES = 100_000
"""Maximum number of episodes per step, in flight, or per evaluation; anything above is a typo."""
MAX_NUMBER = 1_000_000_000_000
"""The largest number that any setting accepts; anything above is a typo."""
_MAX_S = 1_000_000
"""Eleven days; socket timers overflow after 24 days."""

# A string next to a bound explains the upper bound in messages.
PositiveInt = Annotated[int, Gt(0)]
NonNegativeInt = Annotated[int, Ge(0)]
PositiveFloat = Annotated[float, Gt(0)]
NonNegativeFloat = Annotated[float, Ge(0)]
Fraction = Annotated[float, Ge(0), Le(1)]
Seconds = Annotated[float, Gt(0), Le(_MAX_S)]
NonNegativeSeconds = Annotated[float, Ge(0), Le(_MAX_S)]
EpisodeCount = Annotated[int, Gt(0), Le(MAX_EPISODES)]
ProcessCount = Annotated[int, Gt(0), Le(100_000), "they run at the same time"]
StepCount = Annotated[int, Gt(0), Le(1_000_000_000), "training would never end"]
BatchSize = Annotated[int, Gt(0), Le(1_000_000), "a step would never end"]
TokenCount = Annotated[int, Gt(0), Le(100_000_000), "it would not fit into memory"]
LearningRate = Annotated[float, Gt(0), Le(100), "every weight would be lost in the first step"]


@cache
def declared_types(section: type) -> Mapping[str, Any]:
    """Map a section's settings to their types with bounds.

    A subclass that repeats a type to change a setting's default keeps the bounds.
    """
    found, plain = dict[str, Any](), dict[str, Any]()
    for base in reversed(section.__mro__):
        for name, hint in get_type_hints(base, include_extras=True).items():
            # A new hint with other bounds differs from the bare type; a repeated type does not.
            if hint != plain.get(name):
                found[name] = hint
        plain |= get_type_hints(base)
    return found


def alternatives(hint: Any) -> tuple[Any, ...]:
    """Return the types of a union, or the type itself if it is not a union."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def check_bounds(section: Any, key: str = "") -> None:
    """Check every number in a section and its nested sections and lists.

    Args:
        section: a dataclass whose types declare bounds by `annotated_types`.
        key: dotted key of the section, for messages.

    Raises:
        ConfigError: a number is out of bounds or not finite, or a list of plain values contains
            a list or mapping, which OmegaConf accepts.
    """
    for name, hint in declared_types(section.__class__).items():
        _check(getattr(section, name), hint, f"{key}.{name}" if key else name)


def _check(value: Any, hint: Any, key: str) -> None:
    if dataclasses.is_dataclass(value):
        check_bounds(value, key)
    elif isinstance(value, Mapping):
        inner = _item_type(hint, dict)
        for name, item in value.items():
            _check(item, inner, f"{key}.{name}")
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        inner = _item_type(hint, list)
        for number, item in enumerate(value):
            # OmegaConf checks the types of list items, but accepts a nested list as an item.
            if inner in (str, int, float) and not isinstance(item, str | int | float):
                raise ConfigError(
                    f"{key}={value}: {item} is not a plain value; write a list such as [A, B]"
                )
            _check(item, inner, f"{key}[{number}]")
    elif isinstance(value, int | float) and (problem := _problem(value, hint)):
        raise ConfigError(f"{key}={value}: {problem}")


def _item_type(hint: Any, kind: type) -> Any:
    """Return the item type of a list or mapping; `Any` if not declared."""
    return next((get_args(one)[-1] for one in alternatives(hint) if get_origin(one) is kind), Any)


def _problem(value: Any, hint: Any) -> str | None:
    """Return why a number violates the bounds of its type, or None if it does not."""
    if isinstance(value, float) and not math.isfinite(value):
        return "must be a finite number"
    parts = alternatives(hint)
    words = [word for part in parts if get_origin(part) is Literal for word in get_args(part)]
    either = "".join(f", or {word}" for word in [*words, *["null"] * (type(None) in parts)])
    declared = [one for part in parts for one in getattr(part, "__metadata__", ())]
    why = "".join(f": {one}" for one in declared if isinstance(one, str))
    for bound in declared:
        match bound:
            case Gt(gt=least) if not value > least:
                return f"must be above {least}{either}"
            case Ge(ge=least) if value < least:
                return f"must not be below {least}{either}"
            case Lt(lt=most) if not value < most:
                return f"must be below {most}{either}{why}"
            case Le(le=most) if value > most:
                return f"must be at most {most:,}{either}{why}"
    if hint is not Any and abs(value) > MAX_NUMBER:
        return f"must be at most {MAX_NUMBER:,}: anything above is a typo"
    return None


def check_size(key: str, size: Sequence[int] | None, least: int, most: int) -> None:
    """Check the width and height of an image or screen; None is allowed."""
    if size is not None and (len(size) != 2 or not least <= min(size) <= max(size) <= most):
        raise ConfigError(
            f"{key}={size}: must be [width, height] in pixels, both {least} to {most}"
        )


def check_betas(key: str, betas: Sequence[float]) -> None:
    """Check AdamW's two decay rates."""
    if len(betas) != 2 or not 0 <= min(betas) <= max(betas) < 1:
        raise ConfigError(f"{key}={betas}: must be two decay rates, both at least 0 and below 1")
