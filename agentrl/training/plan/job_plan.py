"""Resolves everything that a configuration names into a job plan, which also checks the job."""

import logging
import resource
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentrl import extras
from agentrl.cluster.placement import Layout, unused_gpus
from agentrl.config import Config, RolloutConfig, WarmStartConfig
from agentrl.errors import ConfigError
from agentrl.policies.models.model_source import check_model, check_policy, find_config, is_on_hub
from agentrl.policies.open_engine import check_packages, engine_class
from agentrl.rollout.rollout_plan import RolloutPlan, baseline_players, plan_rollouts
from agentrl.rollout.workers.open_rollouts import layout_of_job
from agentrl.training.demonstrations.demonstration_dataset import load_labeler
from agentrl.training.demonstrations.demonstration_filter import (
    DemonstrationSelection,
    select_demonstrations,
)
from agentrl.training.env_seeds import check_evaluation_seeds, check_run_seeds
from agentrl.training.learner.learner_settings import LearnerSettings
from agentrl.training.monitoring.logger import check_loggers
from agentrl.training.plan.environment_checks import (
    check_environments,
    check_phones,
    named_in_errors,
)
from agentrl.training.plan.long_prompts import skip_long_prompts
from agentrl.training.plan.model_checks import (
    check_attention,
    check_model_settings,
    check_model_with_engine,
    check_replay,
)
from agentrl.training.plan.trial_episodes import (
    check_privileged,
    check_rewards,
    load_and_check_rewards,
)
from agentrl.training.sampling.task_pool import TaskSet, task_sets
from agentrl.training.sampling.task_sampler import load_sampler
from agentrl.training.teacher import check_teacher

log = logging.getLogger(__name__)

_LEAST = {"local": 128, "ray": 256}
"""Minimum number of open files that a job needs to start, by `rollout.launcher`."""
_PLENTY = 8192
"""Number of open files that suffices for any job."""


@dataclass(slots=True, kw_only=True, frozen=True)
class JobPlan:
    """A checked reinforcement learning job, with everything that its configuration names."""

    play: RolloutPlan
    learner: LearnerSettings
    """Settings of the learner's ranks, with the algorithm."""
    layout: Layout
    """Placement of engines and ranks on the available nodes."""
    task_sets: Sequence[TaskSet]
    """The tasks of each environment, from which the sampler chooses."""
    warm_start: WarmStartConfig | None
    """The warm start, if still pending."""
    demonstrations: DemonstrationSelection
    """The warm start's recorded episodes."""

    @property
    def settings(self) -> Config:
        """The configuration as the user wrote it."""
        return self.play.settings

    @property
    def weights(self) -> Mapping[str, float]:
        """Share of the groups by training environment; the shares sum to 1."""
        return {one.env: one.weight for one in self.task_sets}

    def placed(self, layout: Layout) -> "JobPlan":
        """Return the plan with engines and ranks placed as in a reservation."""
        play = self.play.placed(layout)
        settings = play.settings
        learner = replace(self.learner, rollout=settings.rollout, train=settings.train)
        return replace(self, play=play, learner=learner, layout=layout)

    def without_long_prompts(self, folder: Path) -> "JobPlan":
        """Return the plan without rows whose prompts are too long; see `skip_long_prompts`."""
        play = skip_long_prompts(self.play, folder)
        settings = play.settings
        sets = task_sets(settings.sampling, play.trained, settings.mixture_weights())
        return replace(self, play=play, task_sets=sets)


