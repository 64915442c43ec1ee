"""Build a configuration from another trainer's settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from agentrl.config import Config
from agentrl.config.loading import put
from agentrl.config.other_trainers import OtherTrainer, translated

OPEN = "???"
"""Placeholder for a value that the user has to fill in."""
_NONE_COUNTS = ("env.kwargs.shuffle", "algorithm.loss.clip_dual")
"""Settings in which None has a meaning and is not the default."""


@dataclass(slots=True, kw_only=True)
class PortedSettings:
    """Translated settings, values still to be combined, and settings without a counterpart."""

    trainer: str
    section: str
    """`train`, `sft`, `dpo` or `reward_model`."""
    ours: dict[str, Any] = field(default_factory=dict)
    """Values under our dotted keys."""
    parts: dict[str, Any] = field(default_factory=dict)
    """Values from which settings are computed, by their names in the table (without `~`)."""
    lost: dict[str, str] = field(default_factory=dict)
    """Maps each setting without a counterpart (with its value) to the reason."""
    _theirs: dict[str, str] = field(default_factory=dict)
    """The other trainer's key for each part and for each of our keys."""
    _defaults: set[str] = field(default_factory=set)
    """Parts and our keys whose values are only defaults of the other trainer."""
    _unknown: set[str] = field(default_factory=set)
    """Parts and our keys whose values are known only when the script runs."""

    def take_all(self, table: OtherTrainer, given: Mapping[str, Any]) -> None:
        """Translate the given settings, and use the other trainer's defaults for the rest."""
        for theirs, value in {**table.defaults, **given}.items():
            if theirs.startswith("$"):
                self.lose(theirs, "these arguments are known only when the script runs")
                continue
            target, why = (s.replace("JOB", self.section) for s in table.counterpart(theirs))
            if not target:
                # Don't show the values of W&B settings, since some are API keys.
                what = theirs if "wandb" in theirs else f"{theirs}={value}"
                self.lose(what, why or "agentrl port does not know this setting")
                continue
            name = target.removeprefix("~")
            self._theirs[name] = theirs
            if theirs not in given:
                self._defaults.add(name)
            if isinstance(value, str) and ("$" in value or "`" in value):
                self.lose(f"{theirs}={value}", "its value is known only when the script runs")
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
        """Remove a part or one of our keys; list it with `why` unless it was only a default."""
        held = self.parts if name in self.parts else self.ours
        value = held.pop(name, None)
        if why is not None and value is not None and name not in self._defaults:
            self.lose(f"{self.theirs(name)}={value}", why)

    def is_given(self, name: str) -> bool:
        """Return whether a part or one of our keys has a value or default, even if unknown."""
        return name in self._theirs

    def is_unknown(self, name: str) -> bool:
        """Return whether a part's or key's value is known only when the script runs."""
        return name in self._unknown

    def number(self, name: str, default: float | None = None) -> Any:
        """Return a part's or one of our keys' value if it is a number; None otherwise.

        Args:
            name: name of the part or key.
            default: value to assume if it is not given.
        """
        held = self.parts if name in self.parts else self.ours
        value = held.get(name, None if name in self._unknown else default)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    def theirs(self, name: str) -> str:
        """Return the other trainer's key for a part or for one of our keys."""
        return self._theirs.get(name, name)

    def text(self) -> str:
        """Return the YAML, with the settings without a counterpart listed in a comment on top."""
        tree: dict[str, Any] = {}
        sections = list(Config.__dataclass_fields__)
        for key in sorted(self.ours, key=lambda key: sections.index(key.partition(".")[0])):
            if self.ours[key] is not None or key in _NONE_COUNTS:
                put(tree, key, self.ours[key])
        by_reason: dict[str, list[str]] = {}
        for what, why in self.lost.items():
            by_reason.setdefault(why, []).append(what.replace("\n", " "))
        listed = "".join(f"# - {', '.join(what)}: {why}\n" for why, what in by_reason.items())
        head = f"# Settings without a counterpart in agentrl:\n{listed}" if listed else ""
        text: str = yaml.safe_dump(
            tree, sort_keys=False, allow_unicode=True, width=100, default_flow_style=None
        )
        return head + text
