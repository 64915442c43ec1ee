"""Checks of a job's environments: arguments, translators, players and phones."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from agentrl import devices
from agentrl.cluster.placement import Layout
from agentrl.config import DevicesConfig
from agentrl.errors import ConfigError
from agentrl.rollout.env_pool import check_mixture_pool
from agentrl.rollout.environments.load_translator_and_players import load_player, open_translator
from agentrl.rollout.environments.prompt_messages import instructions_for
from agentrl.rollout.environments.resolved_env import ResolvedEnv, history_of
from agentrl.rollout.nodes.phone_hosts import check_phone_hosts, find_phone_hosts
from agentrl.rollout.nodes.shared_phone_pool import open_settings
from agentrl.rollout.rollout_plan import PlayTask, RolloutPlan

log = logging.getLogger(__name__)


def check_environments(plan: RolloutPlan, players: Iterable[str]) -> None:
    """Check every environment of a job, except phones and rewards.

    Args:
        plan: the job.
        players: scripted players that will play.

    Raises:
        ConfigError: an environment rejects its arguments, or its translator or a player fails.
    """
    own, mixture = plan.tasks[""], {name: task for name, task in plan.tasks.items() if name}
    _check_environment(own, () if mixture else players)
    check_mixture_pool(own.train, {name: task.train for name, task in mixture.items()})
    for name, task in mixture.items():
        with named_in_errors(name):
            _check_environment(task, players)
    for name, ring in plan.rings.items():
        _check_held_out(ring, "eval.rings.episodes", plan.ring_episodes[name])
    for name, kwargs in own.eval.ring_kwargs.items():
        if mixture:
            log.warning(
                "eval.rings.%s=%s: skipping this ring, because the job has a mixture of "
                "environments. Evaluate its model with a suite (eval.suite).",
                name,
                kwargs,
            )
        elif name not in plan.rings:
            log.warning(
                "eval.rings.%s=%s: same environment as the held-out seeds; skipping this ring. Use "
                "a value that differs.",
                name,
                kwargs,
            )
    settings = own.train.settings
    if own.train.app is not None and settings.processes:
        raise ConfigError(
            f"env.processes={settings.processes}: cannot be used with {settings.id}, because "
            "phones already run in separate processes; remove this setting"
        )


def _check_environment(task: PlayTask, players: Iterable[str]) -> None:
    env = task.train
    env.check_arguments()
    _check_held_out(task, "eval.episodes", task.eval.episodes)
    instructions_for(env.settings, open_translator(env))
    history_of(env.settings)
    for name in players:
        load_player(env, name)


def _check_held_out(task: PlayTask, key: str, episodes: int) -> None:
    """Check the arguments of held-out episodes, and warn if there are fewer than `key` asks for."""
    count = task.held_out.check_arguments()
    if task.held_out.overrides:
        open_translator(task.held_out)
    if count is not None and episodes > count:
        log.warning(
            "%s=%s: only %s distinct episodes are held out, so they are played repeatedly",
            key,
            episodes,
            count,
        )


def count_episodes(plan: RolloutPlan) -> Mapping[str, int | None]:
    """Return the number of distinct episodes in `training` and in `evaluation`.

    Includes each environment of a mixture, and each ring (`unseen levels`). Unknown numbers are
    None.
    """
    counts = {}
    for name, task in plan.tasks.items():
        prefix = f"{name}, " if name else ""
        counts[f"{prefix}training"] = task.train.check_arguments()
        counts[f"{prefix}evaluation"] = task.held_out.check_arguments()
    for name, ring in plan.rings.items():
        counts[f"unseen {name}"] = ring.held_out.check_arguments()
    return counts


def check_phones(
    settings: DevicesConfig, env: ResolvedEnv, deadline_s: float, layout: Layout | None
) -> None:
    """Check the phones on the nodes of a layout, or on this machine if there is no layout."""
    if env.app is None:
        return
    if layout is not None:
        hosts = find_phone_hosts(settings, layout, deadline_s)
        if [host.node for host in hosts] != [layout.nodes[0]]:
            check_phone_hosts(hosts, deadline_s)
            return
        settings = hosts[0].settings
    devices.check_source(settings.source, **open_settings(settings))


@contextmanager
def named_in_errors(name: str) -> Iterator[None]:
    """Prefix errors in a block with the name of an environment in a mixture.

    Raises:
        ConfigError: an error from the block, without a prefix if the job has only one environment.
    """
    try:
        yield
    except ConfigError as error:
        if not name:
            raise
        raise ConfigError(f"mixture, {name}: {error}") from error
