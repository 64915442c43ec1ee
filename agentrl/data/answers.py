"""Extract the final answer from a reply, in linear time for any text a model may write."""

from agentrl.actions.tags import tag_content
from agentrl.errors import ActionError

_BOXED = r"\boxed{"
_LONGEST = 4000
"""Maximum characters of an answer; longer ones are rejected without comparison."""


def extract_answer(reply: str, style: str = "either") -> str:
    r"""The answer of a reply: `<answer>42</answer>`, or the last `\boxed{42}`.

    Args:
        reply: what the model wrote.
        style: `answer`, `boxed`, or `either`, which takes the box if there is no tag.

    Returns:
        The text inside, stripped; a box inside a tag is unwrapped.

    Raises:
        ActionError: the answer is missing, empty or too long, or there is more than one tag.
    """
    tags = reply.count("<answer>") + reply.count("</answer>")
    if style == "boxed" or (style == "either" and not tags):
        found = last_boxed(reply)
        if found is None:
            expected = (
                r"\boxed{...}" if style == "boxed" else r"<answer>...</answer> or \boxed{...}"
            )
            raise ActionError(f"no {expected} in the reply; the answer must be inside it")
    else:
        found = tag_content(reply, "answer")
    boxed = last_boxed(found)
    answer = (found if boxed is None else boxed).strip()
    if not answer:
        raise ActionError("the answer is empty")
    if len(answer) > _LONGEST:
        raise ActionError(f"the answer has {len(answer)} characters; the maximum is {_LONGEST}")
    return answer


def last_boxed(text: str) -> str | None:
    r"""The content of the last complete `\boxed{...}`, nested braces included; None without one."""
    end = len(text)
    while (start := text.rfind(_BOXED, 0, end)) >= 0:
        inside = _balanced(text, start + len(_BOXED), end)
        if inside is not None:
            return inside
        end = start  # what follows was incomplete; each character is examined once
    return None


def _balanced(text: str, first: int, end: int) -> str | None:
    depth = 1
    for index in range(first, end):
        if text[index] == "{":
            depth += 1
        elif text[index] == "}":
            depth -= 1
            if depth == 0:
                return text[first:index]
    return None