def plan_training(
    config: Config, *, warm_start_pending: bool = False, begins: bool = True
) -> JobPlan:
    """Plan and check a job.

    Args:
        config: the job.
        warm_start_pending: True if the warm start is still pending, so that its recorded
            demonstrations must exist. If false, the job has already scored episodes.
        begins: True if the job begins now. If so, rewards that have never scored an episode score
            one, and a model that is not local is looked up on the Hub. False for `--dry-run`.

    Raises:
        ConfigError: something is missing or invalid; the message says what to do.
    """
    engine = engine_class(config.rollout).capabilities
    if not engine.trains:
        raise ConfigError(
            f"rollout.engine={config.rollout.engine}: the model of this engine cannot be trained. "
            "Use it with `agentrl eval` or `agentrl play`; to train your own model on its "
            "episodes, list the run in warm_start.recorded"
        )
    check_open_files(config.rollout)
    play, learner = plan_rollouts(config), LearnerSettings.of(config)
    scores = begins and warm_start_pending
    # With Ray, phones are checked on their nodes, by `_checked_layout`.
    phones = not (engine.needs_model and config.rollout.launcher == "ray")
    attempts = learner.algorithm.attempts
    sets = _check_episodes(
        play, _players(play), attempts=attempts, phones=phones, rewards=not scores
    )
    check_packages(config.rollout)
    engine_class(config.rollout).check(config.rollout)
    config.validate_for_training()
    layout = _checked_layout(play, learns=True)
    # A resumed job may have exported its teacher, whose run may be gone.
    if warm_start_pending and (teacher := learner.algorithm.requires.teacher) is not None:
        check_teacher(teacher, config.model)
    warm = config.warm_start if warm_start_pending else None
    plan = JobPlan(
        play=play,
        learner=learner,
        layout=layout,
        task_sets=sets,
        warm_start=warm,
        demonstrations=select_demonstrations(warm, play.tasks[""].train, config.model, config.eval),
    )
    privileged = learner.algorithm.requires.privileged
    for name, task in play.trained.items():
        with named_in_errors(name):
            if warm is not None:
                load_labeler(task.train, warm)
            if scores:
                check_rewards(play.only(name))
            if privileged is not None:
                check_privileged(play.only(name), privileged)
    if begins and is_on_hub(config.model):
        check_model_with_engine(config.model, config.rollout, learns=True)
    return plan


def check_model_play(play: RolloutPlan) -> None:
    """Check a job whose model only plays, without contacting a model server yet.

    Raises:
        ConfigError: something is missing or invalid; the message says what to do.
    """
    model, rollout = play.settings.model, play.settings.rollout
    engine = engine_class(rollout).capabilities
    check_open_files(rollout)
    # With Ray, phones are checked on their nodes, by `_checked_layout`.
    phones = not (engine.needs_model and rollout.launcher == "ray")
    _check_episodes(play, (), phones=phones)
    check_packages(rollout)
    engine_class(rollout).check(rollout)
    if engine.needs_model:
        _checked_layout(play, learns=False)
        if is_on_hub(model):
            find_config(model)


def check_scripted_play(play: RolloutPlan, players: Sequence[str] = ()) -> None:
    """Check a job that is played without a model, by scripted players or a person.

    Raises:
        ConfigError: something is missing or invalid; the message says what to do.
    """
    _check_episodes(play, players)


def _players(play: RolloutPlan) -> list[str]:
    """Return the scripted players of a training job: its baselines and its warm start's player."""
    warm = play.settings.warm_start
    return [*baseline_players(play), *([] if warm is None else filter(None, [warm.player]))]


def _check_episodes(
    play: RolloutPlan,
    players: Sequence[str],
    *,
    attempts: int = 1,
    phones: bool = True,
    rewards: bool = True,
) -> list[TaskSet]:
    """Check what all players need: environments, players, rewards, seeds, tasks and phones."""
    config = play.settings
    config.validate()
    check_environments(play, players)
    if rewards:
        for name in play.tasks:
            with named_in_errors(name):
                load_and_check_rewards(play.only(name))
    check_evaluation_seeds(config.eval)
    check_run_seeds(
        config.seed,
        config.rollout,
        attempts,
        steps=config.train.steps,
        demonstrations=config.warm_start.episodes if config.warm_start else 0,
    )
    env = play.tasks[""].train
    sets = task_sets(config.sampling, play.trained, config.mixture_weights())
    # Create a sampler only because its constructor may reject the job; the trainer creates another,
    # with a folder in the run's folder.
    sampler = load_sampler(
        config.sampling, sets, config.rollout, run_seed=config.seed, folder=Path(config.run.dir)
    )
    if sampler.replays:
        check_replay(config.algorithm, config.sampling.name)
        if config.devices.mask and env.app is not None:
            raise ConfigError(
                f"sampling.name={config.sampling.name}: requires screens as the model saw them, "
                "but devices.mask hides parts of recorded screens; remove one of the two settings"
            )
    if phones and env.app is not None:
        hosts = config.devices.hosts
        layout = layout_of_job(config.rollout, None, hosts) if hosts else None
        check_phones(config.devices, env, config.rollout.start_deadline_s, layout)
    return sets


