"""Settings of rollouts and of a remote model server that acts as the policy."""

import json
import re
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from annotated_types import Ge, Gt, Le

from agentrl.config.bounds import (
    MAX_EPISODES,
    EpisodeCount,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ProcessCount,
    Seconds,
)
from agentrl.errors import ConfigError

_LOWEST_TEMPERATURE = 0.01
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_HEADER = re.compile(r"[A-Za-z0-9-]+")
_SECRET = ("authorization", "proxy-authorization", "api-key", "x-api-key", "cookie")
"""Headers that carry credentials."""
_SET_ELSEWHERE = {
    "model": "rollout.endpoint.model",
    "temperature": "rollout.temperature",
    "max_tokens": "rollout.max_new_tokens",
    "messages": None,
    "stream": None,
    "n": None,
}
"""Maps request fields to the settings that control them; None for fields that cannot be changed."""


@dataclass(slots=True, kw_only=True)
class EndpointConfig:
    """A chat completions server whose model is the policy, for `rollout.engine=remote`."""

    url: str = "http://127.0.0.1:8000/v1"
    """Base URL of the server, without `/chat/completions`: `vllm serve`, SGLang, OpenAI or any
    compatible server."""
    model: str | None = None
    """The model's name on the server; None if the server has only one model."""
    api_key_env: str | None = None
    """Environment variable that holds the API key, such as `OPENAI_API_KEY`; None sends no key.
    The key itself never appears in a configuration, log or record."""
    headers: dict[str, str] = field(default_factory=dict)
    """Headers to send with every request; must not contain secrets."""
    extra_body: dict[str, Any] = field(default_factory=dict)
    """Extra fields to send with every request, such as `{min_p: 0.05}`; null removes a field that
    would otherwise be sent, such as `{seed: null}`."""

    def validate(self) -> None:
        """Raise `ConfigError` at the first invalid value, without quoting possible API keys."""
        self._check_url()
        if self.api_key_env is not None and not _VARIABLE.fullmatch(self.api_key_env):
            raise ConfigError(
                "rollout.endpoint.api_key_env: not a valid name for an environment variable; set "
                "it to the name of the variable that holds the key, such as OPENAI_API_KEY"
            )
        for name, value in self.headers.items():
            if name.lower() in _SECRET:
                raise ConfigError(
                    f"rollout.endpoint.headers.{name}: would be saved in the run's configuration; "
                    "put the key into an environment variable and name it in "
                    "rollout.endpoint.api_key_env"
                )
            if not _HEADER.fullmatch(name) or not (value.isascii() and value.isprintable()):
                raise ConfigError(
                    f"rollout.endpoint.headers: {name!r} and its value are not a valid header"
                )
        self._check_extra_body()

    def _check_url(self) -> None:
        what = "rollout.endpoint.url"
        try:
            parts = urlsplit(self.url)
            fine = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:  # invalid port or address
            fine = False
        if fine and (parts.username or parts.password or parts.query or parts.fragment):
            raise ConfigError(
                f"{what}: must not contain a user name, key, query or fragment; put the key into "
                "an environment variable and name it in rollout.endpoint.api_key_env"
            )
        if not fine or not (self.url.isascii() and self.url.isprintable()) or " " in self.url:
            raise ConfigError(
                f"{what}={self.url!r}: must look like http://HOST:PORT/v1 or https://HOST/v1"
            )

    def _check_extra_body(self) -> None:
        what = "rollout.endpoint.extra_body"
        try:
            json.dumps(self.extra_body, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{what}: cannot be sent as JSON: {error}") from None
        for name, value in self.extra_body.items():
            setting = _SET_ELSEWHERE.get(name)
            may_be_left_out = value is None and name in ("temperature", "max_tokens")
            if name in _SET_ELSEWHERE and not may_be_left_out:
                raise ConfigError(
                    f"{what}.{name}: "
                    + (f"set {setting} instead" if setting else "cannot be changed; remove it")
                )


@dataclass(slots=True, kw_only=True)
class EngineCheckConfig:
    """A comparison of the engine with transformers, before the model first plays or replies.

    `agentrl train`, `eval`, `play`, `infer` and `chat` stop if the two disagree. During training,
    `train.compare_engine` compares the engine with the learner in every step.
    """

    enabled: bool | None = None
    """Whether to compare. By default, training always compares: the learner is the reference.
    The other commands load a second copy of the model into CPU memory, so they compare only models
    of at most 8 GB in `model.dtype` that fit. Outside training, quantized models cannot be
    compared, nor can a server's model (`rollout.engine=remote`)."""
    prompts: PositiveInt = 4
    """Number of prompts to compare, at least: the first prompts of the job."""
    bound: PositiveFloat | None = None
    """Maximum mean difference of a log-probability, in nats. None: 0.002 with
    `model.dtype=float32`, 0.1 with `bfloat16`, divided by a `rollout.temperature` below 1, which
    magnifies differences."""


@dataclass(slots=True, kw_only=True)
class RolloutConfig:
    """Settings of rollouts: engine, groups, sampling and deadlines."""

    engine: str = "vllm"
    """Inference engine: `vllm`, `sglang`, `hf`, `remote`, or your own engine as `module:Class` or
    `path/file.py:Class`. `hf` (transformers) is slower but reproducible bit for bit. `remote`
    queries the server at `rollout.endpoint`, only for `agentrl eval` and `play`: its weights cannot
    be trained."""
    launcher: Literal["ray", "local"] = "ray"
    """Run rollouts and the learner in Ray actors, or all in this process."""
    actors: ProcessCount | Literal["auto"] = "auto"
    """Number of rollout processes, with `launcher: ray`. Each has its own engine; all share the
    same phones. `auto`: as many as fit on the GPUs, or one per node without GPUs."""
    place: Literal["auto", "together", "apart"] = "auto"
    """Placement of engines. `together`: each engine shares a GPU with a learner rank and sleeps
    while the rank computes. `apart`: each engine has its own GPUs, as many as `engine_kwargs`
    require for tensor, pipeline and data parallelism. `auto`: `apart` if there are enough GPUs for
    the configured actors and ranks, else `together`."""
    groups: PositiveInt = 4
    """Groups per training step."""
    group_size: PositiveInt = 8
    """Episodes per group, which are compared with each other."""
    seed_per: Literal["group", "episode"] = "group"
    """`group`: all episodes of a group share a seed and so start in the same state. `episode`: each
    episode has its own seed, for environments that always start in the same state and have random
    transitions, such as FrozenLake: a shared seed would also fix the transitions, and an action
    that is right under one seed's transitions may be wrong under another's."""
    concurrency: EpisodeCount = 32
    """Maximum number of episodes in flight; a phone plays one at a time."""
    temperature: Annotated[float, Ge(0), Le(100)] = 1.0
    """Sampling temperature."""
    top_p: Annotated[float, Gt(0), Le(1)] = 1.0
    """Sample only from the most probable tokens that together have this probability (nucleus
    sampling). Must be 1 for training, which needs the probabilities of all tokens."""
    top_logprobs: Annotated[int, Ge(0), Le(20)] = 0
    """Number of most probable tokens to record for each sampled token, with their probabilities, at
    most 20; the viewer shows them. 0 records none."""
    max_new_tokens: PositiveInt = 64
    """Maximum length of a reply, in tokens."""
    stop: list[str] = field(default_factory=list)
    """Strings that also end a reply and stay in it, such as a line break for a model that continues
    plain text. Each must be a single token of the model; other tokens that contain the string, such
    as a full stop with a line break, do not end a reply."""
    max_context: Annotated[int, Gt(0), Le(10_000_000)] = 4096
    """Maximum tokens of prompt and reply together; longer episodes are truncated. A `remote`
    engine has its own limit."""
    deadline_s: Seconds = 600.0
    """Deadline in seconds for an episode, from reset to the last turn, excluding time spent waiting
    for the `hf` engine. Also the deadline for each call to an environment served over HTTP."""
    start_deadline_s: Seconds = 600.0
    """Deadline in seconds for phones and engine to start."""
    reward_deadline_s: Seconds = 60.0
    """Deadline in seconds for the reward functions of an episode."""
    reward_failure: Literal["void", "error"] = "void"
    """What to do if a reward function fails: discard the episode (`void`), or stop the job
    (`error`)."""
    max_refills: NonNegativeInt = 8
    """Maximum number of void episodes that are replaced, per actor and per step or evaluation."""
    max_worker_restarts: NonNegativeInt = 3
    """Maximum number of restarts of each rollout process that dies or hangs, with `launcher: ray`;
    the other processes take over its episodes. The job stops if none is left."""
    engine_kwargs: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the engine, such as vLLM's `gpu_memory_utilization`."""
    endpoint: EndpointConfig = field(default_factory=EndpointConfig)
    engine_check: EngineCheckConfig = field(default_factory=EngineCheckConfig)
    sleep: bool | None = None
    """Whether the engine releases its GPU memory to the learner between a step's last reply and
    the next weights. None: only if they share a GPU and `train.mode` is `sync`."""

    def validate(self) -> None:
        """Raise `ConfigError` at the first invalid value."""
        if self.temperature == 0:
            raise ConfigError(
                f"rollout.temperature={self.temperature}: must be above 0, because greedy sampling "
                "does not explore (evaluations include a greedy one anyway)"
            )
        if self.temperature < _LOWEST_TEMPERATURE:
            raise ConfigError(
                f"rollout.temperature={self.temperature}: must be at least {_LOWEST_TEMPERATURE}; "
                "below that vLLM samples from a distribution other than the learner's"
            )
        if self.max_new_tokens >= self.max_context:
            raise ConfigError(
                f"rollout.max_new_tokens={self.max_new_tokens}: must be at most "
                f"{self.max_context - 1}, below rollout.max_context"
            )
        if (episodes := self.groups * self.group_size) > MAX_EPISODES:
            raise ConfigError(
                f"rollout.groups * group_size={episodes}: must be at most {MAX_EPISODES}"
            )
        if self.actors not in (1, "auto") and self.launcher == "local":
            raise ConfigError(
                f"rollout.actors={self.actors}: rollout.launcher=local plays only in the current "
                "process; remove one of the two settings"
            )
        self.endpoint.validate()
