"""Encode messages and images as token ids, exactly once.

A chat format determines the tokens around messages. Special tokens are inserted as ids and
everything else is encoded as plain text, so that no text from a game or a model can be mistaken for
a special token.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agentrl.data.reward_inputs import QueryFormat
from agentrl.errors import ConfigError, boundary
from agentrl.extension_points import CHAT
from agentrl.policies.chat.chat_format import ChatFormat, ChatModel, Piece
from agentrl.policies.chat.template_rendering import chat_template, template_variables
from agentrl.policies.models import ModelAdapter, adapter_for
from agentrl.policies.models.model_adapter import read_json
from agentrl.types import Image, Message

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# End of an empty thought, as templates write it after an opened `<think>`.
_END_OF_EMPTY_THOUGHT = "\n</think>\n\n"


class ChatEncoder:
    """Encodes the messages of one model.

    Args:
        path: the model's folder.
        image_size: [width, height] that images are scaled to; None keeps their aspect ratio.
        max_pixels: limits the area of images if no size is given.
        adapter: `model.adapter`.
        chat: `model.chat`.
        chat_options: `model.chat_options`.

    Raises:
        ConfigError: the model has no tokenizer.json, or does not fit the adapter or the chat
            format.
    """

    def __init__(
        self,
        path: Path,
        image_size: Sequence[int] | None = None,
        max_pixels: int = 602112,
        *,
        adapter: str = "auto",
        chat: str = "auto",
        chat_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.model_adapter: ModelAdapter = adapter_for(path, adapter)
        with boundary(ConfigError, f"model.path={path} cannot be used for chats"):
            self._tokenizer = _open_tokenizer(path)
            self._image_size = (image_size[0], image_size[1]) if image_size else None
            self._max_pixels = max_pixels
            self.vocab_size = _vocab_size(path) or self._tokenizer.get_vocab_size()
            added = self._tokenizer.get_added_tokens_decoder()
            self.chat_model = ChatModel(
                path=path,
                token_ids={t.content: id for id, t in added.items() if t.content.strip()},
                image_text=self.model_adapter.image_text,
                options=dict(chat_options or {}),
            )
            self.chat_format = _open_format(self.chat_model, chat)
            self.end_id = self.chat_format.end_id
            self.eos_token_ids = _eos_token_ids(path, self.end_id)
            eos = template_variables(path).get("eos_token")
            text_end = self._tokenizer.token_to_id(eos) if eos else None
            self._text_end_id = self.end_id if text_end is None else text_end
            names = {token.content for token in added.values() if token.special}
            names |= {
                str(self._tokenizer.id_to_token(id)) for id in self.model_adapter.banned_token_ids
            }
            names |= self.chat_format.protected
            self._markers = re.compile("|".join(re.escape(n) for n in sorted(names)) or r"(?!)")
            self._closing = self.ids(self.chat_format.closing())
            # Cache the ids of messages, because many environments send one image with the same text
            # every turn.
            self._question_ids = lru_cache(maxsize=256)(
                lambda role, parts: self.ids(
                    self._with_margins(self.chat_format.following(role, parts))
                )
            )

    def single_tokens(self, texts: Iterable[str]) -> tuple[int, ...]:
        """Return the ids of those strings that are single tokens, such as `</tool_call>`."""
        ids = map(self._tokenizer.token_to_id, texts)
        return tuple(id for id in ids if id is not None)

    def stop_ids(self, stop: Iterable[str]) -> tuple[int, ...]:
        """Return the token ids of `rollout.stop`.

        Raises:
            ConfigError: a string is not a single token.
        """
        found = list[int]()
        for text in stop:
            encoded = self._tokenizer.encode(text, add_special_tokens=False)
            # SentencePiece encodes a text with a space before it, which the model need not write.
            has_space = "".join(encoded.tokens).startswith("▁") and not text.startswith(" ")
            if (count := len(encoded.ids) + has_space) != 1:
                raise ConfigError(
                    f"rollout.stop={text!r}: must be a single token; this model's tokenizer splits "
                    f"it into {count}"
                )
            found += encoded.ids
        return tuple(found)

    def seen_size(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return the width and height to which an image of the given size is scaled."""
        blank = np.zeros((size[1], size[0], 3), np.uint8)
        seen = self.scale(blank)
        return seen.shape[1], seen.shape[0]

    def text_ids(self, text: str) -> tuple[int, ...]:
        """Encode plain text; text that looks like a special token is encoded as text."""
        cuts = [0, *(match.start() + 1 for match in self._markers.finditer(text)), len(text)]
        pieces = [text[a:b] for a, b in itertools.pairwise(cuts)]
        encode = self._tokenizer.encode
        return tuple(id for piece in pieces for id in encode(piece, add_special_tokens=False).ids)

    def rendered_ids(self, text: str) -> tuple[int, ...]:
        """Encode text rendered by a chat template, including its special tokens."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def document_ids(self, text: str) -> tuple[int, ...]:
        """Encode text as the tokenizer does by default, followed by its end token."""
        ids = tuple(self._tokenizer.encode(text).ids)
        return ids if ids[-1:] == (self._text_end_id,) else (*ids, self._text_end_id)

    def ids(self, pieces: Iterable[Piece]) -> tuple[int, ...]:
        """Encode pieces; adjacent text is joined before it is encoded."""
        found: list[int] = []
        for is_text, run in itertools.groupby(pieces, key=lambda piece: isinstance(piece, str)):
            if is_text:
                found += self.text_ids("".join(map(str, run)))
                continue
            for piece in run:
                found += piece if isinstance(piece, tuple) else (int(piece),)
        return tuple(found)

    def text(self, token_ids: Sequence[int]) -> str:
        """Decode the ids of a reply, without special tokens.

        A thought opened by the prompt is part of the text.
        """
        text = str(self._tokenizer.decode(list(token_ids), skip_special_tokens=True))
        return self.chat_format.reply_prefix + text

    def scale(self, image: Image) -> Image:
        """Scale an image for the model."""
        return self.model_adapter.scale(image, self._image_size, self._max_pixels)

    def content(
        self, message: Message, scale: Callable[[Image], Image] | None = None
    ) -> tuple[tuple[Piece, ...], tuple[Image, ...]]:
        """Return a message's parts, and its images scaled for the model.

        Args:
            message: the message with its images.
            scale: used instead of the method `scale`, for example to cache images.
        """
        first, *texts = message.split_at_images()
        adapter = self.model_adapter
        scaled = tuple(map(scale or self.scale, message.images))
        parts: list[Piece] = [first]
        for image, text in zip(scaled, texts, strict=True):
            parts += (adapter.image_markup(image), text)
        return tuple(part for part in parts if part != ""), scaled

    def first_prompt(
        self, system: str, role: str, parts: Sequence[Piece] | None
    ) -> tuple[tuple[Piece, ...], bool]:
        """Return the prompt of one message, as pieces for `ids`.

        Args:
            system: the system message; may be empty.
            role: the message's role.
            parts: the message's content, see `content`; None leaves the message out.

        Returns:
            The whole prompt and True; or, if the ids from `question` can be appended, the pieces
            before them and False.
        """
        whole = self._with_margins(self.chat_format.first(system, role, parts or ()))
        later = self._with_margins(self.chat_format.following(role, parts or ()))
        start = len(whole) - len(later)
        # Text on both sides of a boundary could be tokenized differently when joined.
        joined = start < 0 or whole[start:] != later or isinstance(later[0], str)
        return (whole, True) if joined else (whole[:start], False)

    def question(self, role: str, parts: Sequence[Piece] | None) -> tuple[int, ...]:
        """Encode a message that follows a reply, and the header of the next reply."""
        if parts is None and (opening := self.chat_format.opening()):
            return self.ids(opening)
        return self._question_ids(role, tuple(parts or ()))

    def past_turn(
        self, system: str | None, role: str, parts: Sequence[Piece], reply: str
    ) -> tuple[int, ...]:
        """Encode a message and a reply that was not sampled, up to the next message.

        Args:
            system: for the first message, the system message, which may be empty; None for later
                messages.
            role: the message's role.
            parts: the message's content, see `content`.
            reply: the reply's text.
        """
        pieces = self._past_turn(system, role, parts, reply)
        return self.ids(self._with_margins(pieces)) + self._closing

    def _past_turn(
        self, system: str | None, role: str, parts: Sequence[Piece], reply: str
    ) -> tuple[Piece, ...]:
        """Encode a message and a reply as in `past_turn`, up to the end token."""
        chat = self.chat_format
        prompt = chat.following(role, parts) if system is None else chat.first(system, role, parts)
        return (*chat.before_past_reply(prompt), chat.past_reply(reply), self.end_id)

    def results(self, results: Sequence[str]) -> tuple[int, ...]:
        """Encode several tool results that follow a reply, and the header of the next reply."""
        return self.ids(self.chat_format.results(results))

    def _with_margins(self, pieces: Sequence[Piece]) -> tuple[Piece, ...]:
        """Add the text that the model's processor puts around images."""
        before, after = self.model_adapter.image_margins
        if not before and not after:
            return tuple(pieces)
        widened = ((before, p, after) if isinstance(p, tuple) else (p,) for p in pieces)
        return tuple(piece for wide in widened for piece in wide)

    def opening(self) -> tuple[int, ...]:
        """Encode the header of a reply, or an end token without one: the shortest prompt."""
        return self.question("user", None) or (self.end_id,)

    def closing(self, reply_ids: Sequence[int]) -> tuple[int, ...]:
        """Return the tokens between a reply and the next message."""
        ended = bool(reply_ids) and reply_ids[-1] == self.end_id
        return self._closing if ended else (self.end_id, *self._closing)

    @property
    def query_format(self) -> QueryFormat:
        """The model's format, for reward functions that receive whole strings."""
        return QueryFormat(
            prompt=self._prompt_text, end=str(self._tokenizer.id_to_token(self.end_id))
        )

    def _prompt_text(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Render a prompt as text, with special tokens and `<image>` for each image."""
        chat, pieces = self.chat_format, list[Piece]()
        system = "".join(one["content"] for one in messages if one["role"] == "system")
        *past, last = (one for one in messages if one["role"] != "system")
        for asked, reply in zip(past[::2], past[1::2], strict=True):
            first = None if pieces else system
            pieces += self._past_turn(first, asked["role"], [asked["content"]], reply["content"])
            pieces += chat.closing()
        parts = [last["content"]] if last["content"] else []
        role = last["role"]
        pieces += chat.following(role, parts) if pieces else chat.first(system, role, parts)
        texts: list[str] = []
        for piece in pieces:
            ids = piece if isinstance(piece, tuple) else (piece,)
            texts += [i if isinstance(i, str) else str(self._tokenizer.id_to_token(i)) for i in ids]
        # Replies begin with the prefix; see `text`.
        return "".join(texts).removesuffix(chat.reply_prefix)

    def reply_ids(self, reply: str) -> tuple[int, ...]:
        """Encode a reply with its end token, as if it had been sampled.

        If the prompt opens a thought and the reply has no thought, the reply closes it first.
        """
        opened = self.chat_format.reply_prefix.strip()
        if opened and reply.startswith(opened):
            reply = reply.removeprefix(opened).lstrip("\n")
        elif opened.endswith("<think>"):
            reply = _END_OF_EMPTY_THOUGHT + reply
        return (*self.text_ids(reply), self.end_id)


def _open_format(model: ChatModel, name: str) -> ChatFormat:
    """Open the format selected by `model.chat`; `auto` falls back to ChatML without a template."""
    if name == "auto":
        name = "template" if chat_template(model.path) else "chatml"
    found: ChatFormat = CHAT.resolve(name).open(model)
    return found


def _open_tokenizer(path: Path) -> "Tokenizer":
    from tokenizers import Tokenizer

    read_json(path / "tokenizer.json")
    return Tokenizer.from_file(str(path / "tokenizer.json"))


def _vocab_size(path: Path) -> int:
    """Return the model's vocabulary size, which may exceed the tokenizer's; 0 if unknown."""
    config = read_json(path / "config.json")
    parts = [config, *(part for part in config.values() if isinstance(part, dict))]
    return max((part["vocab_size"] for part in parts if part.get("vocab_size")), default=0)


def _eos_token_ids(path: Path, end_id: int) -> tuple[int, ...]:
    """Return the tokens that end a reply, from the format and the model's generation config."""
    named: int | list[int] = []
    if (path / "generation_config.json").is_file():
        named = read_json(path / "generation_config.json").get("eos_token_id") or []
    ids = named if isinstance(named, list) else [named]
    if not all(isinstance(id, int) for id in ids):
        raise ConfigError(
            f"{path}/generation_config.json: eos_token_id must be a token id or a list of them, "
            f"got {named!r}"
        )
    return tuple(sorted({end_id, *ids}))
