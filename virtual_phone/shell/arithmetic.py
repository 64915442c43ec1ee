"""Evaluates the integer expressions of `$((...))`, `((...))` and `let`."""

import re
from collections.abc import Callable, MutableMapping

_TOKEN = re.compile(
    r"\s*(?:(\d+#[0-9a-zA-Z]+|0[xX][0-9a-fA-F]+|\d+)|([A-Za-z_]\w*)|"
    r"(<<=|>>=|\+\+|--|&&|\|\||<<|>>|[-+*/%&|^=!<>]=|[-+*/%&|^=!<>~?:(),]))",
    re.ASCII,
)
_BINARY: dict[str, tuple[int, Callable[[int, int], int]]] = {
    "||": (1, lambda a, b: int(bool(a or b))),
    "&&": (2, lambda a, b: int(bool(a and b))),
    "|": (3, lambda a, b: a | b),
    "^": (4, lambda a, b: a ^ b),
    "&": (5, lambda a, b: a & b),
    "==": (6, lambda a, b: int(a == b)),
    "!=": (6, lambda a, b: int(a != b)),
    "<": (7, lambda a, b: int(a < b)),
    "<=": (7, lambda a, b: int(a <= b)),
    ">": (7, lambda a, b: int(a > b)),
    ">=": (7, lambda a, b: int(a >= b)),
    "<<": (8, lambda a, b: a << (b & 31)),
    ">>": (8, lambda a, b: a >> (b & 31)),
    "+": (9, lambda a, b: a + b),
    "-": (9, lambda a, b: a - b),
    "*": (10, lambda a, b: a * b),
    "/": (10, lambda a, b: _quotient(a, b)),
    "%": (10, lambda a, b: a - b * _quotient(a, b)),
}
"""Precedence and meaning of each binary operator, as in C."""
_ASSIGNING = frozenset(("=", "*=", "/=", "%=", "+=", "-=", "<<=", ">>=", "&=", "^=", "|="))
_MAX_DEPTH = 30


class ArithmeticFailure(Exception):
    """The expression cannot be evaluated; the message is what the shell prints."""


def evaluate(expression: str, variables: MutableMapping[str, str], depth: int = 0) -> int:
    """The value of an expression, with 32 bits and a sign as in mksh."""
    if depth > _MAX_DEPTH:
        raise ArithmeticFailure(f"{expression[:100]}: expression recurses on parameter")
    return _Evaluation(expression, variables, depth).whole()


def _quotient(a: int, b: int) -> int:
    """Division that truncates towards zero."""
    return a // b if (a < 0) == (b < 0) else -(-a // b)


