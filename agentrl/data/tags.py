"""What stands between tags in a reply; in linear time, whatever a model writes."""

from agentrl.errors import ActionError


def action_in(reply: str) -> str:
    """The text of the reply's only `<action>...</action>`.

    Raises:
        ActionError: not exactly one such pair stands in it.
    """
    opening, closing = reply.count("<action>"), reply.count("</action>")
    before, _, rest = reply.partition("<action>")
    inside, found, _ = rest.partition("</action>")
    if opening != 1 or closing != 1 or not found:
        pairs = min(opening, closing) if "</action>" not in before else 0
        raise ActionError(
            f"{pairs} complete <action>...</action> tags in the reply; exactly one must be there"
        )
    return inside
