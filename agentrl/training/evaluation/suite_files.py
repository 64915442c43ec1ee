"""Evaluation suites in YAML files, packaged with agentrl or written by users."""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar

import agentrl
from agentrl.config import EnvConfig, RewardConfig, read_yaml
from agentrl.config.type_checks import find_mistyped
from agentrl.data.open_table import find_local
from agentrl.errors import ConfigError
from agentrl.rollout.environments.resolved_env import named_parameters, resolve_env
from agentrl.text.name_suggestions import known_names
from agentrl.training.evaluation.suite import EvaluationSuite, SuiteTask
from agentrl.user_code import load

_PACKAGED = Path(agentrl.__file__).parent / "configs" / "suites"
_QUESTIONS = "QA-v0"
"""Environment of tasks that set `data`."""
_TASK_KEYS = tuple(one.name for one in fields(SuiteTask))
_NUMBERS = {
    "episodes": int, "samples": int, "first_seed": int, "max_turns": int, "max_new_tokens": int,
    "temperature": float,
}  # fmt: skip


class FileSuite(EvaluationSuite):
    """A suite described by a YAML file; `read_suite` derives a class for each file."""

    found: ClassVar[tuple[SuiteTask, ...]] = ()

    def tasks(self) -> tuple[SuiteTask, ...]:
        """Return the tasks of the file."""
        return self.found


def packaged_suites() -> dict[str, str]:
    """Return the files of the suites packaged with agentrl, by name."""
    return {path.stem: str(path) for path in sorted(_PACKAGED.glob("*.yaml"))}


def read_suite(path: Path) -> type[EvaluationSuite]:
    """Read a suite from a YAML file with the keys `about`, `tasks` and `defaults`.

    A task has the fields of `SuiteTask`. A task with `data` asks the questions of a data set; its
    other keys are arguments of `QA-v0` or its translator.

    Raises:
        ConfigError: the file is not a valid suite; the message suggests the nearest key.
    """
    tree = read_yaml(path)
    if not isinstance(tree, Mapping):
        raise ConfigError(f"{path}: must have a list of tasks (`tasks: [{{name: ...}}]`)")
    _check_keys(path.name, tree, ("about", "defaults", "tasks"))
    about, given = tree.get("about", ""), tree.get("tasks")
    defaults = {} if tree.get("defaults") is None else tree["defaults"]
    if not isinstance(about, str):
        raise ConfigError(f"{path.name}: about: must be a string, not {about!r}")
    if not isinstance(given, list) or not given:
        raise ConfigError(f"{path.name}: tasks: must be a list of mappings, not {given!r}")
    for where, one in (("defaults", defaults), *((f"tasks[{i}]", t) for i, t in enumerate(given))):
        if not isinstance(one, Mapping) or not all(isinstance(key, str) for key in one):
            raise ConfigError(f"{path.name}: {where}: must be a mapping, not {one!r}")
    # Packaged suites use only Hub data and packaged rewards, so they need no folder.
    is_packaged = path.parent == _PACKAGED.resolve()
    folder = None if is_packaged else str(path.parent.absolute())
    if folder is not None and folder not in sys.path:  # the suite's data and rewards may be there
        sys.path.append(folder)
    tasks = [
        _task(f"{path.name}: tasks[{i}]", _beside(path, {**defaults, **task}))
        for i, task in enumerate(given)
    ]
    # Create a class for each file, because extension points return classes.
    members = {"__doc__": about.strip(), "__module__": __name__}
    return type(path.stem, (FileSuite,), {**members, "found": tuple(tasks), "folder": folder})


def _beside(path: Path, task: dict[str, Any]) -> dict[str, Any]:
    """Prefer data in the suite's folder over other files of the same name."""
    if isinstance(data := task.get("data"), str):
        own = (path.parent / data).absolute()
        if own.is_file() and find_local(data) != own:
            return {**task, "data": str(own)}
    return task


def _task(where: str, given: Mapping[str, Any]) -> SuiteTask:
    if isinstance(given.get("name"), str):
        where += f" ({given['name']!r})"
    settings = _with_data(where, given) if "data" in given else dict(given)
    _check_keys(where, settings, (*_TASK_KEYS, "data"))
    if settings.get("name") is None:
        raise ConfigError(f"{where}: has no name")
    settings["rewards"] = _rewards(where, settings.get("rewards"))
    plain = {
        **settings,
        "rewards": None,
    }  # rewards are checked separately, with more specific messages
    if (mistyped := find_mistyped(plain, SuiteTask)) is not None:
        raise ConfigError(f"{where}: {': '.join(mistyped)}")
    for (
        name,
        convert,
    ) in _NUMBERS.items():  # as in other configurations, a string may spell a number
        if settings.get(name) is not None:
            settings[name] = convert(settings[name])
    return SuiteTask(**{**settings, "name": str(settings["name"])})


def _with_data(where: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a task on a data set to a task of the question environment."""
    if "env" in given:
        raise ConfigError(
            f"{where}: env and data cannot both be set, because data implies env={_QUESTIONS}"
        )
    env = resolve_env(EnvConfig(id=_QUESTIONS))
    asks, translates = env.parameters, named_parameters(load(env.registration.translator))
    _check_keys(where, given, (*_TASK_KEYS, *asks, *translates))
    own = {key: value for key, value in given.items() if key in _TASK_KEYS}
    kwargs = {key: value for key, value in given.items() if key in asks and key not in own}
    # `_check_keys` has checked all keys, so those that the environment lacks are the translator's.
    others = given.keys() - own.keys() - kwargs.keys()
    return {
        "max_turns": 1,
        **own,
        "env": _QUESTIONS,
        "kwargs": {**kwargs, **(own.get("kwargs") or {})},
        "translator_kwargs": {
            **{key: given[key] for key in sorted(others)},
            **(own.get("translator_kwargs") or {}),
        },
    }


def _rewards(where: str, given: Any) -> list[RewardConfig] | None:
    if given is None:
        return None
    if not isinstance(given, list):
        raise ConfigError(f"{where}: rewards: must be a list, not {given!r}")
    found = []
    for number, one in enumerate(given):
        own = f"{where}: rewards[{number}]"
        settings = {"function": one} if isinstance(one, str) else one
        if not isinstance(settings, Mapping) or "function" not in settings:
            raise ConfigError(f"{own}: must be a function's name or {{function: ...}}, not {one!r}")
        _check_keys(own, settings, [field.name for field in fields(RewardConfig)])
        if (mistyped := find_mistyped(settings, RewardConfig)) is not None:
            raise ConfigError(f"{own}.{': '.join(mistyped)}")
        found.append(RewardConfig(**settings))
    return found


def _check_keys(where: str, given: Mapping[Any, Any], known: Iterable[str]) -> None:
    known = list(dict.fromkeys(known))
    for key in given:
        if key not in known:
            raise ConfigError(
                f"{where}: unknown key {key!r}{known_names(str(key), known, label='There are')}"
            )