def _wrap(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


class _Evaluation:
    """One pass over an expression; `is_live` is false in operands that are not evaluated."""

    def __init__(self, text: str, variables: MutableMapping[str, str], depth: int) -> None:
        self._text = text
        self._variables = variables
        self._depth = depth
        self._nesting = 0
        self._tokens: list[str] = []
        at = 0
        text = text.rstrip()
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise self._failure(f"unexpected '{text[at:].strip()[:1]}'")
            self._tokens.append(found.group().strip())
            at = found.end()
        self._tokens.reverse()

    def whole(self) -> int:
        if not self._tokens:
            return 0
        value = self._sequence(True)
        if self._tokens:
            raise self._failure(f"unexpected '{self._tokens[-1]}'")
        return value

    def _failure(self, what: str) -> ArithmeticFailure:
        return ArithmeticFailure(f"{self._text.strip()[:200]}: {what}")

    def _take(self, *expected: str) -> str:
        """Consume the next token if it is one of `expected`; returns it, or nothing."""
        if self._tokens and self._tokens[-1] in expected:
            return self._tokens.pop()
        return ""

    def _sequence(self, is_live: bool) -> int:
        value = self._assignment(is_live)
        while self._take(","):
            value = self._assignment(is_live)
        return value

    def _assignment(self, is_live: bool) -> int:
        self._nesting += 1
        if self._nesting > _MAX_DEPTH * 2:
            raise self._failure("nested too deeply")
        name = self._tokens[-1] if self._tokens else ""
        operator = self._tokens[-2] if len(self._tokens) > 1 else ""
        if operator in _ASSIGNING and (name[:1].isalpha() or name[:1] == "_"):
            del self._tokens[-2:]
            old = self._value(name) if is_live and operator != "=" else 0
            value = self._assignment(is_live)
            if is_live:
                value = value if operator == "=" else self._combine(operator[:-1], old, value)
                self._variables[name] = str(value)
        else:
            value = self._choice(is_live)
        self._nesting -= 1
        return value

    def _choice(self, is_live: bool) -> int:
        condition = self._binary(1, is_live)
        if not self._take("?"):
            return condition
        yes = self._sequence(is_live and bool(condition))
        if not self._take(":"):
            raise self._failure("expected ':'")
        no = self._assignment(is_live and not condition)
        return yes if condition else no

    def _binary(self, lowest: int, is_live: bool) -> int:
        left = self._unary(is_live)
        while self._tokens and self._tokens[-1] in _BINARY:
            operator = self._tokens[-1]
            precedence = _BINARY[operator][0]
            if precedence < lowest:
                break
            self._tokens.pop()
            needed = is_live and not (
                (operator == "&&" and not left) or (operator == "||" and left != 0)
            )
            right = self._binary(precedence + 1, needed)
            if is_live:
                left = self._combine(operator, left, right)
        return left

    def _combine(self, operator: str, left: int, right: int) -> int:
        try:
            return _wrap(_BINARY[operator][1](left, right))
        except ZeroDivisionError:
            raise self._failure("zero divisor") from None

    def _unary(self, is_live: bool) -> int:
        self._nesting += 1
        if self._nesting > _MAX_DEPTH * 2:
            raise self._failure("nested too deeply")
        operator = self._take("+", "-", "!", "~", "++", "--")
        if operator in ("++", "--"):
            name = self._tokens.pop() if self._tokens else ""
            value = self._step(name, operator, is_live)
        elif operator:
            value = self._unary(is_live)
            meanings = {"+": value, "-": _wrap(-value), "!": int(not value), "~": ~value}
            value = meanings[operator]
        else:
            value = self._primary(is_live)
        self._nesting -= 1
        return value

    def _primary(self, is_live: bool) -> int:
        if self._take("("):
            value = self._sequence(is_live)
            if not self._take(")"):
                raise self._failure("missing )")
            return value
        token = self._tokens.pop() if self._tokens else ""
        if token[:1].isdigit():
            return self._number(token)
        if not (token[:1].isalpha() or token[:1] == "_"):
            raise self._failure(f"unexpected '{token or 'end of expression'}'")
        value = self._value(token) if is_live else 0
        if operator := self._take("++", "--"):
            self._step(token, operator, is_live)
        return value

    def _step(self, name: str, operator: str, is_live: bool) -> int:
        if not (name[:1].isalpha() or name[:1] == "_"):
            raise self._failure(f"{operator} requires lvalue")
        value = _wrap(self._value(name) + (1 if operator == "++" else -1)) if is_live else 0
        if is_live:
            self._variables[name] = str(value)
        return value

    def _value(self, name: str) -> int:
        text = self._variables.get(name, "")
        if text.isascii() and text.isdecimal() and len(text) < 10:
            return int(text)
        return evaluate(text, self._variables, self._depth + 1)

    def _number(self, token: str) -> int:
        base, sharp, digits = token.partition("#")
        try:
            if sharp:
                return _wrap(int(digits, int(base)))
            return _wrap(int(token[:5000], 16 if token[:2] in ("0x", "0X") else 10))
        except ValueError:
            raise self._failure(f"bad number '{token[:50]}'") from None
