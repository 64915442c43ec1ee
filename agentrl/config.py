"""One tree of settings for a whole job; the only place that knows OmegaConf."""

import dataclasses
import difflib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from agentrl.errors import ConfigError

_PACKAGED = Path(__file__).resolve().parent / "configs"


@dataclass(slots=True, kw_only=True)
class RunConfig:
    """Where a run lives."""

    dir: str = "runs"
    name: str | None = None
    """Folder below `dir`; None takes the configuration's name and the time."""
    frames: Literal["device", "model", "none"] = "device"
    """Recorded pictures: at the device's own resolution, as the model saw them, or none."""
    search_path: list[str] = field(default_factory=list)
    """Folders where modules are looked for; empty takes the configuration's own folder."""


@dataclass(slots=True, kw_only=True)
class ModelConfig:
    """The policy's weights."""

    path: str = "tiny"
    """`tiny` (built from the seed), a local folder, or a Hugging Face id."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    attention: Literal["auto", "flash_attention_2", "sdpa", "eager"] = "auto"
    """`auto` takes flash-attn where it is installed and a GPU is there, else SDPA."""
    freeze_vision: bool = False
    image_size: list[int] | None = None
    """[width, height] that every picture is scaled to; None keeps the picture's own shape and
    scales it below `max_pixels`."""
    max_pixels: int = 602112
    tiny: dict[str, Any] = field(default_factory=dict)
    """Sizes of the tiny model, where they differ from its defaults."""


@dataclass(slots=True, kw_only=True)
class EnvConfig:
    """What is played."""

    id: str = "NumberGame-v0"
    """`Name-v0`, `module:Name-v0` or `path/file.py:Name-v0`."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    translator: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the environment's translator."""
    max_turns: int = 40
    history: str = "concat"
    """`concat` (the whole conversation) or `window:k` (the last k screens)."""
    prompt: str | None = None
    """A Jinja2 template file for the instructions; None takes the translator's own words."""


@dataclass(slots=True, kw_only=True)
class DeadlinesConfig:
    """Seconds that a phone may take."""

    connect_s: float = 10.0
    command_s: float = 5.0
    frame_s: float = 5.0
    settle_s: float = 3.0
    launch_s: float = 15.0


@dataclass(slots=True, kw_only=True)
class DevicesConfig:
    """The phones; not used by environments without one."""

    source: Any = "virtual:8"
    """`virtual:N`, or a list of serials."""
    driver: Literal["adbutils"] = "adbutils"
    size: list[int] = field(default_factory=lambda: [720, 1280])
    """[width, height] of virtual phones."""
    effect_delay_ms: list[int] = field(default_factory=lambda: [50, 300])
    """How late virtual phones show the effect of a touch."""
    deadlines: DeadlinesConfig = field(default_factory=DeadlinesConfig)


@dataclass(slots=True, kw_only=True)
class RewardConfig:
    """One reward function and its weight."""

    function: str = "???"
    """`module:name` or `path/file.py:name`."""
    weight: float = 1.0
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class RolloutConfig:
    """How episodes are played."""

    engine: Literal["vllm", "hf"] = "vllm"
    launcher: Literal["ray", "local"] = "ray"
    actors: int = 1
    groups: int = 4
    """Groups per training step; the members of a group share the seed."""
    group_size: int = 8
    concurrency: int = 32
    """Episodes in flight, at most; a phone plays one of them."""
    temperature: float = 1.0
    max_new_tokens: int = 64
    max_context: int = 4096
    """Tokens of prompt and reply; an episode that would grow beyond is truncated."""
    deadline_s: float = 600.0
    """For one episode, from reset to its last turn."""
    reward_deadline_s: float = 60.0
    """For the reward functions of one episode."""
    max_refills: int = 8
    """Void episodes that are played again, per step."""
    engine_kwargs: dict[str, Any] = field(default_factory=dict)
    """Passed on to the engine, such as vLLM's `gpu_memory_utilization`."""


@dataclass(slots=True, kw_only=True)
class WarmStartConfig:
    """Behaviour cloning on a scripted player, before reinforcement."""

    player: str = "mediocre"
    episodes: int = 300
    """Games that the player plays; their seeds are used for nothing else."""
    steps: int = 1200
    batch: int = 32
    """Turns per step; whole conversations count all of theirs."""
    lr: float = 1e-3
    weight_decay: float = 0.0
    betas: list[float] = field(default_factory=lambda: [0.9, 0.95])
    lr_warmup_steps: int = 50
    lr_final_ratio: float = 0.1
    """The cosine schedule ends at this share of `lr`."""
    grad_clip: float = 1.0
    relabel: bool = True
    """Ask the player anew at each visit of a screen, so that its mistakes are not memorised."""
    weights: dict[str, float] = field(default_factory=dict)
    """How often turns are visited by the `phase` in their info; 1 where none is given."""
    cache: str | None = "~/.cache/agentrl"
    """Keeps the cloned model; None trains it each time."""


