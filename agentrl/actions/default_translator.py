"""The default translator for any Gymnasium environment."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from agentrl.actions.action_calls import TAGS, checked_style
from agentrl.actions.dialect import Dialect
from agentrl.actions.screen_action_converter import ScreenActionConverter
from agentrl.actions.screen_actions import ScreenAction
from agentrl.actions.screen_dialogue import ScreenDialogue
from agentrl.actions.space_formats import action_format_for
from agentrl.data.observation_conversion import (
    ImageLayout,
    describe_observation,
    has_symbolic_grid,
    images_in,
    to_rgb,
    without_grids,
)
from agentrl.data.prompt_templates import compile_template
from agentrl.errors import ActionError, ConfigError, EnvError
from agentrl.text.name_suggestions import did_you_mean
from agentrl.types import IMAGE, Image, Message, Observation

RENDER_MODES = {"observation": None, "render": "rgb_array", "ansi": "ansi"}
"""Sources of the model's observation, and the render mode that each requires."""
_MOST_LISTED = 1000
_NOOPS = frozenset(("noop", "nop", "wait", "stay", "idle", "nothing", "do nothing", "none", "pass"))
"""Names of actions that do nothing, without hyphens and underscores."""
_COLORS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_MARKED = re.compile(r"\x1b\[\d*(?:;\d+)*m(.)\x1b\[0m")


