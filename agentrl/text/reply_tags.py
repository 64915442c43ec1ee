"""Find the text between a reply's tags."""

from agentrl.errors import ActionError


def tag_content(reply: str, tag: str) -> str:
    """Return the text of the reply's only `<tag>...</tag>`.

    Raises:
        ActionError: the reply does not contain exactly one such pair.
    """
    start, end = f"<{tag}>", f"</{tag}>"
    opening, closing = reply.count(start), reply.count(end)
    before, _, rest = reply.partition(start)
    inside, found, _ = rest.partition(end)
    if opening != 1 or closing != 1 or not found:
        pairs = min(opening, closing) if end not in before else 0
        found_pairs = f"{pairs or 'no'} complete {start}...{end} tags"
        raise ActionError(f"{found_pairs} in the reply; expected exactly one")
    return inside


def action_tag_content(reply: str) -> str:
    """Return the text of the reply's only `<action>...</action>`.

    Raises:
        ActionError: the reply does not contain exactly one such pair.
    """
    return tag_content(reply, "action")
