"""The difficulty settings of the number game; they combine freely and are easy by default."""

from dataclasses import dataclass

from agentrl.envs.phone_game.settings import Settings, as_extra, one_of, switch


@dataclass(slots=True, kw_only=True, frozen=True)
class Level(Settings):
    """The difficulty of a number game. The settings are independent of each other.

    Raises:
        ValueError: a setting has an invalid value.
    """

    memory: bool = switch()
    """The lamp is shown before the cards and goes out when they are turned."""
    digits: int = one_of(1, range(1, 3), "1 (numbers from 1 to 9) or 2 (from 10 to 99)")
    cards: int = one_of(3, range(3, 5), "3 or 4")
    """With four cards, yellow asks for the second largest."""
    moved: bool = switch()
    """Cards, button and text change their positions every round."""
    distractor: bool = switch()
    """The screen shows an irrelevant line about numbers or lamps."""
    timed: int = one_of(
        0, range(10**9), "how many touches a round lasts, such as 3, or 0 for no clock"
    )
    """Touches until a round is lost; 0: no limit."""

    @property
    def numbers(self) -> range:
        """The numbers that can appear on a card."""
        return range(1, 10) if self.digits == 1 else range(10, 100)

    def extras(self) -> dict[str, str]:
        """The launch extras; always with `memory`, because extras seed the phone's clock."""
        return {"memory": as_extra(self.memory), **Settings.extras(self)}
