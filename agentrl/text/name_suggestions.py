"""Suggest known names in messages about an unknown one."""

import difflib
from collections.abc import Iterable

_SIMILAR, _SIMILARITY_RANGE = 0.6, 0.1
"""Minimum similarity of suggested names, in [0, 1], and the maximum distance from the best
match."""
_SHORTEST_BEGINNING = 3
_MOST_SUGGESTED, _MOST_NAMES, _MOST_BESIDE_COMMAND = 3, 20, 10


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `" (did you mean 'x' or 'y'?)"` for the closest known names, or an empty string.

    Names are close if they are similar or begin with the given name. A name without a folder or
    namespace is compared with the last part of each known name, a name with a folder only with
    names that also have one.
    """
    matcher = difflib.SequenceMatcher(b=name.lower())
    scores, ratios = dict[str, float](), dict[str, float]()
    for one in known:
        if "/" in name and "/" not in one:
            continue
        compared = one.lower() if "/" in name else one.lower().rpartition("/")[2]
        matcher.set_seq1(compared)
        if len(name) >= _SHORTEST_BEGINNING and compared.startswith(name.lower()):
            scores[one], ratios[one] = 1.0, matcher.ratio()
        elif matcher.real_quick_ratio() >= _SIMILAR and matcher.quick_ratio() >= _SIMILAR:
            scores[one] = ratios[one] = matcher.ratio()
    least = max(_SIMILAR, max(scores.values(), default=0.0) - _SIMILARITY_RANGE)
    # Of several that begin with the name, those that add least to it come first.
    close = sorted((one for one in scores if scores[one] >= least), key=lambda one: -ratios[one])
    if not close:
        return ""
    *others, last = map(repr, close[:_MOST_SUGGESTED])
    return f" (did you mean {', '.join(others)}{' or ' if others else ''}{last}?)"


def list_names(names: Iterable[str], command: str | None = None) -> str:
    """Format names as `a, b, c`; if there are many, only the first and the number of others.

    Args:
        names: names in display order.
        command: command that lists all names; if given, only ten are shown.
    """
    shown = list(names)
    most = _MOST_NAMES if command is None else _MOST_BESIDE_COMMAND
    if len(shown) <= most:
        return ", ".join(shown) or "none"
    how = "" if command is None else f" ({command})"
    return f"{', '.join(shown[:most])} and {len(shown) - most} more{how}"


def known_names(
    name: str, known: Iterable[str], *, command: str | None = None, label: str = "Known"
) -> str:
    """Return the end of a message about an unknown name: the closest matches and the known names.

    Args:
        name: the unknown name.
        known: the known names.
        command: command that lists all known names; replaces the list if there is a suggestion.
        label: label of the list, as in `Known: a, b, c`.
    """
    names = list(known)
    suggestion = did_you_mean(name, names)
    if suggestion and command is not None:
        return f"{suggestion}; {command} shows all"
    return f"{suggestion}. {label}: {list_names(names, command)}"
