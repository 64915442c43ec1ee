"""Checks of an evaluation suite, a class of `eval.suite`."""

from agentrl.config import Config
from agentrl.conformance.checking import reference
from agentrl.env import find_env
from agentrl.rollout.make_env import check_env_kwargs
from agentrl.training.env_seeds import check_evaluation_seeds
from agentrl.training.evaluation.suite import EvaluationSuite, entries_of


def check_entries(target: type[EvaluationSuite]) -> None:
    """It has entries, with different names and at least one episode each."""
    entries_of(reference(target))


def check_repeatable(target: type[EvaluationSuite]) -> None:
    """Its entries are the same each time."""
    first, second = entries_of(reference(target)), entries_of(reference(target))
    assert first == second, "two instances differ; draw nothing at random"


def check_environments(target: type[EvaluationSuite]) -> None:
    """Its environments exist and accept their arguments."""
    for entry in entries_of(reference(target)):
        if entry.env_id is not None:
            find_env(entry.env_id)
            check_env_kwargs(entry.applied_to(Config()).env, f"entry {entry.name!r}: kwargs")


def check_held_out(target: type[EvaluationSuite]) -> None:
    """Its seeds are held out: nothing is ever trained on them."""
    for entry in entries_of(reference(target)):
        check_evaluation_seeds(entry.applied_to(Config()).eval)


def next_command(target: str) -> tuple[str, ...]:
    """A suite is played by `eval`, not by `train`."""
    return ("eval", "CONFIG.yaml", "--suite", target)
