"""How hard a number game is: settings that combine freely, each of them plain by default."""

from dataclasses import dataclass

from agentrl.envs.phone_game.settings import Settings, as_extra, one_of, switch


@dataclass(slots=True, kw_only=True, frozen=True)
class Level(Settings):
    """What a number game asks of its player. No setting changes what another one does.

    Raises:
        ValueError: a value that its setting cannot have.
    """

    memory: bool = switch()
    """The lamp is shown before the cards, and is out when they are turned."""
    digits: int = one_of(1, range(1, 3), "1 (numbers from 1 to 9) or 2 (from 10 to 99)")
    cards: int = one_of(3, range(3, 5), "3 or 4")
    """Of four, yellow asks for the second largest."""
    moved: bool = switch()
    """Cards, button and words lie elsewhere in every round."""
    distractor: bool = switch()
    """A line about numbers or lamps stands on the screen, and is of no use."""
    timed: int = one_of(
        0, range(10**9), "how many touches a round lasts, such as 3, or 0 for no clock"
    )
    """Touches until a round is lost; 0: as many as the player likes."""

    @property
    def numbers(self) -> range:
        """What may stand on a card."""
        return range(1, 10) if self.digits == 1 else range(10, 100)

    def extras(self) -> dict[str, str]:
        """What an app is launched with; `memory` always was told, and so the clock knows of it."""
        return {"memory": as_extra(self.memory), **Settings.extras(self)}