@dataclass(slots=True, kw_only=True)
class AlgorithmConfig:
    """What the policy learns from its episodes."""

    name: str = "grpo"
    compare: Literal["auto", "state", "episode"] = "auto"
    """Siblings are compared at the same state by what came after it, or by whole episodes;
    `auto` takes states where the environment names them."""
    discount: float = 1.0
    """Of later rewards, in turns, where states are compared; 0 counts the turn's own alone."""
    clip_low: float = 0.2
    clip_high: float = 0.28
    clip_dual: float = 3.0
    aggregate: Literal["token_mean", "sequence_mean"] = "token_mean"
    kl_coefficient: float = 0.0
    """Of the k3 divergence from the model at the start of reinforcement; 0 keeps no reference."""
    epochs: int = 1
    """Passes over the samples of a step."""
    minibatch: int | None = None
    """Samples with an advantage per optimizer step; None takes one step per pass."""


@dataclass(slots=True, kw_only=True)
class OptimConfig:
    """AdamW."""

    lr: float = 1e-6
    weight_decay: float = 0.0
    betas: list[float] = field(default_factory=lambda: [0.9, 0.99])
    grad_clip: float = 1.0
    lr_warmup_steps: int = 0
    """Optimizer steps of a linear rise at the beginning."""
    lr_final_ratio: float = 1.0
    """The rate falls linearly, with the training steps, to this share at the last one."""


@dataclass(slots=True, kw_only=True)
class TrainConfig:
    """The learner."""

    steps: int = 40
    ranks: int = 1
    micro_batch_tokens: int = 16384
    """Padded tokens of one forward pass, at most."""
    gradient_checkpointing: bool = False


@dataclass(slots=True, kw_only=True)
class EvalConfig:
    """Games on seeds that are never trained on."""

    every: int = 10
    """Steps between evaluations during training; 0 for none."""
    episodes: int = 100
    """Before and after training, and each of sampled and greedy."""
    episodes_during: int = 20
    seeds: int = 1_000_000
    """The first held-out seed."""
    baselines: list[str] = field(default_factory=lambda: ["random", "expert"])


@dataclass(slots=True, kw_only=True)
class CheckpointConfig:
    """What is kept on disk."""

    every: int = 10
    keep: int = 2


