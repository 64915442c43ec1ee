"""A folder with a web app as an environment, in the browser of a phone."""

import contextlib
import copy
import math
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from agentrl.actions.default_translator import SpaceTranslator
from agentrl.actions.screen_action_space import ScreenActionSpace
from agentrl.devices import Action, Device, Done, Key, Wait, open_device
from agentrl.devices.devtools_page import DevToolsPage, pages
from agentrl.devices.open_url import open_url
from agentrl.envs.android.app_session import AppSession
from agentrl.envs.web_app.folder_server import FolderServer
from agentrl.errors import DeviceError, DeviceOffline, EnvError, InvalidArgument, LeaseLost
from agentrl.types import Image

CHROME = "com.android.chrome"
APP = "virtual_phone.browser.browser_app:BrowserApp"
"""Chrome of virtual phones."""
Info = dict[str, Any]

_NOOP_KEY = Key("UNKNOWN")
"""A key without effect; the virtual phone counts it once it has drawn the page."""
_CARET = "<style>* {caret-color: transparent !important}</style>"
"""A blinking caret would make the same state look different."""
_LAUNCH = "agentrl-launch"
"""Name of the `<meta>` whose content identifies the launch that has loaded a page."""
_RESERVED = ("guard", "left", "changed", "declared", "side_effects")
"""Keys of `info` that a page's state must not have."""
_POLL_S = 0.02
_MAX_URL = 200