def _checked_layout(play: RolloutPlan, *, learns: bool) -> Layout:
    """Check model, loggers, phones and transport, without the Hub; return the layout."""
    config = play.settings
    model, rollout, train = config.model, config.rollout, config.train if learns else None
    engine = engine_class(rollout)
    if learns or engine.capabilities.uses_attention:
        check_attention(model, rollout, learns=learns)
    check_loggers(config.logging)
    check_model(model)
    check_policy(model)
    if model.path != "tiny" and not is_on_hub(model):
        check_model_with_engine(model, rollout, learns=learns)
    check_model_settings(model, config.train, config.optim, rollout, learns=learns)
    layout = layout_of_job(rollout, train, config.devices.hosts)
    each = engine.num_gpus(rollout.engine_kwargs)
    if unused := unused_gpus(layout, rollout, train, each):
        log.warning("%s", unused)
    if rollout.launcher == "ray":
        check_phones(config.devices, play.tasks[""].train, rollout.start_deadline_s, layout)
    placed = play.placed(layout)
    placed.settings.validate()
    placed.transport.check()
    if learns and layout.num_nodes > 1 and placed.transport.transport_class().needs.one_node:
        raise ConfigError(
            f"train.weight_transfer={config.train.weight_transfer}: cannot reach engines on other "
            f"nodes, but this job uses {layout.num_nodes} nodes; set train.weight_transfer=file"
        )
    return layout


def check_learner(learner: LearnerSettings, loggers: Sequence[Any]) -> None:
    """Check a job that only trains, without environment and engines.

    Args:
        learner: the job's learner.
        loggers: the job's loggers (`logging`).

    Raises:
        ConfigError: something is missing or invalid; the message says what to do.
    """
    model, rollout = learner.model, learner.rollout
    models, launcher = extras.missing_for_models(rollout.launcher)
    if lacking := [*models, *launcher]:
        raise ConfigError(". ".join(lacking))
    check_attention(model, rollout, learns=True)
    check_loggers(loggers)
    check_model(model)
    if model.path != "tiny":
        find_config(model)  # a model of the hub exists
    check_model_settings(model, learner.train, learner.optim, rollout, learns=True)


def check_inference(play: RolloutPlan) -> None:
    """Check an inference job, which has neither an environment nor a learner.

    Raises:
        ConfigError: something is missing or invalid; the message says what to do.
    """
    model, rollout = play.settings.model, play.settings.rollout
    check_packages(rollout)
    engine_class(rollout).check(rollout)
    engine = engine_class(rollout).capabilities
    if engine.needs_model:
        if engine.uses_attention:
            check_attention(model, rollout, learns=False)
        check_model(model)
        check_policy(model)
        if model.path != "tiny":
            find_config(model)  # a model of the hub exists
        layout_of_job(rollout, None)


def check_open_files(rollout: RolloutConfig) -> None:
    """Raise the soft limit on open files, which many systems set far below the hard limit.

    Raises:
        ConfigError: the hard limit is too low for any job.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited, least = resource.RLIM_INFINITY, _LEAST[rollout.launcher]
    if hard != unlimited and hard < least:
        raise ConfigError(
            f"a process may have at most {hard:,} open files on this machine (ulimit -n), but a "
            f"job with rollout.launcher={rollout.launcher} needs at least {least}; run `ulimit -n "
            f"{_PLENTY}` as an administrator, or raise nofile in /etc/security/limits.conf"
        )
    wanted = _PLENTY if hard == unlimited else min(hard, _PLENTY)
    if soft != unlimited and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
