"""Parse once: what a configuration names is looked up here, and making a plan is the check."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agentrl import extras
from agentrl.algorithms.core.algorithm import Algorithm, load_algorithm
from agentrl.cluster.placement import Layout, unused_gpus
from agentrl.config import Config
from agentrl.errors import ConfigError
from agentrl.policies.models.model_source import check_model, check_policy, find_config, is_on_hub
from agentrl.policies.open_model import check_engine, check_packages, engine_class
from agentrl.rollout.play_plan import PlayPlan, baseline_players, plan_play
from agentrl.rollout.workers.open_rollouts import plan_job
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
from agentrl.training.plan.file_limit import check_open_files
from agentrl.training.plan.length_check import check_rewards, load_and_check_rewards
from agentrl.training.plan.long_prompts import skip_long_prompts
from agentrl.training.plan.model_checks import (
    check_attention,
    check_model_settings,
    check_model_with_engine,
    check_replay,
)
from agentrl.training.sampling.task_sampler import TaskSet, load_sampler, task_sets

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, frozen=True)
class JobPlan:
    """A job of reinforcement learning, checked: what its configuration names, looked up."""

    settings: Config
    """The configuration, as the user wrote it."""
    play: PlayPlan
    layout: Layout
    """The places of engines and ranks, on the nodes that the job can use."""
    algorithm: Algorithm
    task_sets: Sequence[TaskSet]
    """The tasks of each environment, which the sampler chooses from."""
    demonstrations: DemonstrationSelection
    """The recorded episodes of a warm start that is still to come; otherwise none."""

    @property
    def learner(self) -> LearnerSettings:
        """The settings of the learner's ranks."""
        return LearnerSettings.of(self.settings)

    @property
    def baselines(self) -> Sequence[str]:
        """The scripted players that the model is compared with."""
        return baseline_players(self.play)

    @property
    def weights(self) -> Mapping[str, float]:
        """The share of the groups of each environment that is trained on; they sum to 1."""
        return {one.env: one.weight for one in self.task_sets}

    def placed(self, layout: Layout) -> "JobPlan":
        """Return the plan with the engines and ranks of a reservation."""
        play = self.play.placed(layout)
        return replace(self, settings=play.source, play=play, layout=layout)

    def without_long_prompts(self, folder: Path) -> "JobPlan":
        """Return the plan without the rows that are too long; see `skip_long_prompts`."""
        settings = skip_long_prompts(self.settings, folder)
        return replace(self, settings=settings, play=plan_play(settings))


def plan_training(config: Config, *, warm_start_pending: bool = False) -> JobPlan:
    """Plan a job, look up on the hub a model that is not local, and score one episode.

    Args:
        config: the job.
        warm_start_pending: whether the warm start is still to come, so that its recorded
            demonstrations must exist. Otherwise the job has scored episodes.

    Raises:
        ConfigError: the first thing that is missing or invalid, and what to do.
    """
    plan = make_plan(config, warm_start_pending=warm_start_pending, rewards=not warm_start_pending)
    if warm_start_pending:
        for name in plan.play.trained:
            with named_in_errors(name):
                check_rewards(plan.play.only(name))
    if is_on_hub(config.model):
        check_model_with_engine(config.model, config.rollout, learns=True)
    return plan


def make_plan(config: Config, *, warm_start_pending: bool, rewards: bool) -> JobPlan:
    """Plan a job, without the hub, and without playing an episode.

    Args:
        config: the job.
        warm_start_pending: see `plan_training`.
        rewards: whether to load the rewards, which `check_rewards` does otherwise.

    Raises:
        ConfigError: see `plan_training`.
    """
    engine = engine_class(config.rollout).capabilities
    if not engine.trains:
        raise ConfigError(
            f"rollout.engine={config.rollout.engine}: its model cannot be trained. Play with it by "
            "`agentrl eval` or `agentrl play`; warm_start.recorded trains a model of your own on "
            "what it played"
        )
    check_open_files(config.rollout)
    play = plan_play(config)
    phones = not (engine.needs_model and config.rollout.launcher == "ray")  # see `_check_model`
    sets = _check_episodes(config, play, _players(config, play), phones=phones, rewards=rewards)
    check_packages(config.rollout)
    check_engine(config.rollout)
    config.validate_for_training()
    layout = _check_model(config, play, learns=True)
    return JobPlan(
        settings=config,
        play=play,
        layout=layout,
        algorithm=load_algorithm(config.algorithm),
        task_sets=sets,
        demonstrations=select_demonstrations(
            config.warm_start if warm_start_pending else None,
            play.tasks[""].train,
            config.model,
            config.eval,
        ),
    )


