"""What stands between tags in a reply; in linear time, whatever a model writes."""

from agentrl.errors import ActionError


def between(reply: str, tag: str) -> str:
    """The text of the reply's only `<tag>...</tag>`.

    Raises:
        ActionError: not exactly one such pair stands in it.
    """
    start, end = f"<{tag}>", f"</{tag}>"
    opening, closing = reply.count(start), reply.count(end)
    before, _, rest = reply.partition(start)
    inside, found, _ = rest.partition(end)
    if opening != 1 or closing != 1 or not found:
        pairs = min(opening, closing) if end not in before else 0
        raise ActionError(
            f"{pairs} complete {start}...{end} tags in the reply; exactly one must be there"
        )
    return inside


def action_in(reply: str) -> str:
    """The text of the reply's only `<action>...</action>`.

    Raises:
        ActionError: not exactly one such pair stands in it.
    """
    return between(reply, "action")
