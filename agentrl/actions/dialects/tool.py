"""Actions as tool calls: `<tool_call>{"name": "tap", "arguments": {...}}</tool_call>`."""

from typing import ClassVar

from agentrl.actions.action_calls import TAGS
from agentrl.actions.dialects.tag import Tag


class Tool(Tag):
    """The calls of the `tag` dialect, as JSON objects in `<tool_call>` tags."""

    style: ClassVar[str] = "tool"
    action_tag: ClassVar[str | None] = TAGS["tool"]
