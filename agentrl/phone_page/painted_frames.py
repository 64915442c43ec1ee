"""Which state of an app belongs to which picture of it, and which picture a page has painted."""


class Frames:
    """Numbers the pictures of one page; a state counts once its picture is on the page.

    Picture and state thereby change together, as on a virtual phone: who reads a state and then
    looks at the screen sees the picture of that state, or of a later one.
    """

    def __init__(self) -> None:
        """Nothing is shown yet."""
        self.number = 0
        """Of the newest picture."""
        self._drawn = self._painted = 0
        self._states: dict[int, str | None] = {0: None}

    @property
    def state(self) -> str | None:
        """What is published: the state of the picture that the page shows."""
        return self._states[self._painted]

    def change(self, state: str | None, *, redraw: bool) -> None:
        """The app has another state.

        Args:
            state: as it is published; None where no app is shown.
            redraw: whether the picture changes as well. If it does not, and is painted already,
                the state is published at once.
        """
        if redraw:
            self.number += 1
            # Pictures that nobody has drawn will never be painted.
            kept = (self._painted, self._drawn)
            self._states = {n: s for n, s in self._states.items() if n in kept}
        self._states[self.number] = state

    def forget(self) -> None:
        """Publish nothing any more, until another picture is painted."""
        self._states = dict.fromkeys(self._states)

    def draw(self) -> int:
        """The newest picture is drawn, and on its way to the page; its number."""
        self._drawn = self.number
        return self._drawn

    def paint(self, number: int) -> bool:
        """The page has painted a picture; False if it is not the one on its way."""
        if number != self._drawn or number < self._painted:
            return False
        self._painted = number
        return True
