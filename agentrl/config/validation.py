"""Validation of settings beyond their types."""

import dataclasses
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agentrl.config.algorithm_settings import PRESETS, settings_of
from agentrl.config.sections import (
    Config,
    DevicesConfig,
    EndpointConfig,
    RecordedFilterConfig,
    WarmStartConfig,
)
from agentrl.errors import ConfigError
from agentrl.text import did_you_mean


@dataclasses.dataclass(slots=True, kw_only=True, frozen=True)
class History:
    """The part of the conversation that a prompt contains."""

    turns: int | None = None
    """Number of most recent screens; None for all."""
    carries_memory: bool = False
    """Whether the prompt includes what the model wrote to its memory."""


_MOST_AT_ONCE = 100_000
"""Episodes of a step, in flight, or of an evaluation; anything above is a typo."""
_MOST_TOKENS = 10_000_000
_MOST_COLUMNS = 10_000
"""Highest rank of an adapter."""
_COLDEST, _HOTTEST = 0.01, 100
_LONGEST_S = 1_000_000
"""Eleven days; socket timers overflow after 24."""
_PICTURE_SIDE = (1, 16_384)
_SCREEN_SIDE = (64, 4096)
_PACKAGE = re.compile(r"[A-Za-z]\w*(\.[A-Za-z]\w*)+", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_HEADER = re.compile(r"[A-Za-z0-9-]+")
_SECRET = ("authorization", "proxy-authorization", "api-key", "x-api-key", "cookie")
"""Headers that carry credentials."""
_SAID_ELSEWHERE = {
    "model": "rollout.endpoint.model",
    "temperature": "rollout.temperature",
    "max_tokens": "rollout.max_new_tokens",
    "messages": None,
    "stream": None,
    "n": None,
}
"""Request fields and the setting that controls each; None if a field is fixed."""


def parse_history(history: str) -> History:
    """Parse `env.history`.

    Raises:
        ConfigError: neither `concat`, `window:k` nor `compact:k`.
    """
    if history == "concat":
        return History()
    found = re.fullmatch(r"(window|compact)(?:[: ]([0-9]{1,6}))?", history.strip())
    if found and (found[2] or found[1] == "compact") and int(found[2] or 1) >= 1:
        return History(turns=int(found[2] or 1), carries_memory=found[1] == "compact")
    raise ConfigError(
        f"env.history={history!r}: must be 'concat', 'window:k' or 'compact:k' with k >= 1; "
        "'compact' is 'compact:1'"
    )


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
        ("devices.quarantine_after", config.devices.quarantine_after),
        ("devices.quarantine_s", config.devices.quarantine_s),
        ("devices.lease_s", config.devices.lease_s),
        ("train.ranks", train.ranks),
        ("train.sequence_parallel", train.sequence_parallel),
        ("train.lag", train.lag),
        ("train.micro_batch_tokens", train.micro_batch_tokens),
        *_of_algorithm(config, _POSITIVE),
        ("model.max_pixels", config.model.max_pixels),
        ("model.lora.alpha", config.model.lora.alpha),
        ("optim.lr", config.optim.lr),
        ("optim.grad_clip", config.optim.grad_clip),
        ("eval.episodes", evaluation.episodes),
        ("eval.episodes_during", evaluation.episodes_during),
        ("checkpoint.every", config.checkpoint.every),
        ("checkpoint.keep", config.checkpoint.keep),
        ("rollout.max_context", rollout.max_context),
        ("rollout.reward_deadline_s", rollout.reward_deadline_s),
        ("rollout.start_deadline_s", rollout.start_deadline_s),
        ("train.deadline_s", train.deadline_s),
        *((f"devices.deadlines.{k}", v) for k, v in _plain(config.devices.deadlines)),
        *_of_warm_start(config, "episodes steps batch lr grad_clip"),
    ]


_POSITIVE = (
    "epochs", "tau_positive", "tau_negative", "kl_horizon", "critic_lr", "prime_lr", "prime_beta",
    "importance_high",
)  # fmt: skip
_SHARES = ("discount", "token_discount", "gae_lambda", "turn_gae_lambda", "overlong_buffer")


def _of_algorithm(config: Config, names: Sequence[str]) -> list[tuple[str, float]]:
    return [(f"algorithm.{name}", getattr(config.algorithm, name)) for name in names]


def _of_warm_start(config: Config, names: str) -> list[tuple[str, float]]:
    return [(f"warm_start.{name}", value) for name, value in _plain(config.warm_start, names)]


