"""The Chromium process that the browsers of all phones of a process share."""

import asyncio
import os
import shutil
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from playwright.async_api import Browser, BrowserContext, Error, Playwright, async_playwright

from virtual_phone.errors import SettingError

EXECUTABLE = "AGENTRL_CHROMIUM"
"""Environment variable with the path of Chromium."""
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_START_S, _STOP_S = 60.0, 5.0
_ARGUMENTS = (
    "--disable-background-networking", "--disable-component-update", "--disable-default-apps",
    "--disable-sync", "--no-first-run", "--hide-scrollbars",
    # Everything goes through the proxy, also requests to this machine and WebRTC.
    "--proxy-bypass-list=<-loopback>", "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--disable-quic", "--js-flags=--max-old-space-size=256",
)  # fmt: skip


@dataclass(slots=True, kw_only=True, frozen=True)
class Chromium:
    """A running Chromium."""

    playwright: Playwright
    browser: Browser
    devtools_port: int
    """Port of its DevTools protocol on the loopback of this machine."""

    async def new_context(self, proxy: str) -> BrowserContext:
        """Open an empty profile, whose connections all go through a proxy (its URL)."""
        return await self.browser.new_context(
            no_viewport=True, has_touch=True, accept_downloads=False, service_workers="block",
            proxy={"server": proxy},
        )  # fmt: skip


_running: "dict[float, asyncio.Task[Chromium]]" = {}
"""The Chromium of this process by scale."""


def executable() -> Path | None:
    """Return the path of Chromium; None uses the one that Playwright has installed.

    Raises:
        SettingError: the environment variable names no file.
    """
    named = os.environ.get(EXECUTABLE)
    if named and not os.access(named, os.X_OK):
        raise SettingError(f"{EXECUTABLE}={named}: this program does not exist")
    found = named or next(filter(None, map(shutil.which, _NAMES)), None)
    return Path(found) if found else None


async def shared(scale: float) -> Chromium:
    """Return this process's Chromium with some number of pixels per CSS pixel; start it if needed.

    Raises:
        Error: it cannot be started.
    """
    task = _running.get(scale)
    if task is None or (
        task.done() and (task.exception() or not task.result().browser.is_connected())
    ):
        task = _running[scale] = asyncio.get_running_loop().create_task(_start(scale))
    return await asyncio.shield(task)


async def close_all() -> None:
    """End every Chromium of this process."""
    for task in _running.values():
        with suppress(Error, TimeoutError):
            async with asyncio.timeout(_STOP_S):
                await (await task).playwright.stop()
    _running.clear()


async def _start(scale: float) -> Chromium:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    # Frames of the screencast have this many pixels per CSS pixel, whatever a page emulates.
    arguments = [*_ARGUMENTS, f"--force-device-scale-factor={scale:g}"]
    arguments.append(f"--remote-debugging-port={port}")
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")
    # If this process is killed, the driver reads the end of its standard input and ends Chromium.
    playwright = await async_playwright().start()
    browser = await playwright.chromium.launch(
        executable_path=executable(), args=arguments, timeout=_START_S * 1000
    )
    return Chromium(playwright=playwright, browser=browser, devtools_port=port)