class WebApp(gymnasium.Env[Image, Action]):
    """A web app on a phone, real or virtual: its pages are served from here.

    Observation: the settled screen, uint8[H, W, 3]. Actions: see `ScreenActionSpace`. What happens
    in the page is read with JavaScript through Chrome's DevTools protocol over ADB, so the app
    needs no changes. The value of `state` is an object, all of it is in `info`, and some keys have
    a meaning: `score` (the reward is its change), `done` (whether the episode is over),
    `instruction` (the episode's task, which the prompt states) and `metrics` (numbers to report).
    Without `state`, the reward is always 0. `info` also has `changed` (whether the last action
    changed the screen), `declared` (the status that the agent declared with `Done`, if it did) and
    `side_effects` (the apps and windows that the agent opened instead).

    The episode is over when the app is done, the agent says so, or leaves the app: for another app,
    or for a page or tab outside the folder. If the folder has several pages, each must know the
    expression `state`.

    Args:
        root: the folder.
        start: the first page in it. `{seed}` is replaced by the episode's seed, as in
            `index.html?seed={seed}`.
        begin: JavaScript that begins an episode in the loaded page, such as `newGame({seed})`.
        state: JavaScript whose value describes the state, such as `window.state()`.
        ready: JavaScript that is true once an episode can begin.
        head: HTML inserted at the start of each page, such as a `<meta name="viewport">`.
        actions: names of the action types, such as `tap` and `type`; None allows all.
        exit_reward: reward for leaving the app.
        device: a phone in a form that `agentrl.devices.open_device` accepts.
        allow: packages that may be in front besides Chrome.
        render_mode: None or `rgb_array`.

    Raises:
        InvalidArgument: the folder does not have the first page, or an argument is invalid.
        DeviceError: the phone cannot be reached.

    `reset` raises EnvError if the page does not load in time, and `step` if the page can no longer
    be read, which voids the episode.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012 - Gymnasium's own

    def __init__(
        self,
        root: str,
        start: str = "index.html",
        begin: str | None = None,
        state: str | None = None,
        ready: str = "true",
        head: str = "",
        actions: Sequence[str] | None = None,
        exit_reward: float = -1.0,
        device: str = "virtual",
        allow: Sequence[str] = (),
        render_mode: str | None = None,
    ) -> None:
        WebApp.check_kwargs(root=root, start=start, actions=actions, exit_reward=exit_reward)
        self.render_mode = render_mode
        self.action_space = ScreenActionSpace(actions)
        self._start, self._begin, self._state, self._ready = start, begin, state, ready
        self._exit_reward = float(exit_reward)
        self._page: DevToolsPage | None = None
        self._known: Info = {}
        """The state behind the last screen."""
        self._changed = True
        self.seed = 0
        """The episode's seed."""
        self._outside = ""
        """The page outside the folder that the agent has opened."""
        self.shares_observations = False
        """Whether to return the same array for an unchanged screen, which Gymnasium forbids."""
        self.device: Device = open_device(device, apps=[APP])
        with contextlib.ExitStack() as undo:
            undo.callback(self.device.close)
            self._head = head + _CARET
            self._server = FolderServer(Path(root))
            undo.callback(self._server.close)
            self._session = AppSession(self.device, CHROME, allow)
            width, height = self.device.size()
            self.observation_space = spaces.Box(0, 255, (height, width, 3), np.uint8)
            undo.pop_all()

    @classmethod
    def check_kwargs(cls, **kwargs: Any) -> None:
        """Check arguments before any phone is started.

        Raises:
            InvalidArgument: an argument has an invalid value.
        """
        root, start = Path(kwargs["root"]), kwargs.get("start", "index.html")
        page = start.partition("?")[0].partition("#")[0]
        if not (root / page).is_file():
            raise InvalidArgument("root", str(root), f"a folder with the page {page}")
        ScreenActionSpace(kwargs.get("actions"))
        if not math.isfinite(kwargs.get("exit_reward", 0.0)):
            raise InvalidArgument("exit_reward", kwargs["exit_reward"], "a finite number")

    @property
    def timings(self) -> Mapping[str, float]:
        """Seconds of the last step."""
        return self._session.timings

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Image, Info]:
        """Open the first page with this seed, by default a random seed."""
        super().reset(seed=seed)
        self.seed = int(self.np_random.integers(2**31)) if seed is None else seed
        self._session.begin_step()
        self._outside = ""
        self._close_page()
        shown = self._session.launch(self._open)
        # Without touches to count, it would wait for an effect.
        if self._settled_state(Wait(0.0) if shown.state is None else _NOOP_KEY) is None:
            raise EnvError(f"{self.device.serial}: {self._start} has left the app by itself")
        self._changed = True
        return self._session.observation(shared=self.shares_observations), self.info()

    def step(self, action: Action) -> tuple[Image, float, bool, bool, Info]:
        """Act, wait until the screen has settled, and read the new state from the page."""
        if not self.action_space.contains(action):
            raise ValueError(f"{action!r} is not an action of {self.action_space}")
        before = self._score(self._known)
        self._session.begin_step()
        state = self._settled_state(action)
        # After leaving, something else is on the screen: keep returning the app's last screen.
        screen, info = self._session.observation(shared=self.shares_observations), self.info()
        if state is None:
            return screen, self._exit_reward, True, False, {**info, "left": True}
        if isinstance(action, Done):
            info["declared"] = action.status or "success"
        over = bool(state.get("done")) or isinstance(action, Done)
        return screen, self._score(state) - before, over, False, info

    def render(self) -> Image | None:
        """Return the last settled screen, with `render_mode="rgb_array"`."""
        return self._session.screen if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        """Stop serving, and release the phone."""
        self._close_page()
        with contextlib.ExitStack() as ends:
            ends.callback(self.device.close)
            ends.callback(self._server.close)
            with contextlib.suppress(DeviceError):  # the phone may be gone, and its tunnel with it
                self.device.reverse_remove(f"tcp:{self._server.server_port}")

    def _settled_state(self, action: Action) -> Info | None:
        """Act, wait until settled, and read the state; None if the agent has left the app."""
        settled = self._session.act(action)
        if settled is None or (state := self._read()) is None:
            return None
        self._known, self._changed = state, settled.changed
        self._session.screen = settled.frame
        return state

    def first_page(self, seed: int) -> str:
        """Return the path of an episode's first page."""
        return self._start.replace("{seed}", str(seed))

    @property
    def _origin(self) -> str:
        return f"http://localhost:{self._server.server_port}"

    def _open(self) -> None:
        """Open the first page on the phone, and begin the episode."""
        port, launch = self._server.server_port, secrets.token_hex(8)
        self._server.head = f'<meta name="{_LAUNCH}" content="{launch}">{self._head}'
        self.device.reverse(f"tcp:{port}", f"tcp:{port}")
        open_url(self.device, f"{self._origin}/{self.first_page(self.seed)}", CHROME)
        self._page = self._loaded(launch)
        if self._begin is not None:
            self.evaluate(self._begin.replace("{seed}", str(self.seed)))

    def _loaded(self, launch: str) -> DevToolsPage:
        """Wait for the page of this launch; Chrome may first show that of an earlier one."""
        deadline_s = self.device.deadlines.launch_s
        end_s, failure = time.monotonic() + deadline_s, "Chrome does not list it"
        is_ready = (
            f"document.querySelector('meta[name={_LAUNCH}]')?.content === '{launch}' && "
            f"document.readyState === 'complete' && Boolean({self._ready})"
        )
        while time.monotonic() < end_s:
            page: DevToolsPage | None = None
            try:
                page = self._find()
                if page is not None:
                    if page.evaluate(is_ready):
                        return page
                    failure = "it does not load"
            except (DeviceOffline, LeaseLost):
                raise
            except DeviceError as error:  # Chrome is starting, or the page is being replaced
                failure = str(error)
            if page is not None:
                page.close()
            time.sleep(_POLL_S)
        raise EnvError(
            f"{self.device.serial}: Chrome was started with a page of {self._origin}, but is not "
            f"ready after {deadline_s:g} s: {failure}"
        )

    def _find(self) -> DevToolsPage | None:
        for page in pages(self.device):
            if str(page.get("url")).startswith(f"{self._origin}/"):
                return DevToolsPage(self.device, page)
        return None

    def _close_page(self) -> None:
        if self._page is not None:
            self._page.close()
            self._page = None

    def evaluate(self, expression: str) -> Any:
        """Evaluate JavaScript in the page.

        Raises:
            EnvError: it failed, or the page does not answer.
            DeviceError: the phone does not answer.
        """
        assert self._page is not None, "reset opens the page"
        try:
            return self._page.evaluate(expression)
        except DeviceError as error:
            self.device.focus()  # raises if it is the phone that fails
            raise EnvError(str(error)) from error

    def _read(self) -> Info | None:
        """Return the state of the page; None if another page is shown, from outside the folder.

        Raises:
            EnvError: the page does not answer, or its state is invalid.
        """
        # Another page would not know the expression; another tab hides this one.
        value = self.evaluate(
            f"location.origin !== '{self._origin}' || document.visibilityState === 'hidden' "
            f"? location.href : ({self._state or '({})'}) ?? null"
        )
        if isinstance(value, str):
            self._outside = value[:_MAX_URL]
            return None
        if not isinstance(value, dict):
            raise EnvError(
                f"{self.device.serial}: env.kwargs.state={self._state} is {str(value)[:200]} in "
                "the page, not an object"
            )
        if reserved := [name for name in _RESERVED if name in value]:
            raise EnvError(
                f"{self.device.serial}: env.kwargs.state={self._state} has the reserved keys "
                f"{', '.join(reserved)}; rename them"
            )
        return value

    def _score(self, state: Info) -> float:
        score = state.get("score", 0.0)
        if isinstance(score, bool | int | float) and math.isfinite(score):
            return float(score)
        raise EnvError(
            f"{self.device.serial}: the page's score is {str(score)[:200]}, not a finite number"
        )

    def info(self) -> Info:
        """Return the state of the page, and what happened in the last step."""
        events = self._session.events
        return {
            **copy.deepcopy(self._known),
            **({"guard": events[-1].to_info()} if events else {}),
            "changed": self._changed,
            "side_effects": [
                *(one.package or one.kind for one in events if one.by == "agent"),
                *([self._outside] if self._outside else []),
            ],
        }


class WebAppTranslator(SpaceTranslator):
    """Shows the screen and the state's `instruction`.

    Args:
        actions: see `WebApp`.
        instructions: how to play; the answer format is appended. None gives only the answer
            format, and an empty string gives no instructions.
        text: Jinja2 template for the text beside the screen, which may use `info`.
        style: how actions are written without `env.dialect`: `tag` or `tool`.
    """

    def __init__(
        self,
        actions: Sequence[str] | None = None,
        instructions: str | None = None,
        text: str = "{{ info.instruction | default('') }}",
        style: str = "tag",
    ) -> None:
        space = ScreenActionSpace(actions)
        super().__init__(space, instructions=instructions, text=text, style=style)
