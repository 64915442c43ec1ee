"""The whole configuration of a job, with the sections for runs, checkpoints and loggers."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

from agentrl.config.algorithm_settings import AlgorithmConfig
from agentrl.config.bounds import (
    NonNegativeInt,
    NonNegativeSeconds,
    PositiveFloat,
    PositiveInt,
    check_bounds,
)
from agentrl.config.defaults_by_name import algorithm_defaults, sampler_defaults
from agentrl.config.device_settings import DevicesConfig
from agentrl.config.env_settings import EnvConfig
from agentrl.config.evaluation_settings import EvalConfig
from agentrl.config.finetuning_settings import DPOConfig, RewardModelConfig, SFTConfig
from agentrl.config.model_settings import ModelConfig
from agentrl.config.reward_settings import RewardAuditConfig, RewardConfig
from agentrl.config.rollout_settings import RolloutConfig
from agentrl.config.task_settings import (
    MixtureConfig,
    SamplerConfig,
    check_mixture,
)
from agentrl.config.training_settings import OptimConfig, TrainConfig, WarmStartConfig
from agentrl.errors import ConfigError, boundary
from agentrl.extension_points import ALGORITHM, LOGGER, SAMPLER
from agentrl.files import path_of
from agentrl.text.formatting import quoted


@dataclass(slots=True, kw_only=True)
class RunConfig:
    """The run's folder, recorded frames, restarts and shutdown."""

    dir: str = "runs"
    """Folder that contains all runs."""
    name: str | None = None
    """Folder below `dir`; None derives it from the time and the configuration's name, or, for a
    generic name such as `config.yaml`, the name of its folder or environment."""
    frames: Literal["device", "model", "none"] = "device"
    """Resolution of recorded frames: that of the device or of the model's input; `none` records no
    frames."""
    keep_gb: PositiveFloat | None = None
    """Disk space for recorded episodes and their frames, in GB (10^9 bytes). Above this limit, the
    oldest training episodes are removed, except for their scores; None keeps all episodes. See
    docs/replay.md."""
    search_path: list[str] = field(default_factory=list)
    """Folders to search for modules; empty means the configuration's own folder."""
    restarts: NonNegativeInt = 3
    """Maximum number of times that a job automatically resumes from its last checkpoint after a
    learner rank died or stopped responding; 0 for never. The job stops if this happens again after
    the same step."""
    grace_s: NonNegativeSeconds = 60.0
    """Seconds that the update in progress may take to finish after Ctrl-C, SIGTERM or SIGHUP. Then
    a checkpoint of the last finished step is saved, and the job stops."""
    stop_signal: Literal["SIGUSR1", "SIGUSR2", "SIGHUP"] | None = None
    """An additional signal that is handled like SIGTERM, such as the one set by Slurm's
    `--signal`."""

    def validate(self) -> None:
        """Raise `ConfigError` at the first invalid value."""
        if self.name is not None and not _is_folder_name(self.name):
            raise ConfigError(
                f"run.name={quoted(self.name)}: must be a plain folder name without slashes, "
                "control characters, or spaces at either end, and at most 255 bytes long"
            )
        path_of(self.dir, "run.dir")


def _is_folder_name(name: str) -> bool:
    is_plain = Path(name).name == name and name not in ("", "..")
    return is_plain and name.isprintable() and name.strip() == name and len(name.encode()) <= 255


@dataclass(slots=True, kw_only=True)
class CheckpointConfig:
    """When checkpoints are saved and how many are kept."""

    every: PositiveInt = 10
    """Steps between checkpoints."""
    keep: PositiveInt = 2
    """Number of most recent checkpoints to keep, in addition to the best one."""
    asynchronous: bool = True
    """Continue training while a checkpoint is written: each rank first copies its state to CPU
    memory."""


@dataclass(slots=True, kw_only=True, frozen=True)
class LoggerConfig:
    """A destination for metrics."""

    name: str
    """A built-in or installed name, `module:Class` or `path/file.py:Class`."""
    kwargs: Mapping[str, Any]
    """Keyword arguments of the logger's class, in addition to the run's folder and the planned
    work."""
    optional: bool
    """Whether to skip the logger if its library is not installed."""


