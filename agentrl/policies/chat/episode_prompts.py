"""Token ids of an episode's prompts, with the history selected by `env.history`."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from agentrl.config import History
from agentrl.errors import ActionError
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.chat.chat_format import Piece
from agentrl.text.reply_tags import tag_content
from agentrl.types import IMAGE, Image, Message, Prompt, is_final

MEMORY = "memory"
MAX_MEMORY_CHARS = 1000
"""Maximum length of a memory. Longer memories are truncated to keep prompts bounded."""
_T = TypeVar("_T")


class PromptHistory:
    """Selects a prompt's messages and keeps the model's memory from turn to turn.

    If the history has a memory, the text between `<memory>` and `</memory>` in a reply is
    prepended, in the same tags, to the following messages until another reply replaces it.
    """

    def __init__(self, history: History | None) -> None:
        self._history = history or History()
        self._memory = ""

    @property
    def has_memory(self) -> bool:
        """Whether replies can write a memory."""
        return self._history.carries_memory

    def instructions(self, text: str) -> str:
        """Add the memory's instructions to a system message; an empty message stays empty."""
        if not self.has_memory or not text:
            return text
        turns = self._history.turns
        shown = "the last screen" if turns == 1 else f"the last {turns} screens"
        return (
            f"{text} You see {shown} alone. What you will need later, write down as <{MEMORY}>..."
            f"</{MEMORY}> before your action: it is shown to you with the next screens, until you "
            "replace it."
        )

    def with_memory(self, message: Message) -> Message:
        """Prepend the memory to a new message."""
        if not self._memory:
            return message
        # Text written by the model must not be mistaken for an image placeholder.
        memory = f"<{MEMORY}>{self._memory.replace(IMAGE, '<image >')}</{MEMORY}>\n"
        opening = message.opening_text
        return replace(
            message,
            text=memory + message.text,
            opening_text=None if opening is None else memory + opening,
        )

    @property
    def is_complete(self) -> bool:
        """Whether every prompt contains the whole conversation, with all screens."""
        return self._history.turns is None and self._history.screens is None

    def visible(self, messages: Sequence[_T]) -> Sequence[_T]:
        """Return the part of the conversation that a prompt contains."""
        turns = self._history.turns
        return messages if turns is None else messages[-turns:]

    def shown(self, message: Message, position: int, count: int) -> Message | None:
        """Return a message as a prompt shows it; None if it is just a screen that is left out."""
        if position == 0 and message.opening_text is not None:
            message = replace(message, text=message.opening_text)
        screens = self._history.screens
        if screens is None or position >= count - screens:
            return message
        text = message.text.replace(IMAGE, "").strip()
        return replace(message, text=text, images=()) if text or not message.images else None

    def remember(self, reply: str) -> None:
        """Update the memory from a reply, if the history has a memory."""
        if self.has_memory:
            self._memory = extract_memory(reply, self._memory)


def extract_memory(reply: str, before: str) -> str:
    """Return the memory in a reply, or the previous memory if the reply has none."""
    try:
        return tag_content(reply, MEMORY).strip()[:MAX_MEMORY_CHARS]
    except ActionError:
        return before


@dataclass(slots=True, kw_only=True)
class _Turn:
    """A message and the reply to it, as token ids."""

    message: Message
    """The message, with its images scaled for the model."""
    encoded: dict[tuple[str | None, bool], tuple[int, ...]] = field(default_factory=dict)
    """Ids of the message, by its text in the prompt and whether it is the prompt's first."""
    answer: tuple[int, ...] = ()