def _plain(settings: Any, names: str = "") -> list[tuple[str, float]]:
    """Name and value of some fields; empty if `settings` is None."""
    if settings is None:
        return []
    chosen = names.split() or [field.name for field in dataclasses.fields(settings)]
    return [(name, getattr(settings, name)) for name in chosen]


def _not_negative(config: Config) -> list[tuple[str, float]]:
    algorithm, optim, warm = config.algorithm, config.optim, config.warm_start
    return [
        ("env.processes", config.env.processes),
        ("model.lora.rank", config.model.lora.rank),
        ("devices.patience_s", config.devices.patience_s),
        ("rollout.max_refills", config.rollout.max_refills),
        ("train.steps", config.train.steps),
        ("eval.every", config.eval.every),
        *(
            (f"algorithm.{name}", value)
            for name, value in _plain(algorithm)
            if isinstance(value, int | float) and name not in (*_POSITIVE, "max_staleness")
        ),
        ("optim.weight_decay", optim.weight_decay),
        ("optim.lr_warmup_steps", optim.lr_warmup_steps),
        ("optim.lr_final_ratio", optim.lr_final_ratio),
        *_of_warm_start(config, "weight_decay lr_warmup_steps lr_final_ratio"),
        *(
            (f"warm_start.phase_weights.{k}", v)
            for k, v in (warm.phase_weights if warm else {}).items()
        ),
    ]


def _at_most(config: Config) -> list[tuple[str, float, float]]:
    rollout = config.rollout
    return [
        *((key, value, 1) for key, value in _of_algorithm(config, _SHARES)),
        ("optim.lr_final_ratio", config.optim.lr_final_ratio, 1),
        *((key, value, 1) for key, value in _of_warm_start(config, "lr_final_ratio")),
        ("rollout.temperature", rollout.temperature, _HOTTEST),
        ("rollout.max_context", rollout.max_context, _MOST_TOKENS),
        ("rollout.max_new_tokens", rollout.max_new_tokens, rollout.max_context - 1),
        ("model.lora.rank", config.model.lora.rank, _MOST_COLUMNS),
        ("rollout.concurrency", rollout.concurrency, _MOST_AT_ONCE),
        ("rollout.groups * group_size", rollout.groups * rollout.group_size, _MOST_AT_ONCE),
        ("eval.episodes", config.eval.episodes, _MOST_AT_ONCE),
        ("eval.episodes_during", config.eval.episodes_during, _MOST_AT_ONCE),
    ]


def validate(config: Config) -> None:
    """Check values and their combinations.

    Raises:
        ConfigError: the first invalid value.
    """
    for key, value in _numbers(dataclasses.asdict(config)):
        if not math.isfinite(value):
            raise ConfigError(f"{key}={value}: must be a finite number")
        if key.endswith("_s") and value > _LONGEST_S:
            raise ConfigError(f"{key}={value}: must be {_LONGEST_S} seconds at most")
    for key, value in _positive(config):
        if not value > 0:
            raise ConfigError(f"{key}={value}: must be above 0")
    if config.algorithm.minibatch is not None and config.algorithm.minibatch < 1:
        raise ConfigError(f"algorithm.minibatch={config.algorithm.minibatch}: must be above 0")
    if config.run.keep_gb is not None and not config.run.keep_gb > 0:
        raise ConfigError(f"run.keep_gb={config.run.keep_gb}: must be above 0, or null to keep all")
    temperature = config.rollout.temperature
    if temperature <= 0:
        raise ConfigError(
            f"rollout.temperature={temperature}: must be above 0; "
            "greedy sampling explores nothing (evaluation also plays greedily)"
        )
    if temperature < _COLDEST:
        raise ConfigError(
            f"rollout.temperature={temperature}: must be at least {_COLDEST}; below that vLLM "
            "samples from a distribution other than the learner's"
        )
    for key, value in _not_negative(config):
        if value < 0:
            raise ConfigError(f"{key}={value}: must not be below 0")
    for key, value, most in _at_most(config):
        if value > most:
            raise ConfigError(f"{key}={value}: must be {most} at most")
    _check_pairs(config)
    _check_sharing(config)
    _check_source(config.devices.source)
    _check_app(config.devices)
    _check_privacy(config)
    _check_teachers(config.warm_start)
    _check_endpoint(config.rollout.endpoint)
    name = config.run.name
    if name is not None and (Path(name).name != name or name in ("", "..")):
        raise ConfigError(f"run.name={name!r}: must be a plain folder name")
    parse_history(config.env.history)
    if (name := config.algorithm.name) not in PRESETS:
        raise ConfigError(
            f"algorithm.name={name!r}: no such algorithm{did_you_mean(name, PRESETS)}. "
            f"Known: {', '.join(PRESETS)}"
        )


