"""The classes and functions of a job that do not come with agentrl, and where they are defined."""

import inspect
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from agentrl import extension_points as points
from agentrl import registry
from agentrl.config import Config, parse_loggers
from agentrl.env import EnvRegistration
from agentrl.extension_points import ExtensionPoint
from agentrl.rollout.play_plan import PlayPlan

_BUILT_IN = ("agentrl", "gymnasium")


def custom_classes(config: Config, play: PlayPlan) -> list[str]:
    """All classes and functions that a job takes from files or packages of users.

    Args:
        config: the job, which has been checked.
        play: its environments.

    Returns:
        One text for each, such as `loss = losses.py:MyLoss`; a path is relative to the current
        folder, if it is below.

    Raises:
        ConfigError: one does not exist.
    """
    devices, algorithm, tasks = config.devices, config.algorithm, play.trained.values()
    named = [
        (points.MODEL, config.model.adapter),
        (points.CHAT, config.model.chat), (points.ALGORITHM, algorithm.name),
        (points.LOSS, algorithm.loss.name), (points.ENGINE, config.rollout.engine),
        (points.TRANSPORT, config.train.weight_transfer), (points.DRIVER, devices.driver),
        (points.CAPTURE, devices.capture), (points.SUITE, config.eval.suite),
        (points.SAMPLER, config.sampling.name),
        *((points.DIALECT, task.train.settings.dialect) for task in tasks),
        *((points.REWARD, reward.function) for task in tasks for reward in task.rewards),
        *((points.LOGGER, logger.name) for logger in parse_loggers(config.logging)),
    ]  # fmt: skip
    games = [found for task in tasks for found in _of_game(task.train.registration)]
    loaded = [*games, *_resolved(named)]
    defined = ((kind, _definition(found)) for kind, found in loaded)
    texts = (_text(kind, found) for kind, found in defined if not _is_built_in(found))
    return list(dict.fromkeys(texts))


def _of_game(game: EnvRegistration) -> Iterator[tuple[str, Any]]:
    """Kind and object of what the registration of an environment names."""
    yield "env", _load(game.entry_point)
    if game.app is not None:
        yield "app", _load(game.app)
    yield "translator", _load(game.translator)
    for player in game.players.values():
        yield "player", _load(player)


def _resolved(named: Iterable[tuple[ExtensionPoint, str | None]]) -> Iterator[tuple[str, Any]]:
    """Kind and object of named extensions, except what is known to be built in."""
    for point, name in named:
        # Importing a built-in one may need a library that the job does without.
        if name not in (None, "auto") and not point.target(name).startswith("agentrl."):
            yield point.kind, point.resolve(name)


def _load(target: Any) -> Any:
    """The object of a registration; it may be registered itself."""
    return registry.load(target) if isinstance(target, str) else target


def _definition(found: Any) -> Any:
    """The class or function itself; of any other object, its class."""
    return found if isinstance(found, type) or inspect.isfunction(found) else type(found)


def _is_built_in(found: Any) -> bool:
    return str(found.__module__).partition(".")[0] in _BUILT_IN


def _text(kind: str, found: Any) -> str:
    file = Path(inspect.getfile(found)).resolve()
    here = Path.cwd().resolve()
    shown = file.relative_to(here) if file.is_relative_to(here) else file
    return f"{kind} = {shown}:{found.__qualname__}"
