"""Extract the text between tags in a reply, in linear time for any text a model may write."""

from agentrl.errors import ActionError


def tag_content(reply: str, tag: str) -> str:
    """The text of the reply's only `<tag>...</tag>`.

    Raises:
        ActionError: there is not exactly one such pair.
    """
    start, end = f"<{tag}>", f"</{tag}>"
    opening, closing = reply.count(start), reply.count(end)
    before, _, rest = reply.partition(start)
    inside, found, _ = rest.partition(end)
    if opening != 1 or closing != 1 or not found:
        pairs = min(opening, closing) if end not in before else 0
        raise ActionError(
            f"{pairs} complete {start}...{end} tags in the reply; expected exactly one"
        )
    return inside


def action_tag_content(reply: str) -> str:
    """The text of the reply's only `<action>...</action>`.

    Raises:
        ActionError: there is not exactly one such pair.
    """
    return tag_content(reply, "action")