def check_algorithm(config: Config) -> None:
    """Check what matters only to training.

    Raises:
        ConfigError: settings from which nothing can be learned, or that contradict each other.
    """
    settings, rollout = config.algorithm, config.rollout
    if rollout.group_size == 1 and settings.estimator in _OF_SIBLINGS and config.train.steps > 0:
        raise ConfigError(
            f"rollout.group_size=1: algorithm.estimator={settings.estimator} compares siblings, "
            "so nothing can be learned; use at least 2, typically 8"
        )
    if settings.estimator == "remax" and rollout.seed_per == "episode":
        raise ConfigError(
            "algorithm.estimator=remax: compares each episode with a greedy one on the group's "
            "seed; set rollout.seed_per=group"
        )
    if settings.kl != "none" and settings.kl_coefficient == 0 and settings.kl_target == 0:
        raise ConfigError(
            f"algorithm.kl={settings.kl}: algorithm.kl_coefficient=0 loads a reference model "
            "without any penalty; set a coefficient, or algorithm.kl=none"
        )
    usual = settings_of(settings.name)
    for name in ("kl_coefficient", "kl_target"):
        value = getattr(settings, name)
        if settings.kl == "none" and value != usual[name]:
            raise ConfigError(
                f"algorithm.{name}={value}: has no effect with algorithm.kl=none; set "
                f"algorithm.kl=loss or reward, or leave it at {usual[name]}"
            )
    lora = config.model.lora
    if lora.rank == 0 and lora.base != "float":
        raise ConfigError(f"model.lora.base={lora.base}: {_NO_ADAPTERS}")
    if lora.rank == 0 and lora.targets:
        raise ConfigError(f"model.lora.targets={lora.targets}: {_NO_ADAPTERS}")
    bounds = settings.filter_means
    if bounds and (len(bounds) != 2 or bounds[0] > bounds[1]):
        raise ConfigError(f"algorithm.filter_means={bounds}: must be [lowest, highest]")
    if settings.importance_low > settings.importance_high:
        raise ConfigError(
            f"algorithm.importance_low={settings.importance_low}: must not be above "
            f"algorithm.importance_high={settings.importance_high}"
        )
    if settings.clip_dual < 1:
        raise ConfigError(
            f"algorithm.clip_dual={settings.clip_dual}: must be at least 1: below it, tokens with "
            "negative advantage have no gradient; a large value, such as 1000, disables it"
        )
    if settings.max_staleness < -1:
        raise ConfigError(
            f"algorithm.max_staleness={settings.max_staleness}: must be at least 0, or -1 for no "
            "limit"
        )


_NO_ADAPTERS = (
    "there are no adapters because model.lora.rank is 0; set a rank, such as 16, or leave this out"
)
_OF_SIBLINGS = ("grpo", "dr_grpo", "rloo", "state_grpo", "gigpo", "reinforce_pp_baseline", "prime")


def _numbers(value: Any, key: str = "") -> Iterator[tuple[str, float]]:
    """Every float inside a value, with its dotted key."""
    if isinstance(value, float):
        yield key, value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _numbers(item, f"{key}.{name}" if key else str(name))
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for number, item in enumerate(value):
            yield from _numbers(item, f"{key}[{number}]")


def _check_pairs(config: Config) -> None:
    sizes = [
        ("model.image_size", config.model.image_size, _PICTURE_SIDE),
        ("devices.size", config.devices.size, _SCREEN_SIDE),
    ]
    for key, size, (least, most) in sizes:
        if size is not None and (len(size) != 2 or not least <= min(size) <= max(size) <= most):
            raise ConfigError(
                f"{key}={size}: must be [width, height] in pixels, both {least} to {most}"
            )
    warm = config.warm_start
    decays = [
        ("optim.betas", config.optim.betas),
        ("warm_start.betas", warm.betas if warm else None),
    ]
    for key, betas in decays:
        if betas is not None and (len(betas) != 2 or not 0 <= min(betas) <= max(betas) < 1):
            raise ConfigError(f"{key}={betas}: must be two decays, both at least 0 and below 1")
    if config.rollout.actors > 1 and config.rollout.launcher == "local":
        raise ConfigError(
            f"rollout.actors={config.rollout.actors}: rollout.launcher=local plays only in this "
            "process; leave one of them out"
        )
    lease_s, command_s = config.devices.lease_s, config.devices.deadlines.command_s
    if config.rollout.actors > 1 and lease_s <= command_s:
        raise ConfigError(
            f"devices.lease_s={lease_s}: must be above devices.deadlines.command_s={command_s}, "
            "the time that renewing a phone's lease may take"
        )
    delay = config.devices.effect_delay_ms
    if len(delay) != 2 or not 0 <= delay[0] <= delay[1]:
        raise ConfigError(f"devices.effect_delay_ms={delay}: must be [least, most], both >= 0")


