"""Actions as tool calls: `<tool_call>{"name": "tap", "arguments": {...}}</tool_call>`."""

from typing import ClassVar

from agentrl.actions.dialects.tag import Tag


class Tool(Tag):
    """The calls of the dialect `tag`, each as a JSON object in `<tool_call>` tags."""

    style: ClassVar[str] = "tool"
