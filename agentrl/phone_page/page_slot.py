"""The place of one page: who sits there, what was handled of them, whether they can be seen."""

from enum import StrEnum
from typing import Protocol

from agentrl.phone_page.page_messages import BadMessage, Gesture, Hello


class Close(StrEnum):
    """Why a page's connection is ended from here."""

    REPLACED = "replaced"
    """Another page has taken its place: it must not come back."""
    DROPPED = "dropped"
    """For no fault of its own: it comes back by itself."""


class Link(Protocol):
    """A page's connection; both calls return at once and may come from any thread."""

    def wake(self) -> None:
        """There is something new to show."""

    def end(self, why: Close) -> None:
        """Close the connection."""


class Sight(StrEnum):
    """Whether the page can be seen on its phone."""

    VISIBLE = "visible"
    HIDDEN = "hidden"
    """The page said so, perhaps as the last thing before it was closed."""
    LOST = "lost"
    """It is not connected, or has just come back: nobody knows what its phone shows."""


class Seat:
    """Where one page sits at a time; a newer one takes the place of an older one."""

    def __init__(self) -> None:
        """Nobody has come yet."""
        self.link: Link | None = None
        self.visible = True
        """What the page said last."""
        self.painted = False
        """Whether it has painted a frame since it connected: before, it shows other things."""
        self.size: tuple[int, int] | None = None
        """Width and height of the page in its screen's pixels; None before the first."""
        self.handled = 0
        """Number of the page's last gesture that was handled."""
        self._page = ""

    @property
    def sight(self) -> Sight:
        """Whether the page can be seen."""
        if not self.visible:
            return Sight.HIDDEN
        return Sight.VISIBLE if self.link is not None and self.painted else Sight.LOST

    def take(self, link: Link, hello: Hello) -> bool:
        """A page has come, or come back over a new connection; True if another had to go.

        The count of handled gestures belongs to the page and outlives its connections.
        """
        old, self.link = self.link, link
        stranger = hello.page != self._page
        if old is not None:
            old.end(Close.REPLACED if stranger else Close.DROPPED)
        if stranger:
            self._page, self.handled = hello.page, 0
        self.size = (hello.width, hello.height)
        self.visible, self.painted = hello.visible, False
        return stranger and old is not None

    def leave(self, link: Link) -> None:
        """A connection is over; that of somebody who was replaced is nobody's business."""
        if link is self.link:
            self.link = None

    def is_new(self, gesture: Gesture) -> bool:
        """Whether a gesture has not been handled yet; from now on it has.

        Raises:
            BadMessage: one before it never came.
        """
        if gesture.number <= self.handled:
            return False
        if gesture.number != self.handled + 1:
            raise BadMessage(f"gesture {gesture.number} came after gesture {self.handled}")
        self.handled = gesture.number
        return True