def _check_sharing(config: Config) -> None:
    sharing, ranks = config.train.sequence_parallel, config.train.ranks
    if ranks % sharing:
        raise ConfigError(
            f"train.sequence_parallel={sharing}: must divide train.ranks={ranks}: it is the "
            "number of ranks that share each row"
        )
    if sharing > 1 and config.model.attention not in ("auto", "sdpa"):
        raise ConfigError(
            f"train.sequence_parallel={sharing}: requires SDPA; "
            f"model.attention={config.model.attention} must be sdpa or auto"
        )


def _check_source(source: Any) -> None:
    serials = [source] if isinstance(source, str) else source
    if not isinstance(serials, Sequence) or not all(isinstance(s, str) for s in serials):
        raise ConfigError(
            f"devices.source={source!r}: must be virtual:N, connected, a serial or a list of "
            "serials; quote an all-digit serial: 'devices.source=[\"0123456789\"]'"
        )


def _check_app(devices: DevicesConfig) -> None:
    source = devices.source
    if devices.app == "page" and isinstance(source, str) and source.startswith("virtual"):
        raise ConfigError(
            f"devices.app=page: {source} has no browser to show a page, and has the app installed; "
            "name real phones in devices.source, or use devices.app=auto"
        )


def _check_teachers(warm: WarmStartConfig | None) -> None:
    if warm is None or warm.recorded:
        return
    if warm.player is None:
        raise ConfigError(
            "warm_start.player=null: there are no demonstrations; name runs in "
            "warm_start.recorded, or skip the warm start with warm_start=null"
        )
    if warm.recorded_filter != RecordedFilterConfig():
        raise ConfigError(
            "warm_start.recorded_filter: there are no runs to filter; name some in "
            "warm_start.recorded"
        )


def _check_endpoint(endpoint: EndpointConfig) -> None:
    """Values that might be an API key are not quoted in messages."""
    _check_url(endpoint.url)
    name = endpoint.api_key_env
    if name is not None and not _VARIABLE.fullmatch(name):
        raise ConfigError(
            "rollout.endpoint.api_key_env: not a valid name of an environment variable; give the "
            "name of the one that holds the key, such as OPENAI_API_KEY"
        )
    for name, value in endpoint.headers.items():
        if name.lower() in _SECRET:
            raise ConfigError(
                f"rollout.endpoint.headers.{name}: would be saved in the run's configuration; put "
                "the key into an environment variable and name it in rollout.endpoint.api_key_env"
            )
        if not _HEADER.fullmatch(name) or not (value.isascii() and value.isprintable()):
            raise ConfigError(
                f"rollout.endpoint.headers: {name!r} and its value are no valid header"
            )
    try:
        json.dumps(endpoint.extra_body, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"rollout.endpoint.extra_body: cannot be sent as JSON: {error}") from None
    for name, value in endpoint.extra_body.items():
        setting = _SAID_ELSEWHERE.get(name)
        may_be_left_out = value is None and name in ("temperature", "max_tokens")
        if name in _SAID_ELSEWHERE and not may_be_left_out:
            raise ConfigError(
                f"rollout.endpoint.extra_body.{name}: "
                + (f"set {setting} instead" if setting else "cannot be changed; leave it out")
            )


def _check_url(url: str) -> None:
    what = "rollout.endpoint.url"
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # an invalid port or address
        fine = False
    if fine and (parts.username or parts.password or parts.query or parts.fragment):
        raise ConfigError(
            f"{what}: must not contain a user name, key, query or fragment; put the key into an "
            "environment variable and name it in rollout.endpoint.api_key_env"
        )
    if not fine or not (url.isascii() and url.isprintable()) or " " in url:
        raise ConfigError(f"{what}={url!r}: must look like http://HOST:PORT/v1, or https")


def _check_privacy(config: Config) -> None:
    for package in config.devices.allow:
        if not _PACKAGE.fullmatch(package):
            raise ConfigError(
                f"devices.allow: {package!r} is not a package name such as com.example.app"
            )
    for box in config.devices.mask:
        if len(box) != 4 or not (0 <= box[0] < box[2] <= 1 and 0 <= box[1] < box[3] <= 1):
            raise ConfigError(
                f"devices.mask: {box} is not a region; it must be [left, top, right, bottom], "
                "each in [0, 1] of the screen"
            )
