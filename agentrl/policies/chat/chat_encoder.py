"""Encode messages and images as token ids, exactly once.

The format is ChatML, as in Qwen's templates. Special tokens are inserted as ids and everything else
is encoded as plain text, so that no text of a game or a model can pass for a special token.
"""

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from agentrl.errors import ConfigError
from agentrl.policies.models import ModelAdapter, adapter_for
from agentrl.policies.models.model_adapter import read_json
from agentrl.types import IMAGE, Image, Message

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_QWEN_SYSTEM = "You are a helpful assistant."


class ChatEncoder:
    """Encodes the messages of one model.

    Args:
        path: the model's folder.
        image_size: [width, height] that images are scaled to; None keeps their aspect ratio.
        max_pixels: limits the area of images where no size is given.

    Raises:
        ConfigError: the model has no tokenizer.json, or one without ChatML's special tokens.
    """

    def __init__(
        self, path: Path, image_size: Sequence[int] | None = None, max_pixels: int = 602112
    ) -> None:
        self.model_adapter: ModelAdapter = adapter_for(path)
        self._tokenizer = _open_tokenizer(path)
        self._image_size = (image_size[0], image_size[1]) if image_size else None
        self._max_pixels = max_pixels
        self.start_id, self.end_id = (self._marker(path, m) for m in ("<|im_start|>", "<|im_end|>"))
        self.eos_token_ids = _eos_token_ids(path, self.end_id)
        added = self._tokenizer.get_added_tokens_decoder()
        names = [token.content for token in added.values() if token.special]
        names += [
            str(self._tokenizer.id_to_token(id)) for id in self.model_adapter.banned_token_ids
        ]
        self._markers = re.compile("|".join(re.escape(n) for n in sorted(set(names))))
        self._newline = self.text_ids("\n")
        self._default_system = _QWEN_SYSTEM if _QWEN_SYSTEM in chat_template(path) else ""

    def _marker(self, path: Path, name: str) -> int:
        id = self._tokenizer.token_to_id(name)
        if id is None:
            raise ConfigError(
                f"model.path={path}: its tokenizer has no {name}; agentrl needs ChatML"
            )
        return int(id)

    def seen_size(self, size: tuple[int, int]) -> tuple[int, int]:
        """Width and height at which the model sees an image of this width and height."""
        blank = np.zeros((size[1], size[0], 3), np.uint8)
        seen = self.model_adapter.scale(blank, self._image_size, self._max_pixels)
        return seen.shape[1], seen.shape[0]

    def text_ids(self, text: str) -> tuple[int, ...]:
        """The ids of plain text; text that looks like a special token stays text."""
        cuts = [0, *(match.start() + 1 for match in self._markers.finditer(text)), len(text)]
        pieces = [text[a:b] for a, b in itertools.pairwise(cuts)]
        encode = self._tokenizer.encode
        return tuple(id for piece in pieces for id in encode(piece, add_special_tokens=False).ids)

    def text(self, token_ids: Sequence[int]) -> str:
        """Decode ids, without special tokens."""
        return str(self._tokenizer.decode(list(token_ids), skip_special_tokens=True))

    def preamble(self, instructions: str) -> tuple[int, ...]:
        """The system message; the model's default one if there are no instructions."""
        text = instructions or self._default_system
        return self._message("system", text, ())[0] if text else ()

    def question(self, message: Message) -> tuple[tuple[int, ...], tuple[Image, ...]]:
        """A message and the header of the reply to it.

        Returns:
            the ids, and the message's images as the model sees them.

        Raises:
            ValueError: the number of `<image>` placeholders and of images differ.
        """
        ids, images = self._message(message.role, message.text, message.images)
        return (*ids, *self.opening()), images

    def opening(self) -> tuple[int, ...]:
        """The header of a reply, which is also the shortest prompt."""
        return (self.start_id, *self.text_ids("assistant\n"))

    def closing(self, reply_ids: Sequence[int]) -> tuple[int, ...]:
        """The tokens between a reply and the next message."""
        ended = bool(reply_ids) and reply_ids[-1] == self.end_id
        return self._newline if ended else (self.end_id, *self._newline)

    def reply_ids(self, reply: str) -> tuple[int, ...]:
        """The ids of a reply with its end token, as if it were sampled."""
        return (*self.text_ids(reply), self.end_id)

    def _message(
        self, role: str, text: str, images: Sequence[Image]
    ) -> tuple[tuple[int, ...], tuple[Image, ...]]:
        first, *pieces = f"{role}\n{text}".split(IMAGE)
        if len(pieces) != len(images):
            raise ValueError(
                f"a message with {len(pieces)} {IMAGE} placeholders has {len(images)} images"
            )
        scaled = tuple(
            self.model_adapter.scale(i, self._image_size, self._max_pixels) for i in images
        )
        ids = [self.start_id, *self.text_ids(first)]
        for image, piece in zip(scaled, pieces, strict=True):
            ids += (*self.model_adapter.image_markup(image), *self.text_ids(piece))
        return (*ids, self.end_id, *self._newline), scaled


def _open_tokenizer(path: Path) -> "Tokenizer":
    from tokenizers import Tokenizer

    read_json(path / "tokenizer.json")
    return Tokenizer.from_file(str(path / "tokenizer.json"))


def chat_template(path: Path) -> str:
    """The chat template in a model's folder; empty without one."""
    if (path / "chat_template.jinja").is_file():
        return (path / "chat_template.jinja").read_text(encoding="utf-8")
    for name in ("chat_template.json", "tokenizer_config.json"):
        if (path / name).is_file() and (found := read_json(path / name).get("chat_template")):
            return str(found)
    return ""


def _eos_token_ids(path: Path, end_id: int) -> tuple[int, ...]:
    """The tokens that end a reply: ChatML's, and those of the model's generation config."""
    named: int | list[int] = []
    if (path / "generation_config.json").is_file():
        named = read_json(path / "generation_config.json").get("eos_token_id") or []
    return tuple(sorted({end_id, *(named if isinstance(named, list) else [named])}))
