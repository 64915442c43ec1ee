"""An environment's conversation in a dialect: its prompts, and the actions in the replies."""

from agentrl.actions.dialect import ActionTypes, Dialect, Screen, type_name, type_names
from agentrl.actions.screen_actions import Drag, ScreenAction, Swipe
from agentrl.errors import ActionError
from agentrl.types import Image, Message

# Screen that instructions describe until the actual size is known.
_USUAL = (1080, 2400)


class ScreenDialogue:
    """Writes messages in a dialect and reads the replies, one conversation at a time.

    Args:
        dialect: dialect, opened for the model that plays.
        task: the task's description; may be empty.
        accepts: types of actions that the environment accepts. `Swipe` also accepts a `Drag`.
        instruct: whether the prompts state the task and how to answer. Models trained on
            demonstrations see only the screen.
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
        """The most recent screen."""
        return self._screen

    def begin_episode(self) -> None:
        """Forget earlier replies."""
        self._steps.clear()

    def instructions(self) -> str:
        """Return the system message for a typical screen."""
        return self._system(self.dialect.screen(_USUAL))

    def see(self, image: Image) -> None:
        """Record the size of the current screen."""
        self._screen = self.dialect.screen((image.shape[1], image.shape[0]))

    def message(self, shown: str, images: tuple[Image, ...]) -> Message:
        """Write the message that shows the current screen."""
        if not self._instruct:
            return Message(role="user", text=shown, images=images)
        # If a prompt leaves out earlier turns, this message comes first and takes its opening form.
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
        """Parse a reply and check that the environment accepts its action."""
        # Replies without a valid action are part of the history too.
        self._steps.append(reply)
        action = self.dialect.parse(reply, self._screen)
        swipes = isinstance(action, Drag) and Swipe in self.accepts
        if type(action) not in self.accepts and not swipes:
            raise ActionError(
                f"{type_name(type(action))} is not possible here; the actions are "
                f"{type_names(self.accepts)}"
            )
        return action

    def spell(self, action: ScreenAction, thought: str = "") -> str:
        """Write the reply that performs an action on the current screen."""
        return self.dialect.spell(action, self._screen, thought)

    def _system(self, screen: Screen) -> str:
        return self.dialect.system(self._task, screen, self.accepts) if self._instruct else ""