def plan_model_play(config: Config) -> PlayPlan:
    """Plan a job whose model only plays; a server's model is not contacted yet.

    Raises:
        ConfigError: the first thing that is missing or invalid, and what to do.
    """
    engine = engine_class(config.rollout).capabilities
    check_open_files(config.rollout)
    play = plan_play(config)
    phones = not (engine.needs_model and config.rollout.launcher == "ray")  # see `_check_model`
    _check_episodes(config, play, _players(config, play), phones=phones)
    check_packages(config.rollout)
    check_engine(config.rollout)
    if engine.needs_model:
        _check_model(config, play, learns=False)
        if is_on_hub(config.model):
            find_config(config.model)
    return play


def plan_scripted_play(config: Config, players: Sequence[str] = ()) -> PlayPlan:
    """Plan a job that is played without a model, by scripted players or a person.

    Raises:
        ConfigError: the first thing that is missing or invalid, and what to do.
    """
    play = plan_play(config)
    _check_episodes(config, play, players)
    return play


def _players(config: Config, play: PlayPlan) -> list[str]:
    """The scripted players of a job: its baselines, and that of its warm start."""
    warm = config.warm_start
    return [*baseline_players(play), *([] if warm is None else filter(None, [warm.player]))]


def _check_episodes(
    config: Config,
    play: PlayPlan,
    players: Sequence[str],
    *,
    phones: bool = True,
    rewards: bool = True,
) -> list[TaskSet]:
    """Check what any player needs: environments, players, rewards, seeds, tasks and phones."""
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
        load_algorithm(config.algorithm).attempts,
        steps=config.train.steps,
        demonstrations=config.warm_start.episodes if config.warm_start else 0,
    )
    env = play.tasks[""].train
    sets = task_sets(config.sampling, play.trained, config.mixture_weights())
    sampler = load_sampler(
        config.sampling, sets, config.rollout, run_seed=config.seed, folder=Path(config.run.dir)
    )
    if sampler.replays:
        check_replay(config.algorithm, config.sampling.name)
        if config.devices.mask and env.app is not None:
            raise ConfigError(
                f"sampling.name={config.sampling.name}: keeps screens as the model saw them, but "
                "devices.mask hides parts of what is recorded; leave one of them out"
            )
    if phones and env.app is not None:
        hosts = config.devices.hosts
        layout = plan_job(config.rollout, None, hosts) if hosts else None
        check_phones(config.devices, env, config.rollout.start_deadline_s, layout)
    return sets


def _check_model(config: Config, play: PlayPlan, *, learns: bool) -> Layout:
    """Check a model with its engines, and where they run; without the hub."""
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
    layout = plan_job(rollout, train, config.devices.hosts)
    each = engine.num_gpus(rollout.engine_kwargs)
    if unused := unused_gpus(layout, rollout, train, each):
        log.warning("%s", unused)
    if rollout.launcher == "ray":
        check_phones(config.devices, play.tasks[""].train, rollout.start_deadline_s, layout)
    placed = play.placed(layout)
    placed.source.validate()
    placed.transport.check()
    if learns and layout.num_nodes > 1 and placed.transport.transport_class().needs.one_node:
        raise ConfigError(
            f"train.weight_transfer={config.train.weight_transfer}: does not reach engines on other"
            f" nodes, and this job uses {layout.num_nodes}; set train.weight_transfer=file"
        )
    return layout


def check_learner(config: Config) -> None:
    """Check a job that only trains, without environment and engines.

    Raises:
        ConfigError: the first thing that is missing or invalid, and what to do.
    """
    models, launcher = extras.missing_for_models(config.rollout.launcher)
    if lacking := [*models, *launcher]:
        raise ConfigError(". ".join(lacking))
    config.validate_for_training()
    check_attention(config.model, config.rollout, learns=True)
    check_loggers(config.logging)
    check_model(config.model)
    if config.model.path != "tiny":
        find_config(config.model)  # a model of the hub exists
    check_model_settings(config.model, config.train, config.optim, config.rollout, learns=True)


def plan_inference(config: Config) -> PlayPlan:
    """Plan a job whose model only answers, without environment and learner.

    Raises:
        ConfigError: the first thing that is missing or invalid, and what to do.
    """
    check_packages(config.rollout)
    check_engine(config.rollout)
    engine = engine_class(config.rollout).capabilities
    if engine.needs_model:
        if engine.uses_attention:
            check_attention(config.model, config.rollout, learns=False)
        check_model(config.model)
        check_policy(config.model)
        if config.model.path != "tiny":
            find_config(config.model)  # a model of the hub exists
        plan_job(config.rollout, None)
    return plan_play(config)
