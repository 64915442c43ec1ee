"""Pairs each state of an app with its picture, and publishes it once the page has painted it."""


class PaintedFrames:
    """Numbers the pictures of one page; a state is published once its picture is painted.

    Picture and state thereby change together, as on a virtual phone: after reading a state, the
    screen shows the picture of that state or of a later one.
    """

    def __init__(self) -> None:
        """Nothing is shown yet."""
        self.number = 0
        """Number of the newest picture."""
        self._drawn = self._painted = 0
        self._states: dict[int, str | None] = {0: None}

    @property
    def state(self) -> str | None:
        """The published state: that of the picture which the page shows."""
        return self._states[self._painted]

    def change(self, state: str | None, *, redraw: bool) -> None:
        """Record a new state of the app.

        Args:
            state: as published; None if no app is shown.
            redraw: whether the picture changes too. If not, and the picture is painted already,
                the state is published at once.
        """
        if redraw:
            self.number += 1
            # Pictures that were never drawn will never be painted.
            kept = (self._painted, self._drawn)
            self._states = {n: s for n, s in self._states.items() if n in kept}
        self._states[self.number] = state

    def forget(self) -> None:
        """Publish nothing until another picture is painted."""
        self._states = dict.fromkeys(self._states)

    def draw(self) -> int:
        """Record that the newest picture is drawn and on its way to the page; its number."""
        self._drawn = self.number
        return self._drawn

    def paint(self, number: int) -> bool:
        """Record that the page painted a picture; False if it is not the one on its way."""
        if number != self._drawn or number < self._painted:
            return False
        self._painted = number
        return True