def parse_loggers(entries: Sequence[Any]) -> list[LoggerConfig]:
    """Parse `logging`, dropping duplicate entries.

    Raises:
        ConfigError: an entry is neither a name nor `{name: ..., kwargs: {...}}`.
    """
    found: list[LoggerConfig] = []
    for entry in entries:
        given: Any = {"name": entry} if isinstance(entry, str) else entry
        is_logger = (
            isinstance(given, Mapping)
            and given.keys() <= {"name", "kwargs"}
            and isinstance(given.get("name"), str)
            and isinstance(given.get("kwargs") or {}, Mapping)
        )
        if not is_logger:
            raise ConfigError(
                f"logging: {entry!r} must be a name, or {{name: ..., kwargs: {{...}}}}"
            )
        name, kwargs = given["name"], dict(given.get("kwargs") or {})
        bare = name.removesuffix("?")
        if not any(one.name == bare and one.kwargs == kwargs for one in found):
            found.append(LoggerConfig(name=bare, kwargs=kwargs, optional=name != bare))
    return found


@dataclass(slots=True, kw_only=True)
class Config:
    """The whole configuration of a job."""

    seed: NonNegativeInt = 0
    """Random seed of the whole job."""
    run: RunConfig = field(default_factory=RunConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    env: EnvConfig = field(default_factory=EnvConfig)
    mixture: list[MixtureConfig] = field(default_factory=list)
    sampling: SamplerConfig = field(default_factory=sampler_defaults)
    devices: DevicesConfig = field(default_factory=DevicesConfig)
    rewards: list[RewardConfig] = field(default_factory=list)
    reward_audit: RewardAuditConfig | None = None
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    warm_start: WarmStartConfig | None = None
    sft: SFTConfig | None = None
    """Used by `agentrl sft` only."""
    dpo: DPOConfig | None = None
    """Used by `agentrl dpo` only."""
    reward_model: RewardModelConfig | None = None
    """Used by `agentrl train-reward-model` only."""
    algorithm: AlgorithmConfig = field(default_factory=algorithm_defaults)
    optim: OptimConfig = field(default_factory=OptimConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    logging: list[Any] = field(default_factory=lambda: ["console", "file"])
    """Where metrics are logged: console, file, tensorboard, wandb, swanlab, mlflow, or your own
    class (`my_logger.py:MyLogger`); a logger with arguments is written `{name: ..., kwargs:
    {...}}`. All except the first two require the extra of the same name; with a question mark
    (`"tensorboard?"`, quoted), a logger is skipped if it is not installed."""

    def validate(self) -> None:
        """Check every section, and the combinations of settings across sections.

        Raises:
            ConfigError: a value or combination is invalid.
        """
        check_bounds(self)
        self.rollout.validate()
        self.env.validate()
        for point, own in ((SAMPLER, self.sampling), (ALGORITHM, self.algorithm)):
            with boundary(ConfigError, f"{point.setting}={own.name}: validate() fails"):
                own.validate()
        check_mixture(self.mixture)
        for job in self.environments().values():
            job.env.validate()
        for section in (
            self.devices, self.train, self.model, self.optim, self.eval,
            self.run, self.sft, self.dpo, self.reward_model, self.reward_audit,
        ):  # fmt: skip
            if section is not None:
                section.validate()
        if self.warm_start is not None:
            self.warm_start.validate()
            self.optim.check_moments("warm_start.betas", self.warm_start.betas)
        for logger in parse_loggers(self.logging):
            LOGGER.check_name(logger.name)
        lease_s, command_s = self.devices.lease_s, self.devices.deadlines.command_s
        if self.rollout.actors not in (1, "auto") and lease_s <= command_s:
            raise ConfigError(
                f"devices.lease_s={lease_s}: must be above "
                f"devices.deadlines.command_s={command_s}, because renewing a phone's lease may "
                "take that long"
            )
        if self.train.master_dtype == "bfloat16" != self.model.dtype:
            raise ConfigError(
                "train.master_dtype=bfloat16 requires model.dtype=bfloat16, because the model "
                "computes with the master weights"
            )
        if self.train.compile and self.model.lora.rank and self.model.lora.base == "nf4":
            raise ConfigError(
                "train.compile=true: layers with 4-bit weights cannot be compiled; set "
                "train.compile=false or model.lora.base=float"
            )
        attentions = ("auto", "flex", "sdpa")
        if self.train.sequence_parallel > 1 and self.model.attention not in attentions:
            raise ConfigError(
                f"train.sequence_parallel={self.train.sequence_parallel}: requires "
                f"model.attention=auto, flex or sdpa, not {self.model.attention}"
            )
        for key in ("tensor_parallel", "expert_parallel"):
            if getattr(self.train, key) > 1 and self.model.lora.base == "nf4":
                raise ConfigError(
                    f"train.{key}={getattr(self.train, key)}: cannot be combined with "
                    "model.lora.base=nf4, because 4-bit weights cannot be sharded; set "
                    f"train.{key}=1"
                )

    def validate_for_training(self) -> None:
        """Check settings that matter only for training, after `validate`.

        Raises:
            ConfigError: nothing can be learned with these settings, or they contradict each other.
        """
        algorithm, rollout = self.algorithm, self.rollout
        requires = ALGORITHM.resolve(algorithm.name)(algorithm).requires
        if rollout.group_size == 1 and requires.siblings and self.train.steps > 0:
            raise ConfigError(
                f"rollout.group_size=1: algorithm.name={algorithm.name} compares the episodes of a "
                "group, so it learns nothing from a single one; use at least 2, typically 8"
            )
        if rollout.top_p < 1:
            raise ConfigError(
                f"rollout.top_p={rollout.top_p}: training needs the probabilities of all tokens; "
                "set rollout.top_p=1. Other values are for agentrl eval, play, infer and chat."
            )
        if requires.greedy and rollout.seed_per == "episode":
            raise ConfigError(
                f"algorithm.name={algorithm.name}: requires rollout.seed_per=group, because each "
                "episode is compared with a greedy episode on the group's seed"
            )
        ranks = self.train.ranks_multiple if self.train.ranks == "auto" else self.train.ranks
        if rollout.launcher == "local" and ranks != 1:
            raise ConfigError(
                f"train.ranks={ranks} requires rollout.launcher=ray, because the local launcher "
                "trains in a single process"
            )
        for job in self.environments().values():
            job.env.validate_for_training()
        self.algorithm.validate_for_training()
        self.model.lora.validate_for_training()

    @property
    def only_learns_from(self) -> str | None:
        """The section of a job that only trains on a data set; None for other jobs."""
        sections = {"sft": self.sft, "dpo": self.dpo, "reward_model": self.reward_model}
        given = next((name for name, section in sections.items() if section is not None), None)
        return given if self.env == EnvConfig() and not self.mixture else None

    def to_dict(self) -> dict[str, Any]:
        """Return all settings as plain values; `from_dict` is the inverse."""
        return asdict(self)

    def digest(self) -> str:
        """Hash all sections except `run` to twelve hexadecimal digits."""
        tree = self.to_dict()
        del tree["run"]
        text = json.dumps(tree, sort_keys=True, default=str)
        return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()

    def environments(self) -> dict[str, Self]:
        """Map each environment to train on, by name, to a job that trains on it alone.

        Without a mixture, this is the job itself, under the name "".

        Raises:
            ConfigError: an environment of the mixture has an unknown key or a wrong value.
        """
        if not self.mixture:
            return {"": self}
        found = {}
        for index, one in enumerate(self.mixture):
            env = one.environment(self.env, f"mixture[{index}]")
            is_other = one.has_other_id(self.env)
            level = one.env.get("kwargs", {})  # evaluated on this level as well
            shared = {k: v for k, v in self.eval.kwargs.items() if k not in level and not is_other}
            own = ([] if is_other else self.rewards) if one.rewards is None else one.rewards
            evaluation = replace(self.eval, kwargs={**shared, **one.eval_kwargs})
            found[one.name] = replace(self, env=env, rewards=own, eval=evaluation, mixture=[])
        return found

    def mixture_weights(self) -> dict[str, float]:
        """Map each of `environments` to its share of the groups; the shares sum to 1."""
        weights = {one.name: one.weight for one in self.mixture} or {"": 1.0}
        return {name: weight / sum(weights.values()) for name, weight in weights.items()}

    def without_learner(self) -> Self:
        """Return the same job without a learner, so engines keep their initial weights."""
        return replace(
            self,
            train=replace(self.train, weight_transfer="file"),
            rollout=replace(self.rollout, sleep=False),
            model=replace(self.model, lora=replace(self.model.lora, serve="merged")),
        )
