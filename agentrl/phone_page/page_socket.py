"""Server side of one page's WebSocket: frames out, gestures in, each with a deadline."""

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from fastapi import WebSocket, WebSocketDisconnect

from agentrl.errors import DeviceTimeout
from agentrl.phone_page import page_messages, painted_frames
from agentrl.phone_page.page_app import PageApp
from agentrl.phone_page.page_connection_state import CloseReason
from agentrl.phone_page.page_messages import (
    BadMessage,
    FramePainted,
    Gesture,
    PageHello,
    PageMessage,
    PageResized,
    VisibilityChanged,
)
from agentrl.worker_thread import Worker

log = logging.getLogger(__name__)
T = TypeVar("T")

_HELLO_S = 10.0
_CALL_S = 10.0
"""Seconds that the app may take to process a touch or to draw itself."""
_SEND_S = 10.0
_BEAT_S = 2.0
"""Interval between heartbeats; the page reconnects after missing three."""


@dataclass(slots=True, frozen=True)
class _Ending:
    """Close code and reason of a connection; the page interprets the codes."""

    code: int
    reason: str


_ENDINGS: Final = {
    CloseReason.REPLACED: _Ending(4001, "replaced by another page"),
    CloseReason.DROPPED: _Ending(4002, "dropped; reconnect"),
}


class PageConnection:
    """Serves one page until either side closes; runs on the server's event loop."""

    def __init__(self, app: PageApp, socket: WebSocket) -> None:
        self._app = app
        self._socket = socket
        self._loop = asyncio.get_running_loop()
        self._changed, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()
        self._in_flight = 0
        self._ending: asyncio.Future[_Ending] = self._loop.create_future()
        # Each page has its own thread, so that a slow app does not block the other pages.
        self._worker = Worker(f"page of {app.package}")

    def wake(self) -> None:
        """Signal that there is a new frame to show."""
        self._soon(self._changed.set)

    def end(self, why: CloseReason) -> None:
        """Close the connection."""
        self._soon(self._end, _ENDINGS[why])

    async def serve(self) -> None:
        """Accept the page and serve it."""
        await self._socket.accept()
        try:
            ending = await self._run()
        finally:
            self._worker.close(lambda: self._app.disconnect(self))
        if ending is not None:
            log.info("%s: closed the page (%s)", self._app.package, ending.reason)
            with contextlib.suppress(RuntimeError, WebSocketDisconnect, TimeoutError):
                await asyncio.wait_for(
                    self._socket.close(ending.code, ending.reason[:100]), _SEND_S
                )

    async def _run(self) -> _Ending | None:
        """Run all parts of the connection; return how to close it, or None if the page left."""
        try:
            await self._welcome()
            return await self._until_first_ends(
                self._read(), self._write(), self._beat(), self._pass_time(), self._ended()
            )
        except (WebSocketDisconnect, ConnectionError):
            return None
        except BadMessage as error:
            log.warning(
                "%s: closed the page because of a bad message: %s", self._app.package, error
            )
            return _Ending(4400, "invalid message")
        except (DeviceTimeout, TimeoutError) as error:
            log.warning("%s: closed the page: %s", self._app.package, str(error) or "no answer")
            return _Ending(4500, "no answer in time")

    async def _until_first_ends(self, *parts: Coroutine[Any, Any, T]) -> T:
        """Return the result of the first part to end, canceling the others."""
        tasks = [self._loop.create_task(part) for part in parts]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            for task in tasks:
                task.cancel()
            # Ignore their errors, because the connection is ending anyway.
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _welcome(self) -> None:
        hello = await asyncio.wait_for(self._receive(), _HELLO_S)
        if not isinstance(hello, PageHello):
            raise BadMessage("the first message must be hello")
        handled, replaced = await self._call(self._app.connect, self, hello)
        if replaced:
            log.info("%s: a newer page replaced the previous one", self._app.package)
        await self._send({"type": "welcome", "handled": handled, "replaced": replaced})

    async def _read(self) -> _Ending | None:
        while True:
            message = await self._receive()
            if isinstance(message, Gesture):
                handled = await self._call(self._app.gesture, self, message)
                await self._send({"type": "handled", "number": handled})
            elif isinstance(message, FramePainted):
                await self._call(self._app.paint, self, message.frame)
                if message.frame == self._in_flight:
                    self._idle.set()
            elif isinstance(message, PageResized):
                await self._call(self._app.resize, self, message.width, message.height)
            elif isinstance(message, VisibilityChanged):
                await self._call(self._app.set_visible, self, message.visible)
            else:
                raise BadMessage("hello may only be sent once")

    async def _write(self) -> _Ending | None:
        """Send the newest frame, one at a time, so that a slow page skips frames but never lags."""
        while True:
            await self._changed.wait()
            await self._idle.wait()
            # Clear before drawing, so that a change while drawing triggers the next frame.
            self._changed.clear()
            drawn = await self._call(self._app.draw)
            frame = await self._call(painted_frames.encode_frame, drawn)
            self._in_flight = drawn.number
            self._idle.clear()
            await asyncio.wait_for(self._socket.send_bytes(frame), _SEND_S)

    async def _beat(self) -> _Ending | None:
        while True:
            await asyncio.sleep(_BEAT_S)
            await self._send({"type": "beat"})

    async def _pass_time(self) -> _Ending | None:
        while True:
            wait_s = await self._call(self._app.pass_time, self._loop.time())
            await asyncio.sleep(wait_s)

    async def _ended(self) -> _Ending | None:
        return await self._ending

    async def _receive(self) -> PageMessage:
        event = await self._socket.receive()
        if event["type"] == "websocket.disconnect":
            code = event.get("code")
            # The server itself closed the connection because of `ws_max_size`.
            if code == 1009:
                log.warning("%s: closed the page because a message was too long", self._app.package)
            raise WebSocketDisconnect(code or 1005)
        text = event.get("text")
        if text is None:
            raise BadMessage("messages must be text, not binary")
        return page_messages.parse_message(text)

    async def _send(self, message: dict[str, Any]) -> None:
        await asyncio.wait_for(self._socket.send_text(json.dumps(message)), _SEND_S)

    async def _call(self, function: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.wait_for(self._worker.call(function, *arguments), _CALL_S)

    def _end(self, ending: _Ending) -> None:
        if not self._ending.done():
            self._ending.set_result(ending)

    def _soon(self, act: Callable[..., None], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and so is the page
            self._loop.call_soon_threadsafe(act, *arguments)
