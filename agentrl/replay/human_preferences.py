"""Record a person's choices between episodes of a group, and list the pairs not compared yet."""

import hashlib
import time
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

from agentrl.errors import ConfigError
from agentrl.replay.run_reader import Run
from agentrl.runs.episode_summary import Summary, sibling_groups
from agentrl.runs.jsonl import JsonlTail, append_durably

_CHOICES = "choices.jsonl"


def choices(run: Run) -> list[tuple[str, str]]:
    """Return pairs of episodes with the person's choice first; the latest choice counts."""
    found: dict[frozenset[str], tuple[str, str]] = {}
    for entry in _recorded_choices(run):
        pair = frozenset((entry["better"], entry["worse"]))
        found[pair] = (entry["better"], entry["worse"])
        if entry.get("skipped"):
            del found[pair]
    return list(found.values())


def choose(run: Run, better: str, worse: str, *, skipped: bool = False) -> None:
    """Record which of two episodes of a group a person prefers, and flush it to disk.

    Raises:
        ConfigError: an episode does not exist, they are not siblings, or the disk is full.
    """
    if better == worse or run.find(better).group != run.find(worse).group:
        raise ConfigError(f"{better} and {worse} are not two episodes of the same group")
    entry = {"better": better, "worse": worse, "skipped": skipped, "time": time.time()}
    try:
        append_durably(run.path / _CHOICES, [entry])
    except OSError as error:
        raise ConfigError(f"{run.path / _CHOICES}: cannot be written: {error}") from error


def open_choices(run: Run) -> tuple[list[tuple[Summary, Summary]], int]:
    """Return the pairs of siblings not compared yet, and the number already compared.

    The order within a pair does not depend on the rewards.
    """
    seen = {frozenset((entry["better"], entry["worse"])) for entry in _recorded_choices(run)}
    found = []
    for members in sibling_groups(run.episodes()):
        for a, b in combinations(members, 2):
            if frozenset((a.id, b.id)) not in seen:
                # Derive the order from the ids, so that reloading the page does not swap the two.
                digest = hashlib.blake2b(f"{a.id}{b.id}".encode(), digest_size=1).digest()
                found.append((a, b) if digest[0] % 2 else (b, a))
    return found, len(seen)


def _recorded_choices(run: Run) -> Iterator[Mapping[str, Any]]:
    path = run.path / _CHOICES
    for entry in JsonlTail(path).new() if path.is_file() else ():
        if isinstance(entry.get("better"), str) and isinstance(entry.get("worse"), str):
            yield entry
