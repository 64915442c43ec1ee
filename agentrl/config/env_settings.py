"""Settings of the environment and its prompts."""

import re
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le

from agentrl.config.bounds import NonNegativeSeconds, PositiveInt, StepCount
from agentrl.errors import ConfigError


@dataclass(slots=True, kw_only=True, frozen=True)
class History:
    """Part of the conversation included in a prompt."""

    turns: int | None = None
    """Number of most recent turns; None for all."""
    screens: int | None = None
    """Number of most recent turns whose screens are included; None for all of `turns`."""
    carries_memory: bool = False
    """True if the prompt includes what the model wrote to its memory."""


EACH = "each"
"""Value of `env.processes` that gives every environment its own process."""


def parse_history(history: str) -> History:
    """Parse `env.history`.

    Raises:
        ConfigError: the value is not `concat`, `window:k`, `compact:k` or `screens:k`.
    """
    if history == "concat":
        return History()
    found = re.fullmatch(r"(window|compact|screens)(?:[: ]([0-9]{1,6}))?", history.strip())
    if found and (found[2] or found[1] == "compact") and int(found[2] or 1) >= 1:
        count = int(found[2] or 1)
        if found[1] == "screens":
            return History(screens=count)
        return History(turns=count, carries_memory=found[1] == "compact")
    raise ConfigError(
        f"env.history={history!r}: must be 'concat', 'window:k', 'screens:k' or 'compact:k' with "
        "k >= 1; 'compact' is 'compact:1'"
    )


@dataclass(slots=True, kw_only=True)
class WrapperConfig:
    """A Gymnasium wrapper around the environment."""

    wrapper: str = "???"
    """`module:Class` or `path/file.py:Class`."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the wrapper, in addition to the environment."""


@dataclass(slots=True, kw_only=True)
class HorizonConfig:
    """A growing limit on the turns of training episodes, so that training starts with short ones.

    It grows linearly from `start` to `env.max_turns`. Evaluations and demonstrations always have
    `env.max_turns` turns.
    """

    start: PositiveInt = 10
    """Maximum number of turns of an episode in the first training step."""
    steps: StepCount = 50
    """Number of training steps after which episodes have `env.max_turns` turns."""


@dataclass(slots=True, kw_only=True)
class StartConfig:
    """A curriculum of start states: a scripted player makes the first turns of training episodes.

    Its replies are context, which is not trained on. Evaluations and demonstrations always begin
    at the environment's own start.
    """

    player: str = "expert"
    """Name of the scripted player."""
    turns: PositiveInt = 10
    """Most turns that it makes in the first training step. In each group, the number is drawn
    uniformly between 0 and the current limit."""
    steps: StepCount = 50
    """Number of training steps in which the limit falls linearly to 0."""


