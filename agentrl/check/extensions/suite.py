"""Checks of an evaluation suite of `eval.suite`: a class, or a YAML file."""

from agentrl.config import EnvConfig, EvalConfig
from agentrl.env_registry import find_env
from agentrl.rollout.environments.resolved_env import resolve_env
from agentrl.training.env_seeds import check_evaluation_seeds
from agentrl.training.evaluation.suite import EvaluationSuite, SuiteTask, tasks_of


def check_tasks(target: type[EvaluationSuite]) -> None:
    """The suite has tasks, with different names and at least one episode each."""
    _tasks(target)


def check_repeatable(target: type[EvaluationSuite]) -> None:
    """The suite's tasks are the same each time it is loaded."""
    assert _tasks(target) == _tasks(target), "two instances differ; don't choose tasks at random"


def check_environments(target: type[EvaluationSuite]) -> None:
    """The suite's environments exist and accept their arguments."""
    for task in _tasks(target):
        if task.env is not None:
            find_env(task.env)
            played = task.env_of(EnvConfig(), EvalConfig())
            resolve_env(played, section=f"task {task.name!r}: kwargs").check_arguments()


def check_held_out(target: type[EvaluationSuite]) -> None:
    """The suite's seeds are held out: nothing is ever trained on them."""
    for task in _tasks(target):
        check_evaluation_seeds(task.seeds_of(EvalConfig(), task.episodes or 1))


def next_command(target: str) -> tuple[str, ...]:
    """Suggest `eval`, because suites are not trained on."""
    return ("eval", "MODEL", "--suite", target)


def _tasks(target: type[EvaluationSuite]) -> list[SuiteTask]:
    return tasks_of(target.__name__, target)
