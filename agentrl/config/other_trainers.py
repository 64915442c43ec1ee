"""Maps settings of other trainers to ours (other_trainers.yaml)."""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import yaml

_FILE = Path(__file__).with_suffix(".yaml")
_NONE = "no: "
"""Prefix of the reason why a setting has no counterpart."""


@dataclass(slots=True, kw_only=True, frozen=True)
class OtherTrainer:
    """The settings of another trainer."""

    name: str
    launch: str
    """Pattern for the word of a shell command that starts the trainer."""
    defaults: Mapping[str, Any]
    """Maps the trainer's keys to its defaults."""
    keys: Mapping[str, str]
    """Maps the trainer's keys or patterns to our key, to `~NAME` if several settings determine it,
    or to `no: ` and the reason."""

    def counterpart(self, key: str) -> tuple[str, str]:
        """Return our key or `~NAME`, or else the reason why there is no counterpart.

        Both are empty for an unknown setting.
        """
        found = self.keys.get(key) or next(
            (ours for pattern, ours in self.keys.items() if fnmatchcase(key, pattern)), ""
        )
        return ("", found.removeprefix(_NONE)) if found.startswith(_NONE) else (found, "")


@cache
def other_trainers() -> Mapping[str, OtherTrainer]:
    """Return all trainers in the table by name; names for data set jobs end in `_data`."""
    table = _table()
    return {name: _trainer(name, table) for name in table if "launch" in table[name]}


def translated(ours: str, value: Any) -> Any:
    """Translate another trainer's value to the value of our setting."""
    names = _table()["values"].get(ours, {})
    return names.get(value, value) if isinstance(value, str) else value


def suggestion(key: str, *, by_end: bool = False) -> str:
    """Name the counterpart of another trainer's setting, or say why it has none.

    Args:
        key: the key as written by the user.
        by_end: True if the key may be just the end of their key, such as `n` for
            `worker.rollout.n`.

    Returns:
        `did you mean ...?`, a reason, or an empty string if no trainer has such a setting.
    """
    found = [
        (trainer, theirs)
        for trainer in other_trainers().values()
        for theirs in (trainer.keys if by_end else [key])
        if theirs.endswith(f".{key}") or not by_end
    ]
    notes: dict[str, str] = {}
    for names, note in (targets(trainer, theirs) for trainer, theirs in found):
        for name in names:
            notes[name] = notes.get(name) or (note and f", {note}")
    if notes:
        return f"did you mean {' or '.join(f'{name!r}{note}' for name, note in notes.items())}?"
    reasons = (trainer.counterpart(theirs)[1] for trainer, theirs in found)
    if reason := next(filter(None, reasons), ""):
        return f"it has no counterpart in agentrl: {reason.replace('JOB', 'sft')}"
    if key in (sections := _sections()):
        return f"agentrl port {' or '.join(sections[key])} FILE converts files with this section"
    return ""


def targets(trainer: OtherTrainer, theirs: str) -> tuple[list[str], str]:
    """Return our keys that a setting determines, if any, and how it determines them."""
    ours, _ = trainer.counterpart(theirs)
    names, _, note = str(_table()["derived"].get(ours, ours)).partition(" (")
    return [name.replace("JOB", "sft") for name in names.split(" and ") if name], note[:-1]


@cache
def _table() -> Mapping[str, Any]:
    table: dict[str, Any] = yaml.safe_load(_FILE.read_text())
    return table


def _trainer(name: str, table: Mapping[str, Any]) -> OtherTrainer:
    own = table[name]
    keys: dict[str, str] = {}
    for listed in (own["keys"], table.get(own.get("like"), {}).get("keys", {}), table["unused"]):
        for names, ours in listed.items():
            for key in names.split(", "):
                keys.setdefault(key, ours)
    return OtherTrainer(
        name=name, launch=own["launch"], defaults=own.get("defaults", {}), keys=keys
    )


def _sections() -> Mapping[str, list[str]]:
    """Map each section, such as `worker`, to the trainers whose files have it."""
    found: dict[str, list[str]] = {}
    for name, trainer in other_trainers().items():
        for section in {key.partition(".")[0] for key in trainer.keys if "." in key}:
            found.setdefault(section, []).extend([] if name.endswith("_data") else [name])
    return found
