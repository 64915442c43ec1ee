"""The messages of a chat, and their conversion to a row for supervised fine-tuning."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentrl.errors import ConfigError
from agentrl.policies.engines.chat_completions_format import data_url
from agentrl.text.formatting import encodable, pluralize
from agentrl.types import IMAGE, Image, Message


class ChatHistory:
    """Alternating questions and replies.

    Args:
        system: the system message; may be empty.
    """

    def __init__(self, system: str = "") -> None:
        self.system = system
        self.messages: list[Message] = []

    def ask(self, text: str, images: Sequence[Image] = ()) -> None:
        """Add a question; `<image>` marks an image's position, by default before the text.

        Raises:
            ConfigError: the text is empty, or the numbers of `<image>` and of images differ.
        """
        text = encodable(text)
        if not text.strip() and not images:
            raise ConfigError("the message is empty")
        placeholders = text.count(IMAGE)
        if placeholders not in (0, len(images)):
            raise ConfigError(
                f"the message has {placeholders} {IMAGE} for {pluralize(len(images), 'image')}; "
                "write one for each image, or leave out all of them"
            )
        text = text if placeholders else IMAGE * len(images) + text
        self.messages.append(Message(role="user", text=text, images=tuple(images)))

    def answer(self, text: str) -> None:
        """Add the reply to the last question."""
        self.messages.append(Message(role="assistant", text=encodable(text)))

    def withdraw(self) -> None:
        """Remove the last, unanswered question."""
        self.messages.pop()

    def reset(self) -> None:
        """Remove all messages."""
        self.messages.clear()

    def row(self) -> dict[str, Any]:
        """Return a row for `agentrl sft`: `messages`, and `images` as data URLs.

        Raises:
            ConfigError: there is no reply, or a reply contains `<image>`, which rows cannot
                express.
        """
        replies = [message.text for message in self.messages if message.role == "assistant"]
        if not replies:
            raise ConfigError("there is no reply to save yet")
        if any(IMAGE in reply for reply in replies):
            raise ConfigError(f"a reply contains {IMAGE}, which would be read as an image in a row")
        system = [{"role": "system", "content": self.system}] if self.system else []
        said = [{"role": message.role, "content": message.text} for message in self.messages]
        # A row lists all images next to the messages; each <image> stands for the next image.
        images = [data_url(image) for message in self.messages for image in message.images]
        return {"messages": system + said, "images": images}

    def save(self, path: Path) -> None:
        """Append the row to a JSONL file.

        Raises:
            ConfigError: see `row`; or the file has another suffix or cannot be written.
        """
        if path.suffix != ".jsonl":
            raise ConfigError(f"{path}: must end in .jsonl")
        line = json.dumps(self.row(), ensure_ascii=False) + "\n"
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(line)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {error}") from error
