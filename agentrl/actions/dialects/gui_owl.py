"""GUI-Owl 1.5's `mobile_use`: coordinates from 0 to 1000, with `answer` and `interact`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from agentrl.actions.dialect import ActionTypes, Screen
from agentrl.actions.mobile_use_dialect import (
    ANSWER,
    INTERACT,
    VERBS,
    MobileUse,
    numbered_steps,
    tool_call,
    tools_prompt,
)
from agentrl.actions.reply_values import CoordinateScale
from agentrl.actions.screen_actions import Done
from agentrl.actions.verb_dialect import Verb

_ANSWER = replace(ANSWER, description="Terminate the current task and output the answer.")


class GUIOwl(MobileUse):
    """The format of X-PLUG/MobileAgent, `Mobile-Agent-v3.5/mobile_use`, of July 2026.

    A prompt contains up to five screens; actions before the first of these are listed in its text.

    Args:
        outside: `refuse` rejects a position outside the screen, `clamp` moves it to the edge.
    """

    verbs: ClassVar[Mapping[str, Verb]] = {
        **{name: verb for name, verb in VERBS.items() if name not in ("wait", "terminate")},
        "wait": replace(VERBS["wait"], may_lack=("time",)),
        "answer": _ANSWER,
        "interact": INTERACT,
        "terminate": VERBS["terminate"],
    }
    history: ClassVar[str] = "window:5"

    def scale(self, screen: Screen) -> CoordinateScale:
        return CoordinateScale(sides=(1000, 1000), clamp=self.clamp)

    def framed(self, name: str, given: Mapping[str, Any], thought: str) -> str:
        """Write the action line and the call; the thought becomes the action line."""
        return f"Action: {thought or name}\n{tool_call(name, given)}"

    def system(self, task: str, screen: Screen, accepts: ActionTypes) -> str:
        """Describe the tool and the format of a reply."""
        # The published prompt has this JSON with its line breaks unescaped.
        tools = tools_prompt(self.accepted(accepts), (1000, 1000)).replace("\\n", "\n")
        tools = tools.replace(", and `action=interact`", ",and `action=interact`")
        finish = "\n- If finishing, use action=terminate in the tool call." * (Done in accepts)
        return (
            f"{tools}\n\n# Response format\n\nResponse format for every step:\n"
            "1) Action: a short imperative describing what to do in the UI.\n"
            "2) A single <tool_call>...</tool_call> block containing only the JSON: "
            '{"name": <function-name>, "arguments": <args-json-object>}.\n\n'
            "Rules:\n- Output exactly in the order: Action, <tool_call>.\n"
            "- Be brief: one sentence for Action.\n"
            f"- Do not output anything else outside those two parts.{finish}"
        )

    def opening(
        self, task: str, screen: Screen, accepts: ActionTypes, steps: Sequence[str], shown: str
    ) -> str:
        """Write the task, the actions before the first screen, and the screen."""
        done = numbered_steps(steps, "Step {number}: {step}", "\n") or "None"
        return (
            "Please generate the next move according to the UI screenshot, instruction and "
            f"previous actions.\n\nInstruction: {task}\n\nPrevious actions:\n{done}{shown}"
        )
