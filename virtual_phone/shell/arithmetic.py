"""Evaluate the integer expressions of `$((...))` and `((...))`."""

import operator
import re
from collections.abc import Callable, MutableMapping

_TOKEN = re.compile(
    r"\s*(?:(0[xX][0-9a-fA-F]+|\d+)|([A-Za-z_]\w*)|"
    r"(\+\+|--|&&|\|\||<<|>>|[-+*/%&|^=!<>]=|[-+*/%&|^=!<>~?:()]))",
    re.ASCII,
)
_BINARY: dict[str, tuple[int, Callable[[int, int], int]]] = {
    "|": (3, operator.or_), "^": (4, operator.xor), "&": (5, operator.and_),
    "==": (6, operator.eq), "!=": (6, operator.ne),
    "<": (7, operator.lt), "<=": (7, operator.le), ">": (7, operator.gt), ">=": (7, operator.ge),
    "<<": (8, lambda a, b: a << (b & 31)), ">>": (8, lambda a, b: a >> (b & 31)),
    "+": (9, operator.add), "-": (9, operator.sub), "*": (10, operator.mul),
    "/": (10, lambda a, b: _quotient(a, b)), "%": (10, lambda a, b: a - b * _quotient(a, b)),
}  # fmt: skip
"""Precedence and meaning of each binary operator, as in C."""
_LOGICAL = {"||": 1, "&&": 2}
_ASSIGNING = frozenset(("=", "*=", "/=", "%=", "+=", "-=", "&=", "^=", "|="))
_MAX_DEPTH = 30
Thunk = Callable[[], int]
"""A parsed operand, evaluated only when needed: `0 && x++` leaves x unchanged."""


class ArithmeticFailure(Exception):
    """The expression cannot be evaluated; the shell prints the message."""


def evaluate(expression: str, variables: MutableMapping[str, str], depth: int = 0) -> int:
    """Evaluate an expression with 32-bit signed integers, as mksh does.

    Values of variables are themselves expressions, up to a nesting limit; assignments change
    `variables`.

    Raises:
        ArithmeticFailure: the expression is invalid or divides by zero.
    """
    if depth > _MAX_DEPTH:
        raise ArithmeticFailure(f"{expression[:100]}: expression recurses on parameter")
    try:
        return _Expression(expression, variables, depth).parsed()()
    except RecursionError:
        raise ArithmeticFailure(f"{expression.strip()[:100]}: nested too deeply") from None


def _quotient(a: int, b: int) -> int:
    """Divide, truncating towards zero."""
    return a // b if (a < 0) == (b < 0) else -(-a // b)


def _wrap(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


class _Expression:
    """Recursive-descent parser over the tokens of an expression."""

    def __init__(self, text: str, variables: MutableMapping[str, str], depth: int) -> None:
        self._text = text
        self._variables = variables
        self._depth = depth
        self._tokens: list[str] = []
        at, text = 0, text.rstrip()
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise self._failure(f"unexpected '{text[at:].strip()[:1]}'")
            self._tokens.append(found.group().strip())
            at = found.end()
        self._tokens.reverse()

    def parsed(self) -> Thunk:
        if not self._tokens:
            return lambda: 0
        value = self._assignment()
        if self._tokens:
            raise self._failure(f"unexpected '{self._tokens[-1]}'")
        return value

    def _failure(self, what: str) -> ArithmeticFailure:
        return ArithmeticFailure(f"{self._text.strip()[:200]}: {what}")

    def _take(self, *expected: str) -> str:
        """Consume and return the next token if it is one of `expected`; otherwise return ''."""
        return self._tokens.pop() if self._tokens and self._tokens[-1] in expected else ""

    def _assignment(self) -> Thunk:
        name = self._tokens[-1] if self._tokens else ""
        symbol = self._tokens[-2] if len(self._tokens) > 1 else ""
        if symbol in _ASSIGNING and name.isidentifier():
            del self._tokens[-2:]
            value = self._assignment()
            if symbol != "=":
                value = self._combined(symbol[:-1], lambda: self._value(name), value)
            return lambda: self._assign(name, value())
        condition = self._binary(1)
        if not self._take("?"):
            return condition
        yes = self._assignment()
        if not self._take(":"):
            raise self._failure("expected ':'")
        no = self._assignment()
        return lambda: yes() if condition() else no()

    def _binary(self, lowest: int) -> Thunk:
        left = self._unary()
        while self._tokens:
            symbol = self._tokens[-1]
            precedence = _LOGICAL.get(symbol) or _BINARY.get(symbol, (0,))[0]
            if precedence < lowest:
                break
            self._tokens.pop()
            left = self._combined(symbol, left, self._binary(precedence + 1))
        return left

    def _combined(self, symbol: str, left: Thunk, right: Thunk) -> Thunk:
        if symbol == "||":
            return lambda: int(bool(left() or right()))
        if symbol == "&&":
            return lambda: int(bool(left() and right()))

        def value() -> int:
            try:
                return _wrap(int(_BINARY[symbol][1](left(), right())))
            except ZeroDivisionError:
                raise self._failure("zero divisor") from None

        return value

    def _unary(self) -> Thunk:
        sign = self._take("+", "-", "!", "~", "++", "--")
        if sign in ("++", "--"):
            name, step = (self._tokens or [""]).pop(), 1 if sign == "++" else -1
            if not name.isidentifier():
                raise self._failure(f"{sign} requires lvalue")
            return lambda: self._assign(name, self._value(name) + step)
        if sign:
            value = self._unary()
            meanings: dict[str, Thunk] = {
                "+": value, "-": lambda: _wrap(-value()), "!": lambda: int(not value()),
                "~": lambda: ~value(),
            }  # fmt: skip
            return meanings[sign]
        if self._take("("):
            value = self._assignment()
            if not self._take(")"):
                raise self._failure("missing )")
            return value
        token = (self._tokens or [""]).pop()
        if token[:1].isdigit():
            number = _wrap(int(token[:5000], 16 if token[:2] in ("0x", "0X") else 10))
            return lambda: number
        if not token.isidentifier():
            raise self._failure(f"unexpected '{token or 'end of expression'}'")
        if after := self._take("++", "--"):
            change = 1 if after == "++" else -1
            # A postfix operator returns the value before the change.
            return lambda: _wrap(self._assign(token, self._value(token) + change) - change)
        return lambda: self._value(token)

    def _assign(self, name: str, value: int) -> int:
        value = _wrap(value)
        self._variables[name] = str(value)
        return value

    def _value(self, name: str) -> int:
        text = self._variables.get(name, "")
        if text.isascii() and text.isdecimal() and len(text) < 10:
            return int(text)
        return evaluate(text, self._variables, self._depth + 1)
