"""The answer that a reply gives, however it is marked; in linear time, whatever a model writes."""

from agentrl.actions.tags import between
from agentrl.errors import ActionError

_BOXED = r"\boxed{"
_LONGEST = 4000
"""Characters of an answer; what is longer is no answer, and nobody has to compare it."""


def answer_in(reply: str, style: str = "either") -> str:
    r"""The answer of a reply: `<answer>42</answer>`, or the last `\boxed{42}`.

    Args:
        reply: what the model wrote.
        style: `answer`, `boxed`, or `either`, which takes the box where no tag stands.

    Returns:
        The text between, without the white space around it; a box in a tag is opened.

    Raises:
        ActionError: there is no answer, more than one tag, or an empty or endless one.
    """
    tags = reply.count("<answer>") + reply.count("</answer>")
    if style == "boxed" or (style == "either" and not tags):
        found = last_boxed(reply)
        if found is None:
            wanted = r"\boxed{...}" if style == "boxed" else r"<answer>...</answer> or \boxed{...}"
            raise ActionError(f"no {wanted} in the reply; it must hold the answer")
    else:
        found = between(reply, "answer")
    boxed = last_boxed(found)
    answer = (found if boxed is None else boxed).strip()
    if not answer:
        raise ActionError("the answer is empty")
    if len(answer) > _LONGEST:
        raise ActionError(f"an answer of {len(answer)} characters; {_LONGEST} are the most")
    return answer


def last_boxed(text: str) -> str | None:
    r"""What stands in the last complete `\boxed{...}`, with its own braces; None without one."""
    end = len(text)
    while (start := text.rfind(_BOXED, 0, end)) >= 0:
        inside = _balanced(text, start + len(_BOXED), end)
        if inside is not None:
            return inside
        end = start  # each character is looked at once: what lies behind was incomplete
    return None


def _balanced(text: str, first: int, end: int) -> str | None:
    depth = 1
    for place in range(first, end):
        if text[place] == "{":
            depth += 1
        elif text[place] == "}":
            depth -= 1
            if depth == 0:
                return text[first:place]
    return None
