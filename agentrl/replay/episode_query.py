"""Queries over episodes, such as `accuracy < 0.5 and phone = "emulator-5554"`."""

import math
import operator
import re
from collections.abc import Callable, Iterable, Sequence

from agentrl.errors import ConfigError
from agentrl.runs.episode_summary import Summary, label_of
from agentrl.text.formatting import quoted
from agentrl.text.name_suggestions import known_names

Value = float | str | bool | None
Query = Callable[[Summary], bool]
_MAX_LENGTH, _DEEPEST = 2000, 50
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<text>"[^"]*"|'[^']*')
        | (?P<sign><=|>=|!=|==|=|<|>|~|\(|\))
        | (?P<word>[^\s"'<>=!~()]+)
    )""",
    re.VERBOSE,
)
_ORDER: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_FIELDS: dict[str, Callable[[Summary], Value]] = {
    "id": lambda one: one.id,
    "split": lambda one: one.split,
    "label": lambda one: one.label,
    "step": lambda one: one.step,
    "seed": lambda one: one.seed,
    "group": lambda one: one.group,
    "member": lambda one: one.member,
    "env": lambda one: one.env_id,
    "outcome": lambda one: one.outcome.value,
    "void": lambda one: one.outcome.void,
    "cause": lambda one: one.cause,
    "error": lambda one: one.error,
    "truncated_by": lambda one: None if one.truncated_by is None else one.truncated_by.value,
    "success": lambda one: one.success,
    "reward": lambda one: None if one.outcome.void else one.reward,
    "turns": lambda one: one.turns,
    "tokens": lambda one: one.tokens,
    "seconds": lambda one: one.seconds,
    "phone": lambda one: one.device,
    "used_by": lambda one: one.used_by,
    "starred": lambda one: one.starred,
    "note": lambda one: one.note or None,
}
_NAMES = {"true": True, "false": False, "none": None}


def parse_query(text: str, episodes: Iterable[Summary]) -> Query:
    """Compile a query over some episodes.

    Comparisons `name OP value` are combined by `and`, `or`, `not` and parentheses. The names are
    the keys of `_FIELDS`, the environment's metrics, and `reward/NAME` for the sum of a reward
    function. OP is one of `= != < <= > >=` or `~`, which searches for a substring, ignoring case.
    An episode without the value only matches `!=` and `= none`.

    Raises:
        ConfigError: the query is invalid, or uses a name that none of the episodes has.
    """
    if len(text) > _MAX_LENGTH:
        raise ConfigError(f"a query can have at most {_MAX_LENGTH:,} characters, got {len(text):,}")
    parser = _Parser(text)
    query = parser.any()
    parser.expect_end()
    if unknown := parser.names - _FIELDS.keys():
        logged = {name for one in episodes for name in one.metrics}
        logged |= {f"reward/{name}" for one in episodes for name in one.components}
        for name in sorted(unknown - logged):
            known = sorted({*_FIELDS, *logged})
            raise ConfigError(
                f"query {quoted(text)}: no episode has {quoted(name)}"
                f"{known_names(name, known, label='There are')}"
            )
    return query


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split(text)
        self._at = self._depth = 0
        self.names: set[str] = set()

    def _split(self, text: str) -> Sequence[tuple[str, str]]:
        tokens, at = [], 0
        while text[at:].strip():
            if (found := _TOKEN.match(text, at)) is None or found.lastgroup is None:
                raise self._error(f"unexpected {text[at:].strip()[0]!r}")
            tokens.append((found.lastgroup, found[found.lastgroup]))
            at = found.end()
        return tokens

    def _error(self, what: str) -> ConfigError:
        return ConfigError(
            f"query {quoted(self._text)}: {what}. An example of a query is "
            "accuracy < 0.5 and phone = 'NAME'"
        )

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "the end")

    def _take(self) -> tuple[str, str]:
        token = self._peek()
        self._at += 1
        return token

    def _takes(self, word: str) -> bool:
        kind, found = self._peek()
        is_it = kind in ("word", "sign") and found.lower() == word
        self._at += is_it
        return is_it

    def expect_end(self) -> None:
        if self._peek()[0] != "end":
            raise self._error(f"unexpected {self._peek()[1]!r}")

    def any(self) -> Query:
        parts = [self._all()]
        while self._takes("or"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else lambda one: any(part(one) for part in parts)

    def _all(self) -> Query:
        parts = [self._one()]
        while self._takes("and"):
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else lambda one: all(part(one) for part in parts)

    def _one(self) -> Query:
        negations = 0
        while self._takes("not"):
            negations += 1
        if self._takes("("):
            self._depth += 1
            if self._depth > _DEEPEST:
                raise self._error(f"parentheses are nested more than {_DEEPEST} deep")
            inner = self.any()
            if not self._takes(")"):
                raise self._error("a parenthesis is not closed")
        else:
            inner = self._comparison()
        return (lambda one: not inner(one)) if negations % 2 else inner

    def _comparison(self) -> Query:
        kind, name = self._take()
        if kind != "word":
            raise self._error(f"expected a name, got {name!r}")
        self.names.add(name)
        read = _reader(name)
        sign = self._peek()[1]
        # A name alone, such as `success`, matches true values.
        if self._peek()[0] != "sign" or sign in "()":
            return lambda one: read(one) is True
        self._take()
        kind, value = self._take()
        if kind not in ("word", "text"):
            raise self._error(f"expected a value after {name} {sign}, got {value!r}")
        text = value[1:-1] if kind == "text" else value
        # Labels of evaluations are also written with spaces, such as `after greedy`.
        if name == "label" and sign in ("=", "==", "!="):
            text = label_of(text)
        wanted = text if kind == "text" else _value(text)
        if sign in _ORDER and (not isinstance(wanted, float) or math.isnan(wanted)):
            raise self._error(f"{name} {sign} {value}: {sign} compares numbers only")
        return _compare(read, sign, wanted, text)


def _reader(name: str) -> Callable[[Summary], Value]:
    if name in _FIELDS:
        return _FIELDS[name]
    function = name.removeprefix("reward/")
    if function != name:
        return lambda one: sum(one.components[function]) if function in one.components else None
    return lambda one: one.metrics.get(name)


def _value(word: str) -> Value:
    if word.lower() in _NAMES:
        return _NAMES[word.lower()]
    try:
        return float(word)
    except ValueError:
        return word


def _compare(read: Callable[[Summary], Value], sign: str, wanted: Value, text: str) -> Query:
    if sign in _ORDER:
        holds = _ORDER[sign]
        assert isinstance(wanted, float)

        def is_in_order(one: Summary) -> bool:
            value = read(one)
            return isinstance(value, int | float) and holds(value, wanted)

        return is_in_order
    if sign == "~":
        return lambda one: text.lower() in str(read(one) or "").lower()

    def equals(one: Summary) -> bool:
        value = read(one)
        return value == text if isinstance(value, str) else value == wanted

    return (lambda one: not equals(one)) if sign == "!=" else equals
