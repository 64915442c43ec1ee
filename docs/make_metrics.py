"""Write the tables of docs/metrics.md from agentrl/training/monitoring/metric_descriptions.py.

Run: python docs/make_metrics.py
"""

from pathlib import Path

from agentrl.training.monitoring.metric_descriptions import METRICS, SECTIONS

PAGE = Path(__file__).resolve().parent / "metrics.md"
MARK = "<!-- Below this line: python docs/make_metrics.py -->\n"


def page() -> str:
    """The whole page: the text unchanged, the tables regenerated."""
    words, mark, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    assert mark, f"{PAGE} has no line {MARK!r}"
    return words + MARK + "".join(map(_section, SECTIONS))


def _section(section: str) -> str:
    lines = ["", f"## {section}", ""]
    when = ""
    for one in METRICS:
        if one.section != section:
            continue
        if one.when != when:
            when = one.when
            lines += ["", f"Logged at {when}.", "", "| metric | unit | meaning |", "|---|---|---|"]
        names = ", ".join(f"`{name}`" for name in one.name.split())
        lines.append(f"| {names} | {one.unit} | {one.meaning} |")
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
