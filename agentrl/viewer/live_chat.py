"""State of a chat with a model on a web page."""

import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any

import cv2

from agentrl.data.image_loading import ImageError, is_data_uri, load_image
from agentrl.errors import AgentRLError, ConfigError
from agentrl.text import one_line
from agentrl.training.inference.chat_history import ChatHistory
from agentrl.training.inference.inference_model import GeneratedReply
from agentrl.training.inference.model_thread import ModelThread
from agentrl.types import Message, without_placeholders

_MAX_TEXT = 100_000
"""Characters of a message."""
_MAX_IMAGES = 16
"""Maximum number of images of a message."""


class LiveChat:
    """A conversation that all pages of a server share; one reply at a time.

    Args:
        model: replies.
        history: of the chat.
        title: of the page.
    """

    def __init__(self, model: ModelThread, history: ChatHistory, title: str) -> None:
        self._model, self._history, self._title = model, history, title
        self._lock = threading.Lock()
        self._reply: Future[GeneratedReply] | None = None
        """The reply in progress."""
        self._partial = self._error = ""
        self._was_cut = False
        """Whether the last reply has reached its maximum length."""
        self._version = 0
        """Number of changes so far."""

    def now(self) -> dict[str, Any]:
        """Return the content of the page as JSON values; it requests the images by number."""
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
        """An image of a message, as PNG.

        Raises:
            ConfigError: there is none.
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
        """Begin the reply to a message.

        Args:
            text: of the message.
            pictures: data URLs of its images. Paths are refused: a page names no files.

        Raises:
            ConfigError: the message cannot be used, or the last reply is not complete.
        """
        if not isinstance(text, str) or len(text) > _MAX_TEXT:
            raise ConfigError(f"a message is text of at most {_MAX_TEXT:,} characters")
        if not isinstance(pictures, list) or len(pictures) > _MAX_IMAGES:
            raise ConfigError(f"a message has at most {_MAX_IMAGES} images")
        images = _decoded(pictures)
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
                self._withdraw("stopped; the message is forgotten")
            except (AgentRLError, ValueError) as error:
                self._withdraw(f"{one_line(str(error), 500)}. The message is forgotten")
            else:
                self._history.answer(found.text)
                self._was_cut = found.finish_reason == "length"

    def _withdraw(self, why: str) -> None:
        self._history.withdraw()
        self._error = why

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
        """The conversation as a row for `agentrl sft`; see `ChatHistory.row`."""
        with self._lock:
            return self._history.row()


def _shown(message: Message) -> dict[str, Any]:
    text = without_placeholders(message.text) if message.role == "user" else message.text
    return {"role": message.role, "text": _plain(text), "images": len(message.images)}


def _plain(text: str) -> str:
    return text.replace("\t", "    ")  # other control characters are shown


def _decoded(pictures: Sequence[Any]) -> list[Any]:
    for picture in pictures:
        if not is_data_uri(picture):
            raise ConfigError("an image must be a data URL")
    try:
        return [load_image(picture, Path()) for picture in pictures]
    except ImageError as error:
        raise ConfigError(str(error)) from None
