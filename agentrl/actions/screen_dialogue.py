"""One environment's conversation in a dialect: its prompts, and the actions in the replies."""

from agentrl.actions.dialect import ActionTypes, Dialect, Screen, type_names
from agentrl.actions.screen_actions import Drag, ScreenAction, Swipe
from agentrl.errors import ActionError
from agentrl.types import Image, Message

# The screen that instructions describe before the first one is known.
_USUAL = (1080, 2400)


class ScreenDialogue:
    """Writes messages in a dialect, and reads the replies; one conversation at a time.

    Args:
        dialect: opened for the model that plays.
        task: what to do; empty for none.
        accepts: types of the actions that the environment accepts. If `Swipe` is one, a `Drag` is
            accepted too.
        instruct: whether the prompts state the task and how to answer. A model that was trained on
            demonstrations sees the screen alone.
    """

    def __init__(
        self, dialect: Dialect, task: str, accepts: ActionTypes, instruct: bool = True
    ) -> None:
        self.dialect, self.accepts = dialect, frozenset(accepts)
        self._task, self._instruct = task, instruct
        self._screen = dialect.screen(_USUAL)
        self._steps: list[str] = []

    @property
    def screen(self) -> Screen:
        """The screen that was seen last."""
        return self._screen

    def begin_episode(self) -> None:
        """Forget the earlier replies."""
        self._steps.clear()

    def instructions(self) -> str:
        """The system message for a usual screen."""
        return self._system(self.dialect.screen(_USUAL))

    def see(self, image: Image) -> None:
        """Note the size of the newest screen."""
        self._screen = self.dialect.screen((image.shape[1], image.shape[0]))

    def message(self, shown: str, images: tuple[Image, ...]) -> Message:
        """The message that shows the newest screen."""
        if not self._instruct:
            return Message(role="user", text=shown, images=images)
        # A prompt that leaves out earlier turns begins with this message, in its opening form.
        opening = self.dialect.opening(
            self._task, self._screen, self.accepts, tuple(self._steps), shown
        )
        text = self.dialect.following(shown) if self._steps else opening
        system = self._system(self._screen)
        return Message(
            role="user",
            text=text,
            images=images,
            opening_text=None if opening == text else opening,
            system=None if system == self.instructions() else system,
        )

    def parse(self, reply: str) -> ScreenAction:
        """Parse a reply, and check that the environment accepts its action."""
        # Replies that are no action belong to the history, too.
        self._steps.append(reply)
        action = self.dialect.parse(reply, self._screen)
        swipes = isinstance(action, Drag) and Swipe in self.accepts
        if type(action) not in self.accepts and not swipes:
            raise ActionError(
                f"{type(action).__name__.lower()} is not possible here; the actions are "
                f"{type_names(self.accepts)}"
            )
        return action

    def spell(self, action: ScreenAction, thought: str = "") -> str:
        """The reply that performs an action on the newest screen."""
        return self.dialect.spell(action, self._screen, thought)

    def _system(self, screen: Screen) -> str:
        return self.dialect.system(self._task, screen, self.accepts) if self._instruct else ""