@dataclass(slots=True, kw_only=True)
class EnvConfig:
    """The environment and how its observations become prompts."""

    id: str = "NumberGame-v0"
    """An id registered with agentrl or Gymnasium, `module:Name-v0` if importing a module registers
    it, a class (`module:Class`, `path/file.py:Class`), the `http://HOST:PORT` of `agentrl
    serve-env`, the `openenv://HOST:PORT` of an OpenEnv server, or `pettingzoo:ID`."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the environment's constructor. Arguments that its translator also
    accepts, such as the number game's `mode`, are passed to both; a scripted player gets the
    arguments that it accepts."""
    translator_kwargs: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the environment's translator. Arguments that the constructor also
    accepts are passed to both; two different values are an error."""
    translator_class: str | None = None
    """A translator that replaces the environment's default: `module:Class`, `path/file.py:Class`,
    or a name from `agentrl list translator`."""
    players: dict[str, str] = field(default_factory=dict)
    """Additional scripted players, by a name of your choice: `module:Class`, `path/file.py:Class`,
    or a name from `agentrl list player`."""
    player_kwargs: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the scripted players, passed to each that accepts them. `noise` is the
    share of turns in which the player `noisy` is random."""
    wrappers: list[WrapperConfig] = field(default_factory=list)
    """Wrappers applied to the environment in this order, the first innermost."""
    processes: Annotated[int, Ge(0), Le(1000), "they run at the same time"] | Literal["each"] = 0
    """Number of processes that run the environments of each rollout actor, in parallel and isolated
    from each other's crashes; 0 runs them in threads. `each` gives every environment its own
    single-threaded process, as Playwright requires. Not for phones."""
    patience_s: NonNegativeSeconds = 30.0
    """Seconds for which the server of a remote environment may be unavailable, for example during a
    restart. Only the episodes that it was running are void."""
    state_key: Literal["info", "observation", "screen"] = "info"
    """How states are identified when the episodes of a group are compared: by `info["state_key"]`
    (`info`), by equal observations (`observation`), or by equal screens (`screen`), ignoring the
    status bar and differences too small or too faint to notice."""
    max_turns: Annotated[int, Gt(0), Le(100_000), "an episode is kept in memory until it ends"] = 40
    """Number of turns after which an episode is truncated."""
    horizon: HorizonConfig | None = None
    start: StartConfig | None = None
    max_actions_per_reply: Annotated[int, Ge(1), Le(1000), "a reply has few tokens"] = 1
    """Maximum number of actions in a reply. They are executed in order until one is invalid, the
    episode ends or another app comes to the foreground; a reply with more actions is invalid. A
    turn's reward is the sum over its actions."""
    state_estimation: bool | str = False
    """Whether replies contain, before the action, what the model sees and what it will see next, as
    JSON in `<observation>` and `<prediction>` (docs/environments.md). `true` uses the fields that
    the environment is registered with; `module:Class` or `path/file.py:Class` uses another
    `StateSchema`. Scripted players write both; `agentrl.rewards.state_estimation` scores them."""
    dialect: str | None = None
    """Format in which the model writes touches and other actions: `qwen3-vl-mobile-use`,
    `qwen2.5-vl-mobile-use`, `gui-owl`, `mai-ui`, `ui-tars`, `ui-tars-1.5`, `autoglm`,
    `androidworld-json`, `tag`, `tool`, or a `Dialect` as `module:Class` or `path/file.py:Class`.
    None uses the default format of the environment's translator."""
    dialect_kwargs: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the dialect."""
    history: str | None = None
    """Content of each prompt: `concat` (the whole conversation), `window:k` (the last k turns),
    `screens:k` (all replies, but only the last k screens) or `compact:k` (the last k turns, and the
    text that the model wrote between `<memory>` and `</memory>`). None uses the dialect's default,
    or `concat` without a dialect."""
    prompt: str | None = None
    """A Jinja2 template file for the instructions; None uses the translator's instructions."""

    def validate(self) -> None:
        """Raise `ConfigError` at the first invalid value."""
        if self.history is not None:
            parse_history(self.history)
        if self.dialect_kwargs and self.dialect is None:
            raise ConfigError(
                f"env.dialect_kwargs={self.dialect_kwargs}: has no effect without env.dialect; set "
                "env.dialect, or remove env.dialect_kwargs"
            )

    def validate_for_training(self) -> None:
        """Check the settings of training episodes only.

        Raises:
            ConfigError: the horizon cannot grow, or the player makes all turns.
        """
        if self.horizon is not None and self.horizon.start >= self.max_turns:
            raise ConfigError(
                f"env.horizon.start={self.horizon.start}: must be below env.max_turns="
                f"{self.max_turns}, to which it grows; lower it, or remove env.horizon"
            )
        if self.start is not None and self.start.turns >= self.max_turns:
            raise ConfigError(
                f"env.start.turns={self.start.turns}: must be below env.max_turns="
                f"{self.max_turns}, or episodes might end before the model plays"
            )

    def training_turns(self, step: int) -> int:
        """Return the maximum number of turns of a training episode in a step, counted from 1."""
        if self.horizon is None:
            return self.max_turns
        start, steps = self.horizon.start, self.horizon.steps
        return start + (self.max_turns - start) * min(max(step - 1, 0), steps) // steps

    def start_turns(self, step: int) -> int:
        """Return the most turns that `start.player` makes in a step, counted from 1."""
        if self.start is None:
            return 0
        steps = self.start.steps
        return -(-self.start.turns * max(0, steps - step + 1) // steps)
