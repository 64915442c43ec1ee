"""Which rule says whether an answer is right."""

from collections.abc import Callable

from agentrl.data import grading
from agentrl.data.tasks import Task
from agentrl.errors import ConfigError

GRADES = ("exact", "numeric", "choice", "none")


def grader(grade: str, tolerance: float) -> Callable[[str, Task], bool | None]:
    """The rule of a name; None is its verdict where it has none.

    Raises:
        ConfigError: there is no such rule.
    """
    if grade not in GRADES:
        raise ConfigError(f"grade={grade!r}: must be one of {', '.join(GRADES)}")
    if not isinstance(tolerance, int | float) or not 0 <= tolerance < 1:
        raise ConfigError(f"tolerance={tolerance!r}: must lie in [0, 1)")

    def judge(answer: str, task: Task) -> bool | None:
        if grade == "none":
            return None
        if grade == "numeric":
            return grading.numeric(answer, task.accepted, tolerance)
        if grade == "choice":
            return grading.choice(answer, task.accepted, task.options)
        return grading.exact(answer, task.accepted)

    return judge
