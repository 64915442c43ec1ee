"""Call third-party environments, and check what they return.

`agentrl serve-env --program` includes this file in the environment server that it prints, so it
may use only Python 3.9 and numpy.
"""

from __future__ import annotations

import os
import traceback
from typing import Any

import numpy as np

LONGEST_ERROR = 2000
"""Maximum length of an error message, in characters."""
_OLD_GYM = (
    ", as in the old gym package; adapt the environment to gymnasium.Env, or wrap it in "
    "GymV21CompatibilityV0 from the package shimmy"
)


def reset_env(
    env: Any, seed: int | None, options: dict[str, Any] | None = None
) -> tuple[Any, dict[str, Any]]:
    """Return the observation and info of a reset.

    Raises:
        TypeError: the environment has a different interface, such as old Gym's.
    """
    given = {"seed": seed} if options is None else {"seed": seed, "options": options}
    try:
        found = env.reset(**given)
    except TypeError as error:
        if "unexpected keyword argument 'seed'" in describe_error(error):
            raise TypeError(f"reset() does not accept a seed{_OLD_GYM}") from error
        raise
    observation, info = _parts("reset()", found, "observation, info")
    return observation, info


def step_env(env: Any, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
    """Return the five parts of a step's result.

    Raises:
        TypeError: as in `reset_env`; or `terminated` or `truncated` is not a boolean.
    """
    names = "observation, reward, terminated, truncated, info"
    observation, reward, terminated, truncated, info = _parts("step()", env.step(action), names)
    ends = _as_bool("terminated", terminated), _as_bool("truncated", truncated)
    return observation, reward, *ends, info


def _as_bool(name: str, value: Any) -> bool:
    """Return a Python or array library's boolean as a bool; accept 0 and 1."""
    plain = value.item() if hasattr(value, "item") and np.size(value) == 1 else value
    if plain not in (0, 1) or not isinstance(plain, (bool, int, float)):
        raise TypeError(f"{name} is {value!r:.60} ({type(value).__name__}), not True or False")
    return bool(plain)


def _parts(call: str, found: Any, names: str) -> tuple[Any, ...]:
    if isinstance(found, tuple) and len(found) == names.count(",") + 1:
        return found
    what = f"{len(found)} values" if isinstance(found, tuple) else f"a {type(found).__name__}"
    raise TypeError(f"{call} returned {what} instead of ({names}){_OLD_GYM}")


def describe_error(error: BaseException) -> str:
    """Return an error's type, message and location, even if its `__str__` fails."""
    try:
        text = f"{error}"
    except Exception as failure:
        text = f"an error without a message, because its __str__ raises {type(failure).__name__}"
    if len(text) > LONGEST_ERROR:
        text = f"{text[:LONGEST_ERROR]}... ({len(text):,} characters)"
    deepest = traceback.extract_tb(error.__traceback__)[-1:]
    location = "".join(f" ({os.path.basename(frame[0])}:{frame[1]})" for frame in deepest)
    return f"{type(error).__name__}: {text}{location}"
