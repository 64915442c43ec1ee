"""A configuration that is being made from another trainer's settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from agentrl.config import Config
from agentrl.config.loading import put
from agentrl.config.other_trainers import OtherTrainer, translated

OPEN = "???"
"""The value of a setting that the user has to give."""
_NONE_COUNTS = ("env.kwargs.shuffle", "algorithm.loss.clip_dual")
"""Settings whose None is not their default."""


@dataclass(slots=True, kw_only=True)
class PortedSettings:
    """Translated settings, values still to be combined, and settings without a counterpart."""

    trainer: str
    section: str
    """`train`, `sft`, `dpo` or `reward_model`."""
    ours: dict[str, Any] = field(default_factory=dict)
    """Values by our dotted keys."""
    parts: dict[str, Any] = field(default_factory=dict)
    """Values from which settings are computed, by their names in the table without `~`."""
    lost: dict[str, str] = field(default_factory=dict)
    """Why a setting, given with its value, has no counterpart."""
    _theirs: dict[str, str] = field(default_factory=dict)
    """The other trainer's key of each part, and of each of our keys."""
    _defaults: set[str] = field(default_factory=set)
    """Parts and keys of ours whose values are only their defaults."""
    _unknown: set[str] = field(default_factory=set)
    """Parts and keys of ours that are given, with values that are only known to the script."""

    def take_all(self, table: OtherTrainer, given: Mapping[str, Any]) -> None:
        """Translate settings, and their defaults below them."""
        for theirs, value in {**table.defaults, **given}.items():
            if theirs.startswith("$"):
                self.lose(theirs, "these arguments are only known when the script runs")
                continue
            target, why = (s.replace("JOB", self.section) for s in table.counterpart(theirs))
            if not target:
                # Values of W&B's settings include keys.
                what = theirs if "wandb" in theirs else f"{theirs}={value}"
                self.lose(what, why or "agentrl port does not know this setting")
                continue
            name = target.removeprefix("~")
            self._theirs[name] = theirs
            if theirs not in given:
                self._defaults.add(name)
            if isinstance(value, str) and ("$" in value or "`" in value):
                self.lose(f"{theirs}={value}", "its value is only known when the script runs")
                value = OPEN
            if value == OPEN:
                self._unknown.add(name)
            if target.startswith("~"):
                self.parts |= {} if value == OPEN else {name: value}
            else:
                self.ours[name] = translated(name, value)

    def lose(self, what: str, why: str) -> None:
        """List a setting without a counterpart."""
        self.lost[what] = why

    def drop(self, name: str, why: str | None = None) -> None:
        """Remove a part or a key of ours; list it with a reason, unless it was only a default."""
        held = self.parts if name in self.parts else self.ours
        value = held.pop(name, None)
        if why is not None and value is not None and name not in self._defaults:
            self.lose(f"{self.theirs(name)}={value}", why)

    def is_given(self, name: str) -> bool:
        """Whether a part or a key of ours is given, or has a default, known or not."""
        return name in self._theirs

    def is_unknown(self, name: str) -> bool:
        """Whether a part or a key of ours is given with a value that only the script knows."""
        return name in self._unknown

    def number(self, name: str, default: float | None = None) -> Any:
        """A part or a key of ours to calculate with; None if it is no number, or is not known.

        Args:
            name: of the part or key.
            default: where it is not given.
        """
        held = self.parts if name in self.parts else self.ours
        value = held.get(name, None if name in self._unknown else default)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    def theirs(self, name: str) -> str:
        """Return the other trainer's key of a part, or of one of our keys."""
        return self._theirs.get(name, name)

    def text(self) -> str:
        """The YAML, with the settings without a counterpart listed above it."""
        tree: dict[str, Any] = {}
        sections = list(Config.__dataclass_fields__)
        for key in sorted(self.ours, key=lambda key: sections.index(key.partition(".")[0])):
            if self.ours[key] is not None or key in _NONE_COUNTS:
                put(tree, key, self.ours[key])
        by_reason: dict[str, list[str]] = {}
        for what, why in self.lost.items():
            by_reason.setdefault(why, []).append(what.replace("\n", " "))
        listed = "".join(f"# - {', '.join(what)}: {why}\n" for why, what in by_reason.items())
        head = f"# Settings without a counterpart here:\n{listed}" if listed else ""
        text: str = yaml.safe_dump(
            tree, sort_keys=False, allow_unicode=True, width=100, default_flow_style=None
        )
        return head + text
