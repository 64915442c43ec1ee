"""Questions whose answers a model can check with a tool before its final answer."""

from collections.abc import Mapping
from typing import Any

import gymnasium

from agentrl.actions.action_calls import ActionSet
from agentrl.data import grading
from agentrl.data.gymnasium_spaces import AnyText
from agentrl.envs.qa.env import QA
from agentrl.envs.qa.translator import QATranslator
from agentrl.errors import ActionError


class CheckedQA(QA):
    """Questions with a tool that checks answers; the first reply without a tool call is final.

    The action holds the answer, and whether to only check it. The tool shows the answer as it was
    parsed, and its reward: 1 if it is the right number, else 0. The final reward is computed the
    same way.

    For args and errors see `QA`; answers must be numbers, as in GSM8K.
    """

    def __init__(self, data: str | Mapping[str, str], **settings: Any) -> None:
        super().__init__(data, **{**settings, "grade": "none"})
        parts = {"check": gymnasium.spaces.Discrete(2), "answer": AnyText()}
        self.action_space: Any = gymnasium.spaces.Dict(parts)

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Check an answer, or give the final answer, which ends the episode."""
        assert self._question is not None, "reset first"
        answer = grading.final_answer(str(action["answer"])).replace("$", "").strip()
        true = grading.final_answer(self._question.answer)
        right = float(grading.matches_number(answer, [true]))
        shown, _, _, _, info = super().step(answer)
        if not action["check"]:
            info["metrics"] = {"accuracy": right}
            return shown, right, True, False, info
        shown["text"] = f"Current parsed answer={answer!r} reward={right}"
        return shown, 0.0, False, False, info


class CheckedQATranslator(QATranslator):
    """Asks the question and describes the tool, which is called as `<tool_call>{...}</tool_call>`.

    Args:
        tool: the tool's name.
        instructions: how to answer, before the description of the tool.
    """

    def __init__(
        self,
        tool: str = "check_answer",
        instructions: str = "Check your answer, then reply with #### and the answer.",
    ) -> None:
        super().__init__(style="text", instructions=instructions)
        self._calls = ActionSet([f"{tool}(answer)"], "tool")

    def instructions(self) -> str:
        """Return how to answer, and how to call the tool."""
        return f"{super().instructions()} The tool is called as {self._calls.describe()}."

    def to_action(self, reply: str) -> Any:
        """Return the answer, and whether to only check it.

        Raises:
            ActionError: a tool call is invalid, or the reply is empty.
        """
        if "<tool_call>" in reply:
            return {"check": 1, "answer": self._calls.parse(reply).arguments[0].strip('"')}
        if not reply.strip():
            raise ActionError("the reply is empty")
        return {"check": 0, "answer": reply}

    def no_action(self) -> Any:
        """Return an empty answer, which is wrong."""
        return {"check": 0, "answer": ""}
