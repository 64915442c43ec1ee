"""The number game as a Gymnasium environment over a phone."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from agentrl.devices import Settled
from agentrl.envs.number_game.app import NumberGameApp
from agentrl.envs.number_game.levels import Level
from agentrl.envs.number_game.rules import Phase
from agentrl.envs.number_game.translator import MODES
from agentrl.envs.number_game.truth import Truth
from agentrl.envs.phone_game.env import GameEnv
from agentrl.envs.phone_game.game import NamedCalls
from agentrl.envs.phone_game.view import in_layout
from agentrl.errors import ConfigError

_Facts = Mapping[str, Any]


class NumberGame(GameEnv):
    """Ten rounds of picking the card that the lamp asks for, played on a phone.

    Observation: the settled screen, uint8[H, W, 3]. Action: where to tap, float32[2] in [0, 1] of
    the screen, so that the player presses the button itself; with `mode="select"` the card, from 0
    in reading order, and the button is pressed for the player. Reward: +1 for a right pick, -1 for
    a wrong one and for a round whose time is up; a player who leaves the game loses every pick that
    is left. `info` is the truth that the game publishes, read from the phone, with `state_key`
    naming seed, round, phase and what a running clock has left, `changed` telling whether the last
    tap did anything but take time, `guard` what else came to the front, if anything did, and
    `metrics`: the share of right picks among all rounds, played or not, and the score.

    The settings from `memory` to `timed` make the level, and combine freely. Time means touches:
    each touch that picks no card while one can be picked brings a round with `timed` nearer to its
    end, and only touches do.

    Args:
        device: a phone as `agentrl.devices.open_device` takes it: a serial, a lease, or `virtual`
            for a phone of its own.
        mode: `tap` or `select`.
        rounds: of one game.
        memory: whether the lamp is shown before the cards and is out when they are turned.
        digits: 1 for numbers from 1 to 9, 2 for numbers from 10 to 99.
        cards: 3, or 4, where yellow asks for the second largest number.
        moved: whether cards, button and words lie elsewhere in every round.
        distractor: whether a line about numbers or lamps, of no use, stands on the screen.
        timed: the touches after which a round without a pick is lost; 0 for no clock. In the mode
            `select` every touch picks, so that no time is lost.
        allow: packages that may be in front beside the game; see `agentrl.devices.Guard`.
        truth: where `info` and reward come from. `state`: what the game publishes. `sight`: what
            its screen shows, as in a game that publishes nothing; `seed` is the one that was asked
            for, and `tip` is left out. `audit`: the state, and `info["audit"]` says which facts
            were read off the screen as they are and which were not; `metrics` counts the latter.
        render_mode: None or `rgb_array`.

    Raises:
        ConfigError: a mode, a number of rounds or a level that does not exist.
        DeviceError: the phone cannot be reached.

    `reset` raises EnvError where the game's state is not that of this launch in time, and `step`
    AppLeft where the world, and not the player, put something in front that does not go away.
    `timings` are the seconds of the last step: `settle`, waiting for the screen, and `effect`, to
    the first sign of the last tap, where there was one.
    """

    app = NumberGameApp
    modes = MODES
    level: Level

    def __init__(
        self,
        device: str = "virtual",
        mode: str = "tap",
        rounds: int = 10,
        memory: bool = False,
        digits: int = 1,
        cards: int = 3,
        moved: bool = False,
        distractor: bool = False,
        timed: int = 0,
        allow: Sequence[str] = (),
        truth: str = "state",
        render_mode: str | None = None,
    ) -> None:
        if rounds < 1:
            raise ConfigError(f"rounds is {rounds}; a game has at least 1.")
        self.rounds = rounds
        level = Level.checked(
            memory=memory,
            digits=digits,
            cards=cards,
            moved=moved,
            distractor=distractor,
            timed=timed,
        )
        self._told = Truth(truth, level)
        super().__init__(device, mode, allow, render_mode, **asdict(level))

    def calls(self) -> NamedCalls:
        """A card each."""
        return NamedCalls({"select(i)": self.level.cards})

    def call(self, number: int) -> bool:
        """Pick a card, then press the button up to the next screen that asks for a card."""
        stayed = True
        if self.known["phase"] != Phase.LAMP:
            stayed = self.touch("cards", number)
        if stayed and self.known["phase"] in (Phase.LAMP, Phase.REVEAL):
            stayed = self.touch("button")
        return stayed

    def extras(self) -> dict[str, str]:
        """The rounds and the level."""
        return {"rounds": str(self.rounds), **self.level.extras()}

    def shows_all(self) -> bool:
        """A running clock is drawn coarsely: a change of it need not be seen."""
        return not self.level.timed

    def begin(self, seed: int) -> None:
        """What was seen in the game before is forgotten."""
        self._told.begin(seed)

    def begins(self, shown: Settled) -> bool:
        """Whether a screen beside which nothing is published shows a game's start."""
        return self._told.begins(in_layout(shown, self.device.app_area()))

    def facts(self, shown: Settled) -> _Facts:
        """The truth of a screen, from wherever it is taken."""
        # An app that is allowed beside the game may cover it.
        in_front = shown.front in (None, self.game.package)
        return self._told.of(in_layout(shown, self.device.app_area()), in_front=in_front)

    def lowest(self, facts: _Facts) -> float:
        """Every pick that is left is lost."""
        return float(facts["right"] + facts["wrong"] - self.rounds)

    def had_effect(self, before: _Facts, after: _Facts) -> bool:
        """Whether more happened than that time passed."""
        same_phase: bool = before["phase"] == after["phase"]
        return not (same_phase and before["time_left"] != after["time_left"])

    def state_key(self, facts: _Facts) -> str:
        """Seed, round and phase; while a clock runs, the touches left as well."""
        key = f"{facts['seed']}/{facts['round']}/{facts['phase']}"
        runs = facts["timed"] and facts["phase"] == Phase.PICK
        return f"{key}/{facts['time_left']}" if runs else key

    def metrics(self, facts: _Facts) -> dict[str, float]:
        """Right picks among all rounds, played or not; the score; what was misread."""
        right = {"accuracy": facts["right"] / self.rounds, "score": facts["score"]}
        return {**right, **self._told.metrics()}

    def also_told(self) -> dict[str, Any]:
        """An audit of what was read."""
        return self._told.told()
