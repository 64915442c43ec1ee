"""A model behind a server of chat completions that plays: one conversation at each seat."""

import asyncio
import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import cv2

from agentrl.config import History
from agentrl.policies.chat.history import PromptHistory
from agentrl.policies.engines.endpoint import Endpoint
from agentrl.policies.engines.engine import Sampling
from agentrl.policies.model_policy import draw_seed
from agentrl.policies.policy import Answer
from agentrl.types import IMAGE, Image, Message, Prompt, Reply

Part = dict[str, Any]
"""A piece of a message, as the API has it."""


class EndpointPolicy:
    """Answers with a server's model; needs no model here.

    Args:
        endpoint: started.
        history: what of the conversation is sent; None sends all.
        sampling: of every reply; its seed is replaced by one for each turn.
        scale: of the pictures; None keeps them.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        history: History | None = None,
        sampling: Sampling | None = None,
        scale: Callable[[Image], Image] | None = None,
    ) -> None:
        self.endpoint, self.history, self.scale = endpoint, history, scale
        self.sampling = sampling or Sampling()

    def start_episode(self, instructions: str, seed: int) -> "EndpointSession":
        """Take a seat; `seed` names the draws of this episode."""
        return EndpointSession(self, instructions, seed)


@dataclass(slots=True, kw_only=True)
class _Exchange:
    """A message, and the reply once there is one."""

    question: Part
    images: tuple[Image, ...]
    answer: Part | None = None


class EndpointSession:
    """A server's model at one episode.

    Args:
        policy: whose server answers.
        instructions: the system's message.
        seed: names the draws.
    """

    def __init__(self, policy: EndpointPolicy, instructions: str, seed: int) -> None:
        self._policy, self._seed = policy, seed
        self._memory = PromptHistory(policy.history)
        words = self._memory.instructions(instructions)
        self._preamble = [{"role": "system", "content": words}] if words else []
        self._said: list[_Exchange] = []

    async def answer(self, message: Message, info: Mapping[str, Any]) -> Answer | None:
        """The server's reply; None where the conversation is longer than its model reads.

        Raises:
            EngineError: the server failed.
            ValueError: the message's pictures and `<image>`s do not match.
        """
        policy = self._policy
        # Scaling and packing a screen takes tens of milliseconds, in which others play.
        self._said.append(await asyncio.to_thread(self._asked, self._memory.reminded(message)))
        exchanges = self._memory.shown(self._said)
        messages: list[Part] = [*self._preamble]
        for exchange in exchanges:
            messages += [exchange.question, *([exchange.answer] if exchange.answer else [])]
        sampling = replace(policy.sampling, seed=draw_seed(self._seed, len(self._said) - 1))
        reply = await policy.endpoint.chat(messages, sampling)
        if reply is None:
            return None
        self._said[-1].answer = {"role": "assistant", "content": reply.text}
        self._memory.hear(reply.text)
        images = tuple(image for exchange in exchanges for image in exchange.images)
        return Answer(
            prompt=Prompt(token_ids=reply.prompt_ids, images=images),
            reply=Reply(token_ids=reply.reply_ids, logprobs=reply.logprobs, version=0),
            text=reply.text,
        )

    def _asked(self, message: Message) -> _Exchange:
        scale = self._policy.scale
        images = tuple(map(scale, message.images)) if scale else message.images
        return _Exchange(question=to_api_message(replace(message, images=images)), images=images)

    def close(self) -> None:
        """Nothing: the server keeps nothing between two turns."""


def to_api_message(message: Message) -> Part:
    """A message in the API's form: words, with a PNG in place of each `<image>`.

    Raises:
        ValueError: `<image>` does not stand once for each picture.
    """
    first, *pieces = message.text.split(IMAGE)
    if len(pieces) != len(message.images):
        raise ValueError(
            f"a message with {len(pieces)} times {IMAGE} has {len(message.images)} pictures"
        )
    if not pieces:
        return {"role": message.role, "content": first}
    parts: list[Part] = [{"type": "text", "text": first}]
    for image, piece in zip(message.images, pieces, strict=True):
        parts.append({"type": "image_url", "image_url": {"url": _png(image)}})
        parts.append({"type": "text", "text": piece})
    return {"role": message.role, "content": [p for p in parts if p.get("text") != ""]}


def _png(image: Image) -> str:
    """A picture as a data URL."""
    written, png = cv2.imencode(".png", cv2.cvtColor(image, cv2.COLOR_RGB2BGR))
    assert written, f"OpenCV writes no PNG of {image.shape}"
    return f"data:image/png;base64,{base64.b64encode(png.tobytes()).decode()}"