class Conversation:
    """Messages and replies of one episode, encoded for the model.

    Args:
        encoder: encoder of the model.
        instructions: the system message; may be empty.
        history: which part of the conversation each prompt contains. If it is the whole
            conversation, every prompt extends the previous prompt and its reply.
    """

    def __init__(
        self, encoder: ChatEncoder, instructions: str, history: History | None = None
    ) -> None:
        self._encoder = encoder
        self._history = PromptHistory(history)
        self._system = self._history.instructions(instructions)
        self._start: tuple[tuple[Piece, ...], tuple[int, ...]] = (), ()
        """Pieces before the first message of the latest prompt, and their ids."""
        self._preceding = Prompt(token_ids=(), images=())
        """Turns before the first message, which are part of every prompt."""
        self._turns: list[_Turn] = []
        self._prompt = Prompt(token_ids=(), images=())
        """The latest prompt."""
        self._checked: tuple[tuple[int, ...], tuple[tuple[int, ...], ...]] = (), ()
        """Tokens of the last checked message and the shapes of its images, known to match."""
        self._last_scaled: tuple[Image, Image] | None = None
        """The latest immutable image, and its scaled version."""
        self._has_images_at_edges = False
        """Whether image tokens of two messages may be adjacent."""

    def observe(self, message: Message) -> Prompt:
        """Add a message and return the prompt for the reply to it."""
        assert not self._turns or self._turns[-1].answer, "the last prompt has no answer yet"
        if not self._turns:
            if message.system is not None:
                self._system = self._history.instructions(message.system)
            self._preceding = self._past_turns(message.preceding)
        self._turns.append(_Turn(message=self._history.with_memory(message)))
        return self._next_prompt()

    def observe_results(self, results: Sequence[str]) -> Prompt:
        """Add several tool results that follow a reply; return the prompt for the next reply."""
        assert self._turns, "results follow a reply"
        message = Message(role="tool", text="\n\n".join(results))
        turn = _Turn(message=message)
        turn.encoded[message.text, False] = self._encoder.results(results)
        self._turns.append(turn)
        return self._next_prompt()

    def _next_prompt(self) -> Prompt:
        turns = self._history.visible(self._turns)
        token_ids, images = self._preceding.token_ids, self._preceding.images
        start = 0
        if len(self._turns) > 1:
            self._check(self._turns[-2].answer, ())
            # This prompt begins with the previous prompt and its reply.
            if self._history.is_complete:
                start = len(turns) - 1
                token_ids = self._prompt.token_ids + self._turns[-2].answer
                images = self._prompt.images
        for position, turn in enumerate(turns[start:], start):
            shown = self._history.shown(turn.message, position, len(turns))
            is_first = position == 0 and not self._preceding.token_ids
            token_ids += self._question(turn, shown, is_first=is_first) + turn.answer
            images += turn.message.images if shown is not None and shown.images else ()
        # Image tokens at the edges of two valid parts may now form a single run.
        if self._has_images_at_edges:
            self._encoder.model_adapter.collapse_image_tokens(token_ids, images)
        self._prompt = Prompt(token_ids=token_ids, images=images)
        return self._prompt

    def _past_turns(self, messages: Sequence[Message]) -> Prompt:
        """Encode the questions and replies before the first message."""
        token_ids: tuple[int, ...] = ()
        images: tuple[Image, ...] = ()
        for asked, reply in zip(messages[::2], messages[1::2], strict=True):
            parts, scaled = self._encoder.content(asked, self._scaled)
            system = None if token_ids else self._system
            ids = self._encoder.past_turn(system, asked.role, parts, reply.text)
            self._check(ids, scaled)
            token_ids += ids
            images += scaled
        return Prompt(token_ids=token_ids, images=images)

    def _check(self, token_ids: tuple[int, ...], images: Sequence[Image]) -> None:
        """Check that the image tokens in part of a prompt match its images."""
        adapter = self._encoder.model_adapter
        if images or adapter.image_token_id in token_ids:
            adapter.collapse_image_tokens(token_ids, images)
            edges = token_ids[:1] + token_ids[-1:]
            self._has_images_at_edges |= adapter.image_token_id in edges

    def _question(self, turn: _Turn, shown: Message | None, *, is_first: bool) -> tuple[int, ...]:
        """Encode a message as the prompt shows it, and the header of its reply."""
        key = None if shown is None else shown.text, is_first
        if key not in turn.encoded:
            parts: tuple[Piece, ...] | None = None
            if shown is not None:
                parts, images = self._encoder.content(shown, self._scaled)
                if images:
                    turn.message = replace(turn.message, images=images)
            role = turn.message.role
            if is_first:
                start, is_whole = self._encoder.first_prompt(self._system, role, parts)
                # Cache these, because they stay the same if only the first message changes, as in a
                # sliding window.
                if start != self._start[0]:
                    self._start = start, self._encoder.ids(start)
                ids = self._start[1]
                ids += () if is_whole else self._encoder.question(role, parts)
            else:
                ids = self._encoder.question(role, parts)
            images = turn.message.images if shown is not None and shown.images else ()
            # Skip the check if tokens and shapes are unchanged, as is common for successive
            # screens.
            form = ids, tuple(image.shape for image in images)
            if form != self._checked:
                self._check(ids, images)
                self._checked = form
            turn.encoded[key] = ids
        return turn.encoded[key]

    def _scaled(self, image: Image) -> Image:
        """Scale an image for the model; return the same array again for an unchanged screen."""
        if not is_final(image):
            return self._encoder.scale(image)
        if self._last_scaled is None or self._last_scaled[0] is not image:
            self._last_scaled = image, self._encoder.scale(image)
        return self._last_scaled[1]

    def answer(self, reply_ids: Sequence[int]) -> None:
        """Add a reply with exactly the ids that were sampled."""
        assert self._turns, "there is no message to answer"
        assert not self._turns[-1].answer, "the last message is already answered"
        self._turns[-1].answer = (*reply_ids, *self._encoder.closing(reply_ids))
        # Decode the reply only if a memory has to be read from it.
        if self._history.has_memory:
            self._history.remember(self._encoder.text(reply_ids))
