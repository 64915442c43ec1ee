"""The rules that decide whether an answer is right."""

from collections.abc import Callable

from agentrl.data import grading
from agentrl.data.tasks import Task
from agentrl.errors import ConfigError

GRADES = ("exact", "numeric", "choice", "none")


def grader(grade: str, tolerance: float) -> Callable[[str, Task], bool | None]:
    """The grading function for a name; it returns None if the answer cannot be graded.

    Raises:
        ConfigError: unknown rule, or an invalid tolerance.
    """
    if grade not in GRADES:
        raise ConfigError(f"grade={grade!r}: must be one of {', '.join(GRADES)}")
    if not isinstance(tolerance, int | float) or not 0 <= tolerance < 1:
        raise ConfigError(f"tolerance={tolerance!r}: must lie in [0, 1)")

    def is_right(answer: str, task: Task) -> bool | None:
        if grade == "none":
            return None
        if grade == "numeric":
            return grading.numeric(answer, task.accepted, tolerance)
        if grade == "choice":
            return grading.choice(answer, task.accepted, task.options)
        return grading.exact(answer, task.accepted)

    return is_right
