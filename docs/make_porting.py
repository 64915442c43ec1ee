"""Write the tables of docs/porting.md from agentrl/config/other_trainers.yaml.

Run: python docs/make_porting.py
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from agentrl.config.other_trainers import OtherTrainer, other_trainers, targets

PAGE = Path(__file__).resolve().parent / "porting.md"
MARK = "<!-- Below this line: python docs/make_porting.py -->\n"
TITLES = {"easyr1": "EasyR1", "verl": "veRL", "trl": "TRL", "openrlhf": "OpenRLHF"}


def page() -> str:
    """The whole page: the text unchanged, the tables regenerated."""
    words, mark, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    assert mark, f"{PAGE} has no line {MARK!r}"
    trainers = {title: other_trainers()[name] for name, title in TITLES.items()}
    return words + MARK + "\n".join([*_counterparts(trainers), *_without(trainers)])


def _counterparts(trainers: dict[str, OtherTrainer]) -> list[str]:
    """One table per section of our configuration, a row for each of our settings."""
    rows: dict[str, dict[str, list[str]]] = {}
    for title, trainer in trainers.items():
        for theirs in trainer.keys:
            for ours in targets(trainer, theirs)[0]:
                names = rows.setdefault(ours, {}).setdefault(title, [])
                names.append(f"`{theirs}`")
    lines = ["", "## Settings, by their name here"]
    section = ""
    for ours in sorted(rows, key=lambda name: (name.partition(".")[0], name)):
        if ours.partition(".")[0] != section:
            section = ours.partition(".")[0]
            head = ("here", *trainers)
            lines += ["", f"### {section}", "", _row(head), _row(["---"] * len(head))]
        lines.append(_row((f"`{ours}`", *(", ".join(rows[ours].get(t, ())) for t in trainers))))
    return lines


def _without(trainers: dict[str, OtherTrainer]) -> list[str]:
    """The settings without a counterpart, those of all trainers first."""
    reasons = {
        title: {key: why for key in trainer.keys if (why := trainer.counterpart(key)[1])}
        for title, trainer in trainers.items()
    }
    shared = dict(set.intersection(*(set(found.items()) for found in reasons.values())))
    lines = ["", "## Settings without a counterpart", *_reasons("In all four", shared)]
    for title, found in reasons.items():
        own = {key: why for key, why in found.items() if key not in shared}
        lines += _reasons(f"Only in {title}", own)
    return [*lines, ""]


def _reasons(heading: str, found: Mapping[str, str]) -> list[str]:
    keys: dict[str, list[str]] = {}
    for key, why in sorted(found.items()):
        keys.setdefault(why, []).append(f"`{key}`")
    rows = [_row((", ".join(names), why)) for why, names in keys.items()]
    head = ("setting", "why, or what to use instead")
    return ["", f"### {heading}", "", _row(head), _row(("---", "---")), *rows]


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
