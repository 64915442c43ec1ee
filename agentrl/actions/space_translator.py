"""The words of an environment that has none of its own, as a configuration gives them."""

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from agentrl.actions.action_spaces import speech_of
from agentrl.data.observations import in_colour, pictures, shown
from agentrl.data.prompt_templates import compiled
from agentrl.errors import ConfigError, EnvError
from agentrl.text import did_you_mean
from agentrl.types import IMAGE, Image, Message, Observation

SHOWN = {"observation": None, "render": "rgb_array", "ansi": "ansi"}
"""What can be shown, and the render mode it needs."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_MARKED = re.compile(r"\x1b\[\d*(?:;\d+)*m(.)\x1b\[0m")


class SpaceTranslator:
    """Shows pictures and text, and reads actions by their names.

    Args:
        action_space: of the environment; it is given by itself.
        names: of the actions of a `Discrete` space, or for each part of a `MultiDiscrete` one the
            names of its choices; None numbers them.
        parameters: the names of the parts of an action that has several.
        instructions: how to play; how to answer is added. None tells how to answer alone, and an
            empty text nothing: for a model that was taught by demonstrations.
        show: what the model sees: `observation`, `render` (the picture that `render()` draws) or
            `ansi` (the text that it writes), or several.
        text: a Jinja2 template for the words that stand for the observation; it may use
            `observation` and `info`. None tells the observation as it is.
        style: how actions are said: `tag` or `tool`.

    Raises:
        ConfigError: names that do not fit the space, or something that cannot be shown.
    """

    def __init__(
        self,
        action_space: "gymnasium.Space[Any]",
        names: Sequence[Any] | None = None,
        parameters: Sequence[str] | None = None,
        instructions: str | None = None,
        show: str | Sequence[str] = "observation",
        text: str | None = None,
        style: str = "tag",
    ) -> None:
        self._speech = speech_of(action_space, names, parameters, style)
        self._space = action_space
        self._instructions = instructions
        self._show = _checked([show] if isinstance(show, str) else list(show))
        self._text = (
            None if text is None else compiled(text, "env.translator.text", ("observation", "info"))
        )
        self._env: gymnasium.Env[Any, Any] | None = None

    @property
    def render_mode(self) -> str | None:
        """What `gymnasium.make` is asked for; None where nothing is rendered."""
        return next((mode for what in self._show if (mode := SHOWN[what])), None)

    def meet(self, env: "gymnasium.Env[Any, Any]") -> None:
        """See the environment that is played, before its first reset.

        Raises:
            ConfigError: it has other actions, or does not render what is to be shown.
        """
        if env.action_space != self._space:
            raise ConfigError(
                f"the environment's actions are {env.action_space}, not {self._space}; they must "
                "be the same each time it is made"
            )
        if self.render_mode and env.render_mode != self.render_mode:
            known = env.metadata.get("render_modes", [])
            raise ConfigError(
                f"env.translator.show={self._show}: needs the render mode {self.render_mode!r}; "
                f"the environment has {', '.join(map(str, known)) or 'none'}"
            )
        self._env = env

    def instructions(self) -> str:
        """The words given, and how to answer."""
        if self._instructions == "":
            return ""
        return " ".join(filter(None, (self._instructions, self.how())))

    def how(self) -> str:
        """How to answer: the actions by their names, or their form."""
        return self._speech.told()

    def to_observation(self, observation: Any, info: Mapping[str, Any]) -> Observation:
        """What `show` names, in that order.

        Raises:
            ConfigError: an array that is no picture and too large to be told.
            EnvError: the environment renders nothing.
        """
        images: list[Image] = []
        words = []
        for what in self._show:
            seen = self._seen(observation, info) if what == "observation" else self._rendered()
            images += seen.images
            words.append(seen.text)
        return Observation(images=tuple(images), text="\n".join(filter(None, words)))

    def _seen(self, observation: Any, info: Mapping[str, Any]) -> Observation:
        if self._text is None:
            return shown(observation)
        words = self._text(observation=observation, info=info)
        return Observation(images=tuple(pictures(observation)), text=words)

    def _rendered(self) -> Observation:
        assert self._env is not None, "the environment was met"
        drawn: Any = self._env.render()
        if self.render_mode == "ansi" and isinstance(drawn, str):
            return Observation(text=_plain(drawn))
        if isinstance(drawn, np.ndarray) and drawn.dtype == np.uint8 and drawn.ndim in (2, 3):
            return Observation(images=(in_colour(drawn),))
        raise EnvError(f"render() gave {type(drawn).__name__}, no picture uint8[H, W, 3]")

    def to_message(self, observation: Observation) -> Message:
        """The pictures, then the text."""
        # Words of the environment that look like a picture's place are none.
        words = observation.text.replace(IMAGE, "<image >")
        text = IMAGE * len(observation.images) + words
        return Message(role="user", text=text, images=observation.images)

    def to_action(self, reply: str) -> Any:
        """The action that the reply names.

        Raises:
            ActionError: it names none, several, or one that does not exist.
        """
        return self._speech.read(reply)

    def no_action(self) -> None:
        """A reply that is no action leaves the environment as it is."""
        return


class RandomPlayer:
    """Any action, each as likely; of those that `info["action_mask"]` allows, where it is there.

    Args:
        action_space: of the environment; it is given by itself.
        names: as the translator's, like all that follow.
        parameters: of the parts.
        style: `tag` or `tool`.
    """

    def __init__(
        self,
        action_space: "gymnasium.Space[Any]",
        names: Sequence[Any] | None = None,
        parameters: Sequence[str] | None = None,
        style: str = "tag",
    ) -> None:
        self._space = action_space
        self._speech = speech_of(action_space, names, parameters, style)

    def reply(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        """An action, and no thought."""
        if isinstance(self._space, gymnasium.spaces.Discrete):
            return self._speech.say(self._numbered(self._space, info.get("action_mask"), rng))
        space = copy.deepcopy(self._space)  # it keeps its chance, and others play as well
        space.seed(int(rng.integers(2**31)))
        return self._speech.say(space.sample())

    def _numbered(
        self, space: gymnasium.spaces.Discrete, mask: Any, rng: np.random.Generator
    ) -> int:
        allowed = np.flatnonzero(mask) if mask is not None and np.any(mask) else int(space.n)
        return int(space.start) + int(rng.choice(allowed))


def _checked(show: Sequence[str]) -> tuple[str, ...]:
    for what in show:
        if what not in SHOWN:
            raise ConfigError(
                f"env.translator.show: {what!r} must be one of {', '.join(SHOWN)}"
                f"{did_you_mean(str(what), SHOWN)}"
            )
    if not show or len(set(show)) != len(show) or {"render", "ansi"} <= set(show):
        raise ConfigError(
            f"env.translator.show={list(show)}: must name something, each once, and not both "
            "render and ansi: an environment renders in one mode"
        )
    return tuple(show)


def _plain(drawn: str) -> str:
    """Text without the codes of a terminal; a single coloured letter is put in brackets."""
    return _COLOURS.sub("", _MARKED.sub(r"[\1]", drawn)).strip("\n")
