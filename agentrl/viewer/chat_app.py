"""Chat with a model on a web page: the conversation's state, and the web application."""

import json
import threading
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any

import cv2
from fastapi import FastAPI, Request, Response

from agentrl.data.image_loading import ImageError, is_data_uri, load_image
from agentrl.errors import AgentRLError, ConfigError
from agentrl.text.formatting import one_line
from agentrl.training.inference.background_model import ModelThread
from agentrl.training.inference.chat_history import ChatHistory
from agentrl.training.inference.inference_model import GeneratedReply
from agentrl.types import Message, without_placeholders
from agentrl.viewer.access_control import CHANGES, AccessGuard
from agentrl.viewer.web_app_base import add_files, as_json, new_application, static_files

_MAX_TEXT = 100_000
"""Maximum length of a message, in characters."""
_MAX_IMAGES = 16
"""Maximum number of images in a message."""
_MAX_BYTES = 64 << 20
"""Maximum size of a request with its images, in bytes."""


class LiveChat:
    """A conversation shared by all pages of a server, with one reply at a time."""

    def __init__(self, model: ModelThread, history: ChatHistory, title: str) -> None:
        self._model, self._history, self._title = model, history, title
        self._lock = threading.Lock()
        self._reply: Future[GeneratedReply] | None = None
        """The reply in progress."""
        self._partial = self._error = ""
        self._was_cut = False
        """Whether the last reply was cut off at its maximum length."""
        self._version = 0
        """Number of changes so far."""

    def now(self) -> dict[str, Any]:
        """Return the page's content as JSON values; the page requests images by number."""
        with self._lock:
            return {
                "version": self._version,
                "title": self._title,
                "system": self._history.system,
                "messages": [_shown(message) for message in self._history.messages],
                "answering": self._reply is not None,
                "partial": _plain(self._partial.rstrip("\ufffd")),
                "cut": self._was_cut,
                "error": self._error,
            }

    def picture(self, message: int, number: int) -> bytes:
        """Return an image of a message, as PNG.

        Raises:
            ConfigError: the image does not exist.
        """
        with self._lock:
            messages = self._history.messages
            images = messages[message].images if 0 <= message < len(messages) else ()
        if not 0 <= number < len(images):
            raise ConfigError(f"message {message} has no image {number}")
        done, encoded = cv2.imencode(".png", cv2.cvtColor(images[number], cv2.COLOR_RGB2BGR))
        assert done, f"cv2 cannot encode {images[number].shape}"
        return encoded.tobytes()

    def ask(self, text: Any, pictures: Any) -> None:
        """Start to generate the reply to a message.

        Raises:
            ConfigError: the message is invalid, or the last reply is not complete.
        """
        if not isinstance(text, str) or len(text) > _MAX_TEXT:
            raise ConfigError(f"a message must be a string of at most {_MAX_TEXT:,} characters")
        if not isinstance(pictures, list) or len(pictures) > _MAX_IMAGES:
            raise ConfigError(f"a message can have at most {_MAX_IMAGES} images")
        # A page must not refer to files on this machine.
        if not all(map(is_data_uri, pictures)):
            raise ConfigError("an image must be a data URL")
        try:
            images = [load_image(picture, Path()) for picture in pictures]
        except ImageError as error:
            raise ConfigError(str(error)) from None
        with self._lock:
            if self._reply is not None:
                raise ConfigError("wait for the reply, or stop it")
            self._history.ask(text, images)
            self._partial, self._error, self._was_cut = "", "", False
            self._version += 1
            asked = self._model.start_reply(
                self._history.system, self._history.messages, self._show
            )
            self._reply = asked
        # Add the callback outside the lock, because it runs immediately if the reply is complete.
        asked.add_done_callback(self._finish)

    def _show(self, text: str) -> None:
        with self._lock:
            self._partial = text
            self._version += 1

    def _finish(self, reply: "Future[GeneratedReply]") -> None:
        with self._lock:
            self._reply, self._partial = None, ""
            self._version += 1
            try:
                found = reply.result()
            except CancelledError:
                self._error = "stopped; your message was dropped"
                self._history.withdraw()
            except (AgentRLError, ValueError) as error:
                self._error = f"{one_line(str(error), 500)}. Your message was dropped"
                self._history.withdraw()
            else:
                self._history.answer(found.text)
                self._was_cut = found.finish_reason == "length"

    def stop(self) -> None:
        """Stop the reply in progress, if there is one."""
        with self._lock:
            reply = self._reply
        if reply is not None:
            reply.cancel()

    def reset(self) -> None:
        """Begin a new conversation.

        Raises:
            ConfigError: a reply is in progress.
        """
        with self._lock:
            if self._reply is not None:
                raise ConfigError("wait for the reply, or stop it")
            self._history.reset()
            self._error, self._was_cut = "", False
            self._version += 1

    def row(self) -> dict[str, Any]:
        """Return the conversation as a row for `agentrl sft`; see `ChatHistory.row`."""
        with self._lock:
            return self._history.row()


def _shown(message: Message) -> dict[str, Any]:
    text = without_placeholders(message.text) if message.role == "user" else message.text
    return {"role": message.role, "text": _plain(text), "images": len(message.images)}


def _plain(text: str) -> str:
    # Replace tabs, which `as_json` would escape like all control characters.
    return text.replace("\t", "    ")


def chat_application(chat: LiveChat, guard: AccessGuard) -> FastAPI:
    """Create the ASGI application."""
    app = new_application(guard)
    app.state.close = chat.stop
    add_files(app, static_files(), "chat.html", ("/",))

    @app.get("/api/chat")
    def now() -> Response:
        return as_json(chat.now())

    @app.get("/api/chat/pictures/{message}/{number}")
    def picture(message: int, number: int) -> Response:
        shown = chat.picture(message, number)
        return Response(shown, media_type="image/png", headers={"Cache-Control": "no-store"})

    @app.get("/api/chat/row")
    def row() -> Response:
        line = json.dumps(chat.row(), ensure_ascii=False) + "\n"
        name = {"Content-Disposition": 'attachment; filename="chat.jsonl"'}
        return Response(line.encode(), media_type="application/jsonl", headers=name)

    @app.post("/api/chat/message", dependencies=CHANGES)
    async def message(request: Request) -> Response:
        asked = await _body(request)
        chat.ask(asked.get("text"), asked.get("images"))
        return as_json({})

    @app.post("/api/chat/stop", dependencies=CHANGES)
    def stop() -> Response:
        chat.stop()
        return as_json({})

    @app.post("/api/chat/reset", dependencies=CHANGES)
    def reset() -> Response:
        chat.reset()
        return as_json({})

    return app


async def _body(request: Request) -> dict[str, Any]:
    """Return the JSON object of a request.

    Raises:
        ConfigError: the body is not a JSON object, or too large.
    """
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > _MAX_BYTES:
            raise ConfigError(
                f"a message can have at most {_MAX_BYTES >> 20} MiB; send smaller images"
            )
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ConfigError("a request must be a JSON object")
    return found