class SpaceTranslator:
    """Shows images and text, and parses actions by name.

    Args:
        action_space: the environment's action space; filled in automatically.
        names: names of the actions of a `Discrete` space, or of each component's choices in a
            `MultiDiscrete`, `Tuple` or (by key) `Dict` space; None uses numbers.
        parameters: names of an action's components.
        instructions: how to play; the answer format is appended. None gives only the answer format,
            and an empty string gives no instructions, for models trained on demonstrations.
        show: what the model sees: `observation`, `render` (the image from `render()`), `ansi` (the
            text from `render()`), or several of these. None shows the observation, but if that is a
            grid of numbers that represent objects, as in MiniGrid, the image replaces the grid.
        text: Jinja2 template for the observation's text, which may use `observation` and `info`.
            None formats the observation itself.
        style: how actions are written: `tag` or `tool`. Touches and text can be written in a
            different dialect, selected by `env.dialect`.
        image_layout: axes of the observation's images, such as `chw`, or `nhwc` for several images;
            None for uint8[H, W, 3] or uint8[H, W].
        image_range: values of black and of full brightness in these images; None means [0, 255], or
            [0, 1] for floats.
        observation_space: the environment's observation space; filled in automatically.
        render_modes: the environment's render modes; filled in automatically.

    Raises:
        ConfigError: the names do not fit the space, or `show` is invalid.
    """

    def __init__(
        self,
        action_space: "gymnasium.Space[Any]",
        names: Any = None,
        parameters: Sequence[str] | None = None,
        instructions: str | None = None,
        show: str | Sequence[str] | None = None,
        text: str | None = None,
        style: str = "tag",
        image_layout: str | None = None,
        image_range: Sequence[float] | None = None,
        observation_space: "gymnasium.Space[Any] | None" = None,
        render_modes: Sequence[str] = (),
    ) -> None:
        self._action_format = action_format_for(action_space, names, parameters, style)
        self._tag = TAGS[checked_style(style)]
        self._space = action_space
        self._instructions = instructions
        self._layout = None
        if image_layout is not None or image_range is not None:
            self._layout = ImageLayout(image_layout or "hwc", image_range)
        self._gridless: gymnasium.Space[Any] | None = None
        """Observation space whose grids are not shown; None if everything is shown."""
        # A model cannot read a grid of numbers that represent objects, so show the rendered image.
        if show is None:
            show = "observation"
            has_grid = observation_space is not None and has_symbolic_grid(observation_space)
            if has_grid and image_layout is None and "rgb_array" in render_modes:
                show, self._gridless = ("render", "observation"), observation_space
        self._show = _checked([show] if isinstance(show, str) else list(show))
        self._text = (
            None
            if text is None
            else compile_template(text, "env.translator_kwargs.text", ("observation", "info"))
        )
        self._env: gymnasium.Env[Any, Any] | None = None
        self._spoken: ScreenActionConverter | None = None
        self._dialogue: ScreenDialogue | None = None

    @property
    def dialect(self) -> Dialect | None:
        """How actions are written; None in the translator's own format."""
        return None if self._dialogue is None else self._dialogue.dialect

    @dialect.setter
    def dialect(self, dialect: Dialect) -> None:
        self._spoken = ScreenActionConverter(self._space)
        task, instruct = self._instructions or "", self._instructions != ""
        self._dialogue = ScreenDialogue(dialect, task, self._spoken.accepts, instruct)

    @property
    def action_tag(self) -> str | None:
        """The tag around an action; None if the dialect allows only one action in a reply."""
        return self._tag if self._dialogue is None else self._dialogue.dialect.action_tag

    def begin_episode(self) -> None:
        """Forget the previous episode's conversation."""
        if self._dialogue is not None:
            self._dialogue.begin_episode()

    @property
    def render_mode(self) -> str | None:
        """Render mode for making the environment; None if nothing is rendered."""
        return next((mode for what in self._show if (mode := RENDER_MODES[what])), None)

    def attach_env(self, env: "gymnasium.Env[Any, Any]") -> None:
        """Receive the environment before its first reset."""
        if env.action_space != self._space:
            raise ConfigError(
                f"the environment's action space is {env.action_space}, not {self._space}; it must "
                "be the same each time the environment is made"
            )
        if self.render_mode and env.render_mode != self.render_mode:
            known = env.metadata.get("render_modes") or []
            raise ConfigError(
                f"env.translator_kwargs.show={self._show} needs the render mode "
                f"{self.render_mode!r}; the environment supports "
                f"{', '.join(map(str, known)) or 'no render mode'}"
            )
        self._env = env

    def instructions(self) -> str:
        """Return the configured instructions and the answer format."""
        if self._instructions == "":
            return ""
        if self._dialogue is not None:
            return self._dialogue.instructions()
        return " ".join(filter(None, (self._instructions, self.answer_format())))

    @property
    def action_names(self) -> Sequence[str]:
        """Names of a discrete space's actions; empty with a dialect, or if too many to list."""
        names: Sequence[str] = getattr(self._action_format, "names", ())
        return () if self._dialogue is not None or len(names) > _MOST_LISTED else names

    def answer_format(self) -> str:
        """Describe the answer format: the names of the actions, or their signature."""
        return self._action_format.describe()

    def to_observation(self, observation: Any, info: Mapping[str, Any]) -> Observation:
        """Build the observation from the sources in `show`, in that order.

        Raises:
            ConfigError: an array is not an image and too large for text.
            EnvError: the environment's `render()` does not return an image or text.
        """
        images: list[Image] = []
        texts = []
        for what in self._show:
            part = self._observed(observation, info) if what == "observation" else self._rendered()
            images += part.images
            texts.append(part.text)
        self.see(images)
        return Observation(images=tuple(images), text="\n".join(filter(None, texts)))

    def see(self, images: Sequence[Image]) -> None:
        """Record the current screen; called by `to_observation`."""
        if self._dialogue is not None and images:
            self._dialogue.see(images[-1])

    def _observed(self, observation: Any, info: Mapping[str, Any]) -> Observation:
        shown = observation if self._layout is None else self._layout.standard(observation)
        if self._text is not None:
            text = self._text(observation=observation, info=info)
            return Observation(images=tuple(images_in(shown)), text=text)
        if self._gridless is not None:
            shown = without_grids(self._gridless, shown)
        return describe_observation(shown)

    def _rendered(self) -> Observation:
        assert self._env is not None, "no environment was attached"
        frame: Any = self._env.render()
        if self.render_mode == "ansi" and isinstance(frame, str):
            # Put a single colored letter in brackets, as a game may mark its cursor only by color.
            text = _COLORS.sub("", _MARKED.sub(r"[\1]", frame)).strip("\n")
            return Observation(text=text)
        if isinstance(frame, np.ndarray) and frame.dtype == np.uint8 and frame.ndim in (2, 3):
            return Observation(images=(to_rgb(frame),))
        raise EnvError(f"render() returned {type(frame).__name__}, not an image uint8[H, W, 3]")

    def to_message(self, observation: Observation) -> Message:
        """Write a message with the images followed by the text."""
        # Text from the environment must not be mistaken for an image placeholder.
        escaped = observation.text.replace(IMAGE, "<image >")
        text = IMAGE * len(observation.images) + escaped
        if self._dialogue is not None:
            return self._dialogue.message(text, observation.images)
        return Message(role="user", text=text, images=observation.images)

    def to_action(self, reply: str) -> Any:
        """Parse the action in a reply."""
        if self._dialogue is not None and self._spoken is not None:
            return self._spoken.to_space(self._dialogue.parse(reply))
        return self._action_format.parse(reply)

    def spell(self, action: ScreenAction, thought: str = "") -> str:
        """Write the reply that performs a touch, or types text, in the dialect."""
        if self._dialogue is None:
            raise ActionError("actions are not written in a dialect")
        return self._dialogue.spell(action, thought)

    def to_reply(self, action: Any, thought: str = "") -> str:
        """Write a reply that `to_action` parses as this action."""
        if self._dialogue is not None and self._spoken is not None:
            return self._dialogue.spell(self._spoken.from_space(action), thought)
        reply = self._action_format.format(action)
        return f"<think>{thought}</think>{reply}" if thought else reply

    def noop_reply(self) -> str | None:
        """Write the action that does nothing, recognized by its name; None if there is none."""
        for number, name in enumerate(self.action_names):
            if name.lower().replace("-", "").replace("_", " ").replace("no op", "noop") in _NOOPS:
                return self.to_reply(number + int(getattr(self._space, "start", 0)))
        return None

    def no_action(self) -> None:
        """Return None, because a reply without an action does not step the environment."""


def _checked(show: Sequence[str]) -> tuple[str, ...]:
    for what in show:
        if what not in RENDER_MODES:
            raise ConfigError(
                f"env.translator_kwargs.show: {what!r} must be one of {', '.join(RENDER_MODES)}"
                f"{did_you_mean(str(what), RENDER_MODES)}"
            )
    if not show or len(set(show)) != len(show) or {"render", "ansi"} <= set(show):
        raise ConfigError(
            f"env.translator_kwargs.show={list(show)} must not be empty, repeat a source, or "
            "contain both render and ansi, because an environment renders in one mode"
        )
    return tuple(show)
