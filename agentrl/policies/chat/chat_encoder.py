"""Messages and pictures become token ids, exactly once.

The format is ChatML, as Qwen's templates write it. Markers are put in as ids and everything else
is encoded as plain text, so that no words of a game or a model can pass for a marker.
"""

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

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
        image_size: [width, height] that pictures are scaled to; None keeps their shape.
        max_pixels: bounds the area of pictures where no size is given.

    Raises:
        ConfigError: the model has no tokenizer.json, or one without ChatML's markers.
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
        self._default_system = _QWEN_SYSTEM if _QWEN_SYSTEM in _template(path) else ""

    def _marker(self, path: Path, name: str) -> int:
        id = self._tokenizer.token_to_id(name)
        if id is None:
            raise ConfigError(
                f"model.path={path}: its tokenizer has no {name}; agentrl needs ChatML"
            )
        return int(id)

    def text_ids(self, text: str) -> tuple[int, ...]:
        """The ids of plain text; what looks like a marker stays text."""
        cuts = [0, *(match.start() + 1 for match in self._markers.finditer(text)), len(text)]
        pieces = [text[a:b] for a, b in itertools.pairwise(cuts)]
        encode = self._tokenizer.encode
        return tuple(id for piece in pieces for id in encode(piece, add_special_tokens=False).ids)

    def text(self, token_ids: Sequence[int]) -> str:
        """What ids read as, without markers."""
        return str(self._tokenizer.decode(list(token_ids), skip_special_tokens=True))

    def preamble(self, instructions: str) -> tuple[int, ...]:
        """The system's message; the model's own where there are no instructions."""
        words = instructions or self._default_system
        return self._message("system", words, ())[0] if words else ()

    def question(self, message: Message) -> tuple[tuple[int, ...], tuple[Image, ...]]:
        """A message and the words that open the reply to it.

        Returns:
            the ids, and the message's pictures as the model sees them.

        Raises:
            ValueError: `<image>` does not stand once for each picture.
        """
        ids, images = self._message(message.role, message.text, message.images)
        return (*ids, *self.opening()), images

    def opening(self) -> tuple[int, ...]:
        """The shortest prompt: the words that open a reply to nothing."""
        return (self.start_id, *self.text_ids("assistant\n"))

    def closing(self, reply_ids: Sequence[int]) -> tuple[int, ...]:
        """What follows a reply before the next message."""
        ended = bool(reply_ids) and reply_ids[-1] == self.end_id
        return self._newline if ended else (self.end_id, *self._newline)

    def reply_ids(self, reply: str) -> tuple[int, ...]:
        """A reply as if it were sampled, with its end."""
        return (*self.text_ids(reply), self.end_id)

    def _message(
        self, role: str, text: str, images: Sequence[Image]
    ) -> tuple[tuple[int, ...], tuple[Image, ...]]:
        first, *pieces = f"{role}\n{text}".split(IMAGE)
        if len(pieces) != len(images):
            raise ValueError(
                f"a message with {len(pieces)} times {IMAGE} has {len(images)} pictures"
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


def _template(path: Path) -> str:
    if (path / "chat_template.jinja").is_file():
        return (path / "chat_template.jinja").read_text(encoding="utf-8")
    for name in ("chat_template.json", "tokenizer_config.json"):
        if (path / name).is_file() and (found := read_json(path / name).get("chat_template")):
            return str(found)
    return ""


def _eos_token_ids(path: Path, end_id: int) -> tuple[int, ...]:
    """What ends a reply: the end of a message, and what the model's own settings name."""
    named: int | list[int] = []
    if (path / "generation_config.json").is_file():
        named = read_json(path / "generation_config.json").get("eos_token_id") or []
    return tuple(sorted({end_id, *(named if isinstance(named, list) else [named])}))
