"""Connection state of one page: its link, handled gestures and visibility."""

from enum import StrEnum
from typing import Protocol

from agentrl.phone_page.page_messages import BadMessage, Gesture, PageHello


class CloseReason(StrEnum):
    """Why the server closes a page's connection."""

    REPLACED = "replaced"
    """Another page has replaced this page, which must not reconnect."""
    DROPPED = "dropped"
    """The server drops the connection; the page reconnects by itself."""


class PageLink(Protocol):
    """A page's connection; both calls return immediately and are thread-safe."""

    def wake(self) -> None:
        """Signal that there is a new frame to show."""

    def end(self, why: CloseReason) -> None:
        """Close the connection."""


class PageVisibility(StrEnum):
    """Whether the page is visible on its phone."""

    VISIBLE = "visible"
    HIDDEN = "hidden"
    """The page reported that it was hidden, perhaps just before it was closed."""
    LOST = "lost"
    """The page is disconnected or has just reconnected, so the phone's screen is unknown."""


class PageConnectionState:
    """Tracks the single connected page; a newer page replaces it."""

    def __init__(self) -> None:
        self.link: PageLink | None = None
        self.visible = True
        """The page's last reported visibility."""
        self.painted = False
        """Whether the page has painted since it connected; until then it shows something else."""
        self.size: tuple[int, int] | None = None
        """Width and height of the page in its screen's pixels; None before the first page."""
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
        """Register a new or reconnected page; return True if another page was replaced."""
        old, self.link = self.link, link
        is_new_page = hello.page != self._page
        if old is not None:
            old.end(CloseReason.REPLACED if is_new_page else CloseReason.DROPPED)
        # The count belongs to the page, which resends gestures after a reconnect.
        if is_new_page:
            self._page, self.handled = hello.page, 0
        self.size = (hello.width, hello.height)
        self.visible, self.painted = hello.visible, False
        return is_new_page and old is not None

    def disconnect(self, link: PageLink) -> None:
        """Unregister a connection; does nothing if it has been replaced."""
        if link is self.link:
            self.link = None

    def is_new(self, gesture: Gesture) -> bool:
        """Mark a gesture as handled; return whether it was new."""
        if gesture.number <= self.handled:
            return False
        if gesture.number != self.handled + 1:
            raise BadMessage(f"expected gesture {self.handled + 1}, got gesture {gesture.number}")
        self.handled = gesture.number
        return True
