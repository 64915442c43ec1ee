"""Qwen3-VL's `mobile_use`: coordinates from 0 to 999, regardless of the image size."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from agentrl.actions.dialect import ActionTypes, Screen
from agentrl.actions.mobile_use_dialect import (
    ANSWER,
    VERBS,
    MobileUse,
    numbered_steps,
    tool_call,
    tools_prompt,
)
from agentrl.actions.reply_values import CoordinateScale
from agentrl.actions.screen_actions import Done
from agentrl.actions.verb_dialect import Verb

_ORDER = ("click", "long_press", "swipe", "type", "answer", "system_button", "wait", "terminate")
_LAST = 999


class Qwen3VLMobileUse(MobileUse):
    """The format of QwenLM/Qwen3-VL, `cookbooks/mobile_agent.ipynb` of January 2026.

    A prompt contains one screen; earlier actions are listed in its text.

    Args:
        outside: `refuse` rejects a position outside the screen, `clamp` moves it to the edge.
    """

    verbs: ClassVar[Mapping[str, Verb]] = {
        name: ANSWER if name == "answer" else VERBS[name] for name in _ORDER
    }

    def scale(self, screen: Screen) -> CoordinateScale:
        return CoordinateScale(sides=(_LAST, _LAST), clamp=self.clamp)

    def framed(self, name: str, given: Mapping[str, Any], thought: str) -> str:
        lines = [f"Thought: {thought}"] if thought else []
        return "\n".join([*lines, f"Action: {name}", tool_call(name, given)])

    def system(self, task: str, screen: Screen, accepts: ActionTypes) -> str:
        """Describe the tool and the format of a reply."""
        tools = tools_prompt(self.accepted(accepts), (_LAST, _LAST), with_labels=False)
        finish = "\n- If finishing, use action=terminate in the tool call." * (Done in accepts)
        return (
            f"\n\n{tools}\n\n# Response format\n\nResponse format for every step:\n"
            "1) Thought: one concise sentence explaining the next move (no multi-step reasoning).\n"
            "2) Action: a short imperative describing what to do in the UI.\n"
            "3) A single <tool_call>...</tool_call> block containing only the JSON: "
            '{"name": <function-name>, "arguments": <args-json-object>}.\n\n'
            "Rules:\n- Output exactly in the order: Thought, Action, <tool_call>.\n"
            "- Be brief: one sentence for Thought, one for Action.\n"
            f"- Do not output anything else outside those three parts.{finish}"
        )

    def opening(
        self, task: str, screen: Screen, accepts: ActionTypes, steps: Sequence[str], shown: str
    ) -> str:
        """Write the task, earlier actions, and the screen."""
        done = numbered_steps(steps, "Step {number}: {step}; ", "")
        return (
            f"The user query: {task}.\nTask progress (You have done the following operation on "
            f"the current device): {done}.\n{shown}"
        )
