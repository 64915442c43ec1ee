"""The number game as a Gymnasium environment over a phone."""

from collections.abc import Sequence
from typing import Any

from agentrl.devices import Settled
from agentrl.envs.android.number_game.app import NumberGameApp
from agentrl.envs.android.number_game.game_state import NumberGamePhase
from agentrl.envs.android.number_game.levels import NumberGameLevel
from agentrl.envs.android.number_game.translator import MODES
from agentrl.envs.android.number_game.truth_source import FactSource
from agentrl.envs.android.phone_game.env import Facts, GameEnv
from agentrl.envs.android.phone_game.game_action_calls import NamedCalls
from agentrl.envs.android.phone_game.layout_conversion import to_layout
from agentrl.errors import InvalidArgument


class NumberGame(GameEnv):
    """Ten rounds of picking the card that the lamp asks for, played on a phone.

    Observation: the settled screen, uint8[H, W, 3]. Action: where to tap, float32[2] in [0, 1] of
    the screen, so the agent presses the button itself; with `mode="select"` the index of a card in
    reading order, and the environment presses the button. Reward: +1 for a right pick, -1 for a
    wrong one and for a round whose time runs out; an agent that leaves the game loses all remaining
    picks. `info` is the true state that the game publishes, read from the phone, plus `state_key`
    (seed, round, phase, and the remaining time of a running clock), `changed` (whether the last
    tap did anything besides taking time), `guard` (what else came to the front, if anything did)
    and `metrics`: the share of right picks among all rounds, played or not, and the score.

    The settings from `memory` to `timed` make up the level and combine freely. Time is counted in
    touches: in a round with `timed`, each touch that picks no card while one can be picked takes
    one unit.

    Args:
        device: a phone in a form that `agentrl.devices.open_device` accepts: a serial, a lease, or
            `virtual` for a private virtual phone.
        mode: `tap` or `select`.
        rounds: rounds per game.
        memory: whether the lamp is shown before the cards and goes out when they are turned.
        digits: 1 for numbers from 1 to 9, 2 for numbers from 10 to 99.
        cards: 3, or 4, where yellow asks for the second largest number.
        moved: whether cards, button and text change their positions every round.
        distractor: whether the screen shows an irrelevant line about numbers or lamps.
        colors: `normal` or `inverted`.
        timed: a round is lost after this many touches without a pick; 0 for no clock. In the mode
            `select` every touch picks a card, so no time is lost.
        allow: packages that may be in front besides the game; see `agentrl.devices.AppGuard`.
        truth: where `info` and reward come from. `state`: what the game publishes. `sight`: what
            its screen shows, as for a game that publishes nothing; `seed` is then the requested
            seed, and `tip` is missing. `audit`: the published state, and `info["audit"]` reports
            which facts were read correctly from the screen; `metrics` counts the misread ones.
        render_mode: None or `rgb_array`.

    Raises:
        ConfigError: unknown mode, too few rounds, or an invalid level.
        DeviceError: the phone cannot be reached.

    `reset` raises EnvError if the game does not publish the state of this launch in time. `step`
    raises AppLeft if something other than the agent put an app in front that does not go away.
    `timings` are the seconds of the last step: `settle` until the screen settled, and `effect`
    until the first visible effect of the last tap, if there was one.
    """

    app = NumberGameApp
    modes = MODES
    level: NumberGameLevel

    def __init__(
        self,
        device: str = "virtual",
        mode: str = "tap",
        rounds: int = 10,
        allow: Sequence[str] = (),
        truth: str = "state",
        render_mode: str | None = None,
        **settings: Any,
    ) -> None:
        if rounds < 1:
            raise InvalidArgument("rounds", rounds, "at least 1")
        self.rounds = rounds
        self._fact_source = FactSource(truth, NumberGameLevel.checked(**settings))
        super().__init__(device, mode, allow, render_mode, **settings)

    def calls(self) -> NamedCalls:
        """Return one call per card."""
        return NamedCalls({"select(i)": self.level.cards})

    def call(self, number: int) -> bool:
        """Pick a card, then press the button until the next screen that asks for a card."""
        stayed = True
        if self.facts["phase"] != NumberGamePhase.LAMP:
            stayed = self.touch("cards", number)
        if stayed and self.facts["phase"] in (NumberGamePhase.LAMP, NumberGamePhase.REVEAL):
            stayed = self.touch("button")
        return stayed

    def extras(self) -> dict[str, str]:
        """Return the rounds and the level."""
        return {"rounds": str(self.rounds), **self.level.extras()}

    def state_is_visible(self) -> bool:
        """Return False with a clock: its bar is drawn coarsely, so a change may be invisible."""
        return not self.level.timed

    def begin(self, seed: int) -> None:
        """Clear everything read in the previous game."""
        self._fact_source.begin(seed)

    def is_first_screen(self, shown: Settled) -> bool:
        """Return whether a screen without published state shows the start of a game."""
        return self._fact_source.is_first_screen(to_layout(shown, self.device.app_area()))

    def read_facts(self, shown: Settled) -> Facts:
        """Return the true state behind a screen, from the source that `truth` selects."""
        # An allowed app may cover the game.
        in_front = shown.front in (None, self.game.package)
        return self._fact_source.of(to_layout(shown, self.device.app_area()), in_front=in_front)

    def exit_reward(self, facts: Facts) -> float:
        """Return the cost of losing all remaining picks."""
        return float(facts["right"] + facts["wrong"] - self.rounds)

    def had_effect(self, before: Facts, after: Facts) -> bool:
        """Return whether anything changed besides the remaining time."""
        same_phase: bool = before["phase"] == after["phase"]
        return not (same_phase and before["time_left"] != after["time_left"])

    def state_key(self, facts: Facts) -> str:
        """Return seed, round and phase, and the remaining touches while a clock runs."""
        key = f"{facts['seed']}/{facts['round']}/{facts['phase']}"
        runs = facts["timed"] and facts["phase"] == NumberGamePhase.PICK
        return f"{key}/{facts['time_left']}" if runs else key

    def metrics(self, facts: Facts) -> dict[str, float]:
        """Return the share of right picks among all rounds, the score, and the misread facts."""
        right = {"accuracy": facts["right"] / self.rounds, "score": facts["score"]}
        return {**right, **self._fact_source.metrics()}

    def extra_info(self) -> dict[str, Any]:
        """Return the audit of facts read from the screen."""
        return self._fact_source.extra_info()
