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
_NOT_TASKS = ("button-delay", "chase-circle", "hover-shape", "moving-items", "simon-says")
"""Pages that the package does not list among its tasks: most need a mouse that hovers."""
_LIMITLESS_MS = (1 << 31) - 1
"""The longest time that a page's timer takes, in milliseconds."""
_HEAD = """<meta name="viewport" content="width=160, user-scalable=no"><style>
html, body {overflow: hidden; background: white !important; touch-action: manipulation}
#reward-display, #click-canvas {display: none}
#sync-task-cover {pointer-events: none}  /* a tap on it would begin another episode */
</style>"""
_ELEMENTS = """[
    ...document.querySelectorAll('body *:not(#query, #query *, #sync-task-cover)')
]   .map(one => {
        const box = one.getBoundingClientRect()
        return {
            tag: one.tagName.toLowerCase(), id: one.id, classes: [...one.classList],
            text: (one.children.length && one.tagName !== 'LABEL' ? '' : one.textContent).trim(),
            label: one.dataset.color ?? one.dataset.type ?? '', value: String(one.value ?? ''),
            checked: Boolean((one.querySelector(':scope > input') ?? one).checked),
            tapped: one.dataset.tampered === 'e' + WOB_EPISODE_ID,
            x: (box.x + box.width / 2) / innerWidth, y: (box.y + box.height / 2) / innerWidth,
            seen: box.width > 0 && box.height > 0,
        }
    }).filter(one => one.seen && !['script', 'style'].includes(one.tag))"""
"""The page's elements; positions are in widths of the page."""
_BEGIN = """(async () => {
    $LIMIT
    Math.seedrandom('{seed}')
    core.startEpisodeReal()
    while (!WOB_TASK_READY) await new Promise(done => setTimeout(done, 20))
    $PAUSE
})()"""
_STATE = """(() => {
    $PAUSE
    const said = core.getUtterance()
    return {
        score: $REWARD, done: WOB_DONE_GLOBAL, instruction: String(said.utterance ?? said),
        reason: WOB_REWARD_REASON, elements: $ELEMENTS,
        metrics: {success: Number(WOB_RAW_REWARD_GLOBAL > 0), reward: $REWARD},
    }
})()"""
_PAUSE = "if (core.EP_TIMER !== null) {clearTimeout(core.EP_TIMER); core.paused = Date.now()}"
_RESUME = """if (core.EP_TIMER !== null) {
    core.ept0 += Date.now() - core.paused
    core.EP_TIMER = setTimeout(
        () => core.endEpisode(-1, false, 'timed out'),
        core.EPISODE_MAX_TIME - (Date.now() - core.ept0),
    )
}"""


class MiniWoB(WebApp):
    """One or several tasks of MiniWoB++; with several, an episode's seed chooses the task.

    See `WebApp` for observations and actions. `info` also has `task`; `reason`, the page's words
    for the outcome; and `elements`, which scripted players read: the visible elements with their
    `tag`, `id`, `classes`, `text`, `label` and `value`, whether they are `checked` or were
    `tapped`, and their middle, `x` and `y` in [0, 1] of the screen. `metrics` are `success`
    (whether the reward without decay is positive) and `reward`.

    Args:
        tasks: names such as `click-button`; `easy` or `all` (125).
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
        pause = _PAUSE if self._pauses else ""
        super().__init__(
            root=str(_pages_folder()),
            start=f"miniwob/{self._tasks[0]}.html",
            ready="window.core && core.cover_div",
            begin=_BEGIN.replace("$LIMIT", limit).replace("$PAUSE", pause),
            state=_STATE.replace("$REWARD", reward)
            .replace("$PAUSE", pause)
            .replace("$ELEMENTS", _ELEMENTS),
            head=_HEAD,
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
            self.evaluate(_RESUME)
        return super().step(action)

    def info(self) -> Info:
        """Return the state of the page, with the task."""
        width, height = self.device.size()
        known = super().info()
        for element in known["elements"]:
            element["y"] = STATUS_BAR + element["y"] * width / height
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
    if tasks in ("easy", "all"):
        return EASY if tasks == "easy" else known
    chosen = [tasks] if isinstance(tasks, str) else list(tasks)
    for name in chosen:
        if name not in known:
            raise InvalidArgument(
                "tasks", name, f"easy, all or a task of MiniWoB++{did_you_mean(str(name), known)}"
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
    return Path(spec.origin).parent / "html"