@dataclass(slots=True, kw_only=True)
class Config:
    """The whole tree."""

    seed: int = 0
    run: RunConfig = field(default_factory=RunConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    env: EnvConfig = field(default_factory=EnvConfig)
    devices: DevicesConfig = field(default_factory=DevicesConfig)
    rewards: list[RewardConfig] = field(default_factory=list)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    warm_start: WarmStartConfig | None = None
    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    logging: list[str] = field(default_factory=lambda: ["console", "file"])
    """Where numbers go: console, file, tensorboard, wandb. A name must be installed; with a
    question mark (`"tensorboard?"`, quoted) it is used only where it is."""


def find(name: str) -> Path:
    """The file of a configuration, given as a path or as the name of a packaged one.

    Raises:
        ConfigError: there is none.
    """
    path = Path(name).expanduser()
    if path.is_file():
        return path
    packaged = _PACKAGED / f"{Path(name).stem}.yaml"
    if path.suffix in ("", ".yaml") and len(path.parts) == 1 and packaged.is_file():
        return packaged
    known = sorted(p.stem for p in _PACKAGED.glob("*.yaml"))
    close = difflib.get_close_matches(path.stem, known, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    raise ConfigError(f"{name}: no such configuration{hint}. Packaged: {', '.join(known)}")


def load(source: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Read a YAML file or a packaged configuration and apply `key=value` overrides.

    Raises:
        ConfigError: an unknown key, a wrong type or value, or a file that is no YAML.
    """
    path = find(str(source))
    config = _merge(path, overrides)
    if not config.run.search_path and path.parent.resolve() != _PACKAGED.resolve():
        config.run.search_path = [str(path.parent.absolute())]
    _settle(config)
    return config


def resolve(source: Config | str | Path, overrides: Sequence[str] = ()) -> Config:
    """A configuration as it is, or loaded by its file or packaged name.

    Raises:
        ConfigError: as `load`; or overrides of a configuration that is loaded already.
    """
    if not isinstance(source, Config):
        return load(source, overrides)
    if overrides:
        raise ConfigError("overrides are for files; set the fields of a Config instead")
    _settle(source)
    return source


def _merge(path: Path, overrides: Sequence[str]) -> Config:
    try:
        tree = OmegaConf.load(path)
    except (OmegaConfBaseException, YAMLError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{path}: cannot be read: {_first_line(error)}") from error
    if not isinstance(tree, DictConfig):
        raise ConfigError(f"{path}: must hold keys and values, not {type(tree).__name__}")
    for override in overrides:
        key, equals, _ = override.partition("=")
        if not equals or not key:
            raise ConfigError(f"{override!r}: an override reads key=value, such as train.steps=5")
    try:
        merged = OmegaConf.merge(
            OmegaConf.structured(Config), tree, OmegaConf.from_dotlist(list(overrides))
        )
        return cast(Config, OmegaConf.to_object(merged))
    except (OmegaConfBaseException, YAMLError) as error:
        raise ConfigError(f"{path}: {_first_line(error)}") from error


def _settle(config: Config) -> None:
    """Check the values, and let the modules that they name be found."""
    validate(config)
    sys.path.extend(p for p in config.run.search_path if p not in sys.path)


def to_yaml(config: Config) -> str:
    """The whole tree as YAML."""
    return OmegaConf.to_yaml(OmegaConf.structured(config))


def to_dict(config: Config) -> dict[str, Any]:
    """The whole tree as plain values."""
    return dataclasses.asdict(config)


def from_dict(tree: dict[str, Any]) -> Config:
    """The inverse of `to_dict`.

    Raises:
        ConfigError: as `load`.
    """
    try:
        merged = OmegaConf.merge(OmegaConf.structured(Config), OmegaConf.create(tree))
        config = cast(Config, OmegaConf.to_object(merged))
    except OmegaConfBaseException as error:
        raise ConfigError(_first_line(error)) from error
    _settle(config)
    return config


def _first_line(error: Exception) -> str:
    key = getattr(error, "full_key", None)
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return f"{key}: {text}" if key else text


def parse_history(history: str) -> int | None:
    """How many screens the prompt shows: None for the whole conversation.

    Raises:
        ConfigError: neither `concat` nor `window:k`.
    """
    if history == "concat":
        return None
    kind, _, count = history.replace(" ", ":", 1).partition(":")
    if kind == "window" and count.strip().isdigit() and int(count) >= 1:
        return int(count)
    raise ConfigError(f"env.history={history!r}: must be 'concat' or 'window:k' with k >= 1")


def _positive(config: Config) -> list[tuple[str, float]]:
    rollout, train, evaluation = config.rollout, config.train, config.eval
    return [
        ("rollout.groups", rollout.groups),
        ("rollout.group_size", rollout.group_size),
        ("rollout.concurrency", rollout.concurrency),
        ("rollout.actors", rollout.actors),
        ("rollout.max_new_tokens", rollout.max_new_tokens),
        ("rollout.deadline_s", rollout.deadline_s),
        ("env.max_turns", config.env.max_turns),
        ("train.ranks", train.ranks),
        ("train.micro_batch_tokens", train.micro_batch_tokens),
        ("algorithm.epochs", config.algorithm.epochs),
        ("optim.lr", config.optim.lr),
        ("eval.episodes", evaluation.episodes),
        ("eval.episodes_during", evaluation.episodes_during),
        ("checkpoint.every", config.checkpoint.every),
        ("checkpoint.keep", config.checkpoint.keep),
        ("rollout.max_context", rollout.max_context),
        ("rollout.reward_deadline_s", rollout.reward_deadline_s),
        *((f"devices.deadlines.{k}", v) for k, v in _plain(config.devices.deadlines)),
        *((f"warm_start.{k}", v) for k, v in _plain(config.warm_start, "episodes steps batch lr")),
    ]


def _plain(settings: Any, names: str = "") -> list[tuple[str, float]]:
    """Name and value of some numbers; none of settings that are not there."""
    if settings is None:
        return []
    chosen = names.split() or [field.name for field in dataclasses.fields(settings)]
    return [(name, getattr(settings, name)) for name in chosen]


def _not_negative(config: Config) -> list[tuple[str, float]]:
    return [
        ("rollout.max_refills", config.rollout.max_refills),
        ("train.steps", config.train.steps),
        ("eval.every", config.eval.every),
        ("algorithm.kl_coefficient", config.algorithm.kl_coefficient),
    ]


def _pairs(config: Config) -> list[tuple[str, list[Any] | None, str]]:
    warm = config.warm_start
    return [
        ("model.image_size", config.model.image_size, "[width, height] in pixels"),
        ("devices.size", config.devices.size, "[width, height] in pixels"),
        ("optim.betas", config.optim.betas, "two decays"),
        ("warm_start.betas", warm.betas if warm else None, "two decays"),
    ]


def validate(config: Config) -> None:
    """Check what types alone do not.

    Raises:
        ConfigError: the first value that makes no sense.
    """
    for key, value in _positive(config):
        if not value > 0:
            raise ConfigError(f"{key}={value}: must be above 0")
    if config.algorithm.minibatch is not None and config.algorithm.minibatch < 1:
        raise ConfigError(f"algorithm.minibatch={config.algorithm.minibatch}: must be above 0")
    if config.rollout.temperature <= 0:
        raise ConfigError(
            f"rollout.temperature={config.rollout.temperature}: must be above 0; "
            "greedy answers teach nothing (evaluation plays greedily by itself)"
        )
    for key, value in _not_negative(config):
        if value < 0:
            raise ConfigError(f"{key}={value}: must not be below 0")
    for key, pair, meaning in _pairs(config):
        if pair is not None and (len(pair) != 2 or min(pair) <= 0):
            raise ConfigError(f"{key}={pair}: must be {meaning}, both above 0")
    delay = config.devices.effect_delay_ms
    if len(delay) != 2 or not 0 <= delay[0] <= delay[1]:
        raise ConfigError(f"devices.effect_delay_ms={delay}: must be [least, most], both >= 0")
    if isinstance(config.devices.source, ListConfig | tuple):
        config.devices.source = list(config.devices.source)
    parse_history(config.env.history)
