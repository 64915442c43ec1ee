"""Qwen2.5-VL's `mobile_use`: pixels of the resized image, whose size the prompt states."""

from collections.abc import Sequence

from agentrl.actions.dialect import ActionTypes, Screen, Size, smart_resize
from agentrl.actions.mobile_use_dialect import MobileUse, numbered_steps, tools_prompt
from agentrl.actions.reply_values import CoordinateScale


class Qwen25VLMobileUse(MobileUse):
    """The format of QwenLM/Qwen2.5-VL, `cookbooks/mobile_agent.ipynb` of February 2025.

    A prompt contains one screen; earlier calls are listed in its text.

    Args:
        outside: `refuse` rejects a position outside the screen, `clamp` moves it to the edge.
        min_pixels: smallest area of an image on a server; with a local model, its adapter resizes.
        max_pixels: largest area of an image on a server.
    """

    def __init__(
        self,
        outside: str = "refuse",
        min_pixels: int = 4 * 28 * 28,
        max_pixels: int = 16384 * 28 * 28,
    ) -> None:
        super().__init__(outside)
        self._limits = (min_pixels, max_pixels)

    def served_size(self, size: Size) -> Size:
        return smart_resize(size, 28, *self._limits)

    def scale(self, screen: Screen) -> CoordinateScale:
        return CoordinateScale(sides=screen.seen, clamp=self.clamp)

    def system(self, task: str, screen: Screen, accepts: ActionTypes) -> str:
        """Describe the tool, with the size of the resized image."""
        tools = tools_prompt(self.accepted(accepts), screen.seen)
        return f"You are a helpful assistant.\n\n{tools}"

    def opening(
        self, task: str, screen: Screen, accepts: ActionTypes, steps: Sequence[str], shown: str
    ) -> str:
        """Write the task, earlier calls, and the screen."""
        done = numbered_steps(steps, "Step {number}: {step}; ", "")
        return (
            f"The user query:  {task}\nTask progress (You have done the following operation on "
            f"the current device): {done}{shown}"
        )
