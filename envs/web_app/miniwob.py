"""MiniWoB++ on phones: short tasks on small web pages, with instructions in words.

The pages are those of the package `miniwob`, unchanged. Tasks and rewards are its authors'
(Shi et al., 2017; Liu et al., 2018).
"""

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agentrl.devices import Action
from agentrl.devices.screen_regions import STATUS_BAR
from agentrl.envs.web_app import miniwob_page
from agentrl.envs.web_app.env import Info, WebApp
from agentrl.errors import ConfigError, InvalidArgument
from agentrl.text.name_suggestions import did_you_mean
from agentrl.types import Image

_DEFAULTS: Mapping[str, Any] = {"tasks": "easy", "clock": "none", "decay": False}
CLOCKS = ("none", "paused", "running")
EASY = (
    "click-button", "click-button-sequence", "click-color", "click-dialog", "click-dialog-2",
    "click-link", "click-option", "click-tab", "click-test", "click-test-2", "click-widget",
    "focus-text", "focus-text-2", "grid-coordinate", "identify-shape", "navigate-tree",
)  # fmt: skip
"""Tasks of one to three taps."""
USUAL = (
    "book-flight", "choose-date", "choose-list", "click-button", "click-button-sequence",
    "click-checkboxes", "click-checkboxes-large", "click-checkboxes-soft",
    "click-checkboxes-transfer", "click-collapsible", "click-collapsible-2", "click-color",
    "click-dialog", "click-dialog-2", "click-link", "click-menu", "click-option", "click-pie",
    "click-scroll-list", "click-shades", "click-shape", "click-tab", "click-tab-2",
    "click-tab-2-hard", "click-test", "click-test-2", "click-widget", "copy-paste",
    "copy-paste-2", "count-shape", "email-inbox", "email-inbox-forward-nl",
    "email-inbox-forward-nl-turk", "email-inbox-nl-turk", "enter-date", "enter-password",
    "enter-text", "enter-text-dynamic", "enter-time", "find-word", "focus-text", "focus-text-2",
    "grid-coordinate", "guess-number", "identify-shape", "login-user", "login-user-popup",
    "multi-layouts", "multi-orderings", "navigate-tree", "read-table", "search-engine",
    "simple-algebra", "simple-arithmetic", "social-media", "social-media-all",
    "social-media-some", "terminal", "text-transform", "tic-tac-toe", "unicode-test",
    "use-autocomplete", "use-slider", "use-spinner",
)  # fmt: skip
"""The 64 tasks of Synapse (arXiv:2306.07863): 48 with examples of their own, 16 similar to them."""
_NOT_TASKS = ("button-delay", "chase-circle", "hover-shape", "moving-items", "simon-says")
"""Pages that the package does not list among its tasks: most need a mouse that hovers."""
_LIMITLESS_MS = (1 << 31) - 1
"""The longest time that a page's timer takes, in milliseconds."""


