"""The part of a job that plays its episodes, with every environment resolved once."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agentrl.actions.players.noop_player import NOOP
from agentrl.cluster.placement import Layout
from agentrl.config import Config, EvalConfig, RewardConfig
from agentrl.errors import ConfigError
from agentrl.rollout.environments.resolved_env import ResolvedEnv, resolve_env
from agentrl.text.name_suggestions import known_names
from agentrl.types import Split
from agentrl.weight_sync.transport_choice import TransportChoice

_EVAL_KWARGS = "eval.kwargs"


@dataclass(slots=True, kw_only=True, frozen=True)
class PlayTask:
    """A training environment with its rewards and held-out episodes."""

    train: ResolvedEnv
    held_out: ResolvedEnv
    """The same environment with the arguments of `eval.kwargs`."""
    rewards: list[RewardConfig]
    eval: EvalConfig


@dataclass(slots=True, kw_only=True, frozen=True)
class RolloutPlan:
    """The part of a job that plays episodes: its environments and rewards, with the settings."""

    settings: Config
    """The job's configuration, from which actors make their own plans. Its environments and rewards
    are in `tasks`."""
    tasks: Mapping[str, PlayTask]
    """Tasks keyed by the environment's name in `mixture`; '' for the job's own."""
    rings: Mapping[str, PlayTask] = field(default_factory=dict)
    """Tasks of `eval.rings` by the ring's name, such as `levels`; only evaluations play them. A
    ring that changes nothing is left out, because its column would look like generalization. A job
    with a mixture has none, because a ring changes a single environment."""

    @property
    def ring_episodes(self) -> dict[str, int]:
        """The number of episodes of each ring, on the first held-out seeds.

        An evaluation of fewer episodes plays no more in a ring.
        """
        found = {}
        for name, ring in self.rings.items():
            assert ring.eval.rings is not None, "the ring is one of its settings"
            found[name] = min(ring.eval.rings.episodes, ring.eval.episodes)
        return found

    @property
    def playable(self) -> Mapping[str, PlayTask]:
        """All tasks that episodes can name. A job with rings has no mixture, so names differ."""
        return {**self.tasks, **self.rings}

    def env(self, split: Split, name: str) -> ResolvedEnv:
        """Return an environment or ring of the job in the given split."""
        task = self.playable[name]
        return task.held_out if split == "eval" else task.train

    def placed(self, layout: Layout) -> "RolloutPlan":
        """Return the plan with the layout's engines, ranks, transport and sleep."""
        rollout, train = layout.applied_to(self.settings.rollout, self.settings.train)
        choice = TransportChoice(rollout=rollout, train=train, lora=self.settings.model.lora)
        gpus = sum(node.gpus for node in layout.nodes)
        # Actors make their plans from these settings, so that none needs to ask for GPUs again.
        train = replace(train, weight_transfer=choice.transport(gpus))
        rollout = replace(rollout, sleep=choice.sleeps(gpus))
        return replace(self, settings=replace(self.settings, rollout=rollout, train=train))

    def only(self, name: str) -> "RolloutPlan":
        """Return the plan of a job with only one of the environments."""
        return replace(self, tasks={"": self.tasks[name]}, rings={})

    @property
    def transport(self) -> TransportChoice:
        """How the learner's weights reach the engines."""
        settings = self.settings
        return TransportChoice(
            rollout=settings.rollout, train=settings.train, lora=settings.model.lora
        )

    @property
    def trained(self) -> Mapping[str, PlayTask]:
        """Training tasks: those in `mixture`, or else the job's own."""
        mixture = {name: task for name, task in self.tasks.items() if name}
        return mixture or self.tasks

    def curriculum(self, step: int) -> dict[str, float]:
        """Return the limits of `env.horizon` and `env.start` in a step, if they are set.

        In a mixture, each is the largest over the environments that have it.
        """
        settings = [task.train.settings for task in self.trained.values()]
        turns = [one.training_turns(step) for one in settings if one.horizon is not None]
        starts = [one.start_turns(step) for one in settings if one.start is not None]
        limits = {"horizon": turns, "start_turns": starts}
        return {name: float(max(values)) for name, values in limits.items() if values}

    @property
    def env_ids(self) -> list[str]:
        """Ids of the training environments."""
        return sorted({task.train.id for task in self.trained.values()})


def plan_rollouts(config: Config) -> RolloutPlan:
    """Look up the environments of a job, and those of its evaluation's rings.

    Raises:
        ConfigError: an environment, its translator or a player does not exist, or an environment
            does not accept `devices.allow`.
    """
    tasks, allow = {}, config.devices.allow
    for name, job in {"": config, **config.environments()}.items():
        train = held_out = resolve_env(job.env).with_allowed_apps(allow)
        _check_start(train)
        if job.eval.kwargs:
            held_out = resolve_env(job.env, {_EVAL_KWARGS: job.eval.kwargs}).with_allowed_apps(
                allow
            )
        tasks[name] = PlayTask(train=train, held_out=held_out, rewards=job.rewards, eval=job.eval)
    rings = {}
    for name, kwargs in ({} if config.mixture else config.eval.ring_kwargs).items():
        overrides = {_EVAL_KWARGS: config.eval.kwargs, f"eval.rings.{name}": kwargs}
        held_out = resolve_env(config.env, overrides).with_allowed_apps(allow)
        if held_out.all_kwargs == tasks[""].held_out.all_kwargs:
            continue
        rings[name] = PlayTask(
            train=tasks[""].train, held_out=held_out, rewards=config.rewards, eval=config.eval
        )
    return RolloutPlan(settings=config, tasks=tasks, rings=rings)


def _check_start(env: ResolvedEnv) -> None:
    start = env.settings.start
    if start is not None and start.player not in env.players:
        raise ConfigError(
            f"env.start.player={start.player}: {env.id} has no such player"
            f"{known_names(start.player, sorted(env.players), label='It has')}"
        )


def baseline_players(plan: RolloutPlan) -> list[str]:
    """Return the scripted players to compare the model with; every environment has them."""
    if (named := plan.tasks[""].eval.baselines) is not None:
        return named
    own = [task.train.players for task in plan.trained.values()]
    return [name for name in (NOOP, "random", "expert") if all(name in one for one in own)]
