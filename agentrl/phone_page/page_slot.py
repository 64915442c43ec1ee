"""The connection state of one page: its link, handled gestures and visibility."""

from enum import StrEnum
from typing import Protocol

from agentrl.phone_page.page_messages import BadMessage, Gesture, PageHello


class CloseReason(StrEnum):
    """Why the server closes a page's connection."""

    REPLACED = "replaced"
    """Another page has taken its place: it must not reconnect."""
    DROPPED = "dropped"
    """The server drops the connection; the page may reconnect, and does so by itself."""


class PageLink(Protocol):
    """A page's connection; both calls return at once and are thread-safe."""

    def wake(self) -> None:
        """Signal that there is something new to show."""

    def end(self, why: CloseReason) -> None:
        """Close the connection."""


class PageVisibility(StrEnum):
    """Whether the page is visible on its phone."""

    VISIBLE = "visible"
    HIDDEN = "hidden"
    """The page reported that it was hidden, perhaps just before it was closed."""
    LOST = "lost"
    """The page is disconnected or has just reconnected: what its phone shows is unknown."""


class PageSlot:
    """Tracks the one page that is connected at a time; a newer page replaces an older one."""

    def __init__(self) -> None:
        self.link: PageLink | None = None
        self.visible = True
        """Visibility that the page reported last."""
        self.painted = False
        """Whether it has painted a frame since it connected; before that it shows other things."""
        self.size: tuple[int, int] | None = None
        """Width and height of the page in its screen's pixels; None before the first."""
        self.handled = 0
        """Number of the page's last handled gesture."""
        self._page = ""

    @property
    def visibility(self) -> PageVisibility:
        """Whether the page is visible."""
        if not self.visible:
            return PageVisibility.HIDDEN
        return (
            PageVisibility.VISIBLE
            if self.link is not None and self.painted
            else PageVisibility.LOST
        )

    def connect(self, link: PageLink, hello: PageHello) -> bool:
        """Register a new or reconnected page; True if another page was replaced."""
        old, self.link = self.link, link
        is_new_page = hello.page != self._page
        if old is not None:
            old.end(CloseReason.REPLACED if is_new_page else CloseReason.DROPPED)
        # The count belongs to the page: gestures are sent again after a reconnect.
        if is_new_page:
            self._page, self.handled = hello.page, 0
        self.size = (hello.width, hello.height)
        self.visible, self.painted = hello.visible, False
        return is_new_page and old is not None

    def disconnect(self, link: PageLink) -> None:
        """Unregister a connection; does nothing if it was already replaced."""
        if link is self.link:
            self.link = None

    def is_new(self, gesture: Gesture) -> bool:
        """Whether a gesture has not been handled yet; marks it as handled."""
        if gesture.number <= self.handled:
            return False
        if gesture.number != self.handled + 1:
            raise BadMessage(f"gesture {gesture.number} came after gesture {self.handled}")
        self.handled = gesture.number
        return True
