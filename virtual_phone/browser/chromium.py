"""The Chromium process that the browsers of all phones of a process share."""

import asyncio
import os
import shutil
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from virtual_phone.errors import SettingError

try:
    from playwright.async_api import Browser, BrowserContext, Error, Playwright, async_playwright
except ModuleNotFoundError as error:
    raise SettingError(
        "the browser needs playwright, which is not installed; run: "
        "pip install 'agentrl-screens[browser]'"
    ) from error

EXECUTABLE = "AGENTRL_CHROMIUM"
"""Environment variable with the path of Chromium."""
SANDBOX = "AGENTRL_CHROMIUM_SANDBOX"
"""Environment variable; `0` starts Chromium without its sandbox, where the system has none."""
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
START_S, _STOP_S = 60.0, 5.0
"""Time limits for Chromium's start and end, in seconds."""
_ARGUMENTS = (
    "--disable-background-networking", "--disable-component-update", "--disable-default-apps",
    "--disable-sync", "--no-first-run",
    # Everything goes through the proxy of a context, also WebRTC.
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
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


def executable() -> Path:
    """Return the path of Chromium.

    Raises:
        SettingError: there is none.
    """
    named = os.environ.get(EXECUTABLE)
    if named and not os.access(named, os.X_OK):
        raise SettingError(f"{EXECUTABLE}={named}: this program does not exist")
    found = named or next(filter(None, map(shutil.which, _NAMES)), None)
    if not found:
        raise SettingError(
            "the browser needs Chromium, which is not installed; run: apt-get install chromium, or "
            f"set {EXECUTABLE} to the path of another one"
        )
    return Path(found)


async def open_context(scale: float, proxy: str) -> tuple[Chromium, BrowserContext]:
    """Open an empty profile in this process's Chromium, which is started if needed.

    Args:
        scale: number of pixels per CSS pixel.
        proxy: URL of a proxy for all connections.

    Raises:
        Error: Chromium cannot be started.
    """
    browser = await _shared(scale)
    try:
        return browser, await browser.new_context(proxy)
    except Error:
        # The driver may have ended, which the browser does not notice.
        if await _answers(browser):
            raise
        task = _running.get(scale)
        if task is not None and task.done() and not task.exception() and task.result() is browser:
            del _running[scale]
            await _stop(browser)
    browser = await _shared(scale)
    return browser, await browser.new_context(proxy)


async def _answers(chromium: Chromium) -> bool:
    try:
        await (await chromium.browser.new_browser_cdp_session()).detach()
    except Error:
        return False
    return True


async def _shared(scale: float) -> Chromium:
    task = _running.get(scale)
    if task is not None and task.done():
        if task.exception() is not None:
            task = None
        elif not task.result().browser.is_connected():
            await _stop(task.result())
            task = None
    if task is None:
        task = _running[scale] = asyncio.get_running_loop().create_task(_start(scale))
    return await asyncio.shield(task)


async def close_all() -> None:
    """End every Chromium of this process."""
    tasks = [*_running.values()]
    _running.clear()
    for started in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(started, Chromium):
            await _stop(started)


async def _start(scale: float) -> Chromium:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    # Frames of the screencast have this many pixels per CSS pixel, whatever a page emulates.
    arguments = [*_ARGUMENTS, f"--force-device-scale-factor={scale:g}"]
    arguments.append(f"--remote-debugging-port={port}")
    # If this process is killed, the driver reads the end of its standard input and ends Chromium.
    playwright = await async_playwright().start()
    try:
        browser = await playwright.chromium.launch(
            executable_path=executable(), args=arguments, timeout=START_S * 1000,
            chromium_sandbox=os.geteuid() != 0 and os.environ.get(SANDBOX) != "0",
            # Chromium itself knows which windows a touch has opened.
            ignore_default_args=["--disable-popup-blocking"],
        )  # fmt: skip
    except BaseException:
        await playwright.stop()
        raise
    return Chromium(playwright=playwright, browser=browser, devtools_port=port)


async def _stop(started: Chromium) -> None:
    with suppress(Exception):  # it may have ended already
        async with asyncio.timeout(_STOP_S):
            await started.playwright.stop()