class MiniWoB(WebApp):
    """One or several tasks of MiniWoB++; with several, an episode's seed chooses the task.

    See `WebApp` for observations and actions. Besides a tap, which is also a click, a finger that
    moves is a mouse with its button held down, so that sliders and other things can be dragged.

    `info` also has `task`; `reason`, the page's words for the outcome; and `elements`, which
    scripted players read: the elements with their `tag`, `id`, `classes`, own `text`, `label`,
    `value` and `fill`, whether they are `checked`, `focused`, `touchable` where they are, or were
    `tapped`, their middle, `x` and `y`, `width` and `height` in fractions of the screen, and
    `view`, the top and bottom of the list in which they scroll, if any. `metrics` are `success`
    (whether the reward without decay is positive) and `reward`.

    Args:
        tasks: names such as `click-button`; `easy`, `usual` or `all` (16, 64 and 125 tasks).
        clock: `running` ends an episode after the task's own time (10 s for most), as its authors
            do; `paused` does not count the time while the policy thinks; `none` gives unlimited
            time, as BrowserGym does.
        decay: whether the reward falls with the time that was used, as its authors define it.
        actions: see `WebApp`, as for the others.
        exit_reward: reward for leaving the page or the browser.
        device: the phone.
        allow: packages that may be in front besides Chrome.
        render_mode: None or `rgb_array`.

    Raises:
        ConfigError: the package is not installed.
        InvalidArgument: a task does not exist, or an argument is invalid.
    """

    def __init__(
        self,
        tasks: str | Sequence[str] = "easy",
        clock: str = "none",
        decay: bool = False,
        actions: Sequence[str] | None = None,
        exit_reward: float = -1.0,
        device: str = "virtual",
        allow: Sequence[str] = (),
        render_mode: str | None = None,
    ) -> None:
        self._tasks = _checked(tasks, clock, decay)
        self._pauses = clock == "paused"
        reward = "WOB_REWARD_GLOBAL" if decay else "WOB_RAW_REWARD_GLOBAL"
        limit = f"core.EPISODE_MAX_TIME = {_LIMITLESS_MS}" if clock == "none" else ""
        pause = miniwob_page.PAUSE if self._pauses else ""
        super().__init__(
            root=str(_pages_folder()),
            start=f"miniwob/{self._tasks[0]}.html",
            ready="window.core && core.cover_div",
            begin=miniwob_page.BEGIN.replace("$LIMIT", limit).replace("$PAUSE", pause),
            state=miniwob_page.STATE.replace("$REWARD", reward)
            .replace("$PAUSE", pause)
            .replace("$ELEMENTS", miniwob_page.ELEMENTS),
            head=miniwob_page.HEAD,
            actions=actions,
            exit_reward=exit_reward,
            device=device,
            allow=allow,
            render_mode=render_mode,
        )

    @classmethod
    def check_kwargs(cls, **kwargs: Any) -> None:
        """Check arguments before any phone is started.

        Raises:
            ConfigError: the package is not installed.
            InvalidArgument: a task does not exist, or an argument is invalid.
        """
        given = {name: kwargs.pop(name, default) for name, default in _DEFAULTS.items()}
        _checked(**given)
        page = "miniwob/click-test.html"
        super().check_kwargs(**kwargs, root=str(_pages_folder()), start=page)

    def first_page(self, seed: int) -> str:
        """Return the page of the task that the seed chooses."""
        return f"miniwob/{self.task_of(seed)}.html"

    def task_of(self, seed: int) -> str:
        """Return the name of an episode's task."""
        return self._tasks[int(np.random.default_rng(seed).integers(len(self._tasks)))]

    def step(self, action: Action) -> tuple[Image, float, bool, bool, Info]:
        """Act with the clock running, then wait until the screen has settled."""
        if self._pauses and self.action_space.contains(action):
            self.evaluate(miniwob_page.RESUME)
        return super().step(action)

    def info(self) -> Info:
        """Return the state of the page, with the task."""
        width, height = self.device.size()
        known = super().info()
        for element in known["elements"]:
            element["y"] = STATUS_BAR + element["y"] * width / height
            element["height"] *= width / height
            if element["view"] is not None:
                element["view"] = [STATUS_BAR + y * width / height for y in element["view"]]
        return {**known, "task": self.task_of(self.seed)}


def task_names() -> list[str]:
    """Return the names of all tasks.

    Raises:
        ConfigError: the package is not installed.
    """
    pages = (_pages_folder() / "miniwob").glob("*.html")
    return sorted(page.stem for page in pages if page.stem not in _NOT_TASKS)


def _checked(tasks: str | Sequence[str], clock: str, decay: bool) -> Sequence[str]:
    """Return the tasks by name."""
    if clock not in CLOCKS:
        raise InvalidArgument("clock", clock, f"one of {', '.join(CLOCKS)}")
    if decay and clock == "none":
        raise InvalidArgument("decay", decay, "false without a clock")
    known = task_names()
    if isinstance(tasks, str) and tasks in (sets := {"easy": EASY, "usual": USUAL, "all": known}):
        return sets[tasks]
    chosen = [tasks] if isinstance(tasks, str) else list(tasks)
    for name in chosen:
        if name not in known:
            raise InvalidArgument(
                "tasks",
                name,
                f"easy, usual, all or a task of MiniWoB++{did_you_mean(str(name), known)}",
            )
    if not chosen:
        raise InvalidArgument("tasks", tasks, "at least one task")
    return chosen


def _pages_folder() -> Path:
    # Importing the package would import Selenium.
    spec = importlib.util.find_spec("miniwob")
    if spec is None or spec.origin is None:
        raise ConfigError(
            "MiniWoB++ needs miniwob, which is not installed; run: "
            "pip install 'agentrl-screens[miniwob]'"
        )
    folder = Path(spec.origin).parent / "html"
    if not folder.is_dir():
        raise ConfigError(
            f"MiniWoB++ needs the package miniwob, but Python finds {spec.origin} first; rename it"
        )
    return folder
