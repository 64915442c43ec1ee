"""Tools that a model may use on its way to an answer: a calculator, and a closer look."""

import ast
from fractions import Fraction

import cv2
import numpy as np

from agentrl.types import Image

_LONGEST = 200
"""Characters of a term."""
_LARGEST = 10**60
_DIGITS = 12
"""Of a result that is not whole."""
_SIDE = 4096


def calculate(term: str) -> str:
    """The value of a term of numbers, `+ - * / // % **` and brackets.

    The term is read as a tree and each node is computed here: nothing of it is ever run.

    Returns:
        A whole number, or a decimal rounded to twelve digits.

    Raises:
        ValueError: it is no such term, its value is not defined, or it is too large.
    """
    if len(term) > _LONGEST:
        raise ValueError(f"a term of {len(term)} characters; {_LONGEST} are the most")
    try:
        tree = ast.parse(term.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"{term!r} is no term of numbers") from None
    value = _value(tree)
    return str(value) if value.denominator == 1 else f"{float(value):.{_DIGITS}g}"


def _value(node: ast.expr) -> Fraction:
    if (
        isinstance(node, ast.Constant)
        and isinstance(node.value, int | float)
        and not isinstance(node.value, bool)
    ):
        if not abs(node.value) <= _LARGEST:
            raise ValueError("a number is too large")
        return Fraction(repr(node.value))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub):
        value = _value(node.operand)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp):
        return _bounded(_joined(node.op, _value(node.left), _value(node.right)))
    raise ValueError(f"{type(node).__name__} is nothing that is calculated; use numbers and signs")


def _joined(sign: ast.operator, a: Fraction, b: Fraction) -> Fraction:
    if isinstance(sign, ast.Add):
        return a + b
    if isinstance(sign, ast.Sub):
        return a - b
    if isinstance(sign, ast.Mult):
        return a * b
    if isinstance(sign, ast.Pow):
        return _power(a, b)
    if not isinstance(sign, ast.Div | ast.FloorDiv | ast.Mod):
        raise ValueError(f"{type(sign).__name__} is no sign that is known")
    if not b:
        raise ValueError("division by zero")
    if isinstance(sign, ast.Div):
        return a / b
    return Fraction(a // b) if isinstance(sign, ast.FloorDiv) else a % b


def _power(a: Fraction, b: Fraction) -> Fraction:
    if b.denominator != 1 or abs(b) > 64 or (not a and b < 0):
        raise ValueError(f"{a} ** {b}: the exponent must be whole, and 64 at most")
    # Of what is larger, no more than its size is computed.
    if max(abs(a.numerator), a.denominator).bit_length() * abs(b) > 1000:
        raise ValueError(f"{a} ** {b} is too large")
    return a ** int(b)


def _bounded(value: Fraction) -> Fraction:
    if max(abs(value.numerator), value.denominator) > _LARGEST:
        raise ValueError("a value on the way is too large")
    return value


def zoom(picture: Image, box: tuple[float, float, float, float], side: int) -> Image:
    """A part of a picture, as large as is asked for.

    Args:
        picture: uint8[H, W, 3].
        box: left, top, right and bottom in [0, 1].
        side: of the result's longer side, in pixels.

    Returns:
        uint8[H, W, 3], in the shape of the box.

    Raises:
        ValueError: the box lies outside or holds nothing.
    """
    left, top, right, bottom = box
    if not (0 <= left < right <= 1 and 0 <= top < bottom <= 1) or not 1 <= side <= _SIDE:
        raise ValueError(f"{box} is no box; it must be left, top, right and bottom in [0, 1]")
    height, width = picture.shape[:2]
    x0, y0 = int(left * width), int(top * height)
    x1, y1 = max(x0 + 1, round(right * width)), max(y0 + 1, round(bottom * height))
    part = picture[y0:y1, x0:x1]
    scale = side / max(part.shape[:2])
    size = (max(1, round(part.shape[1] * scale)), max(1, round(part.shape[0] * scale)))
    how = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    return np.ascontiguousarray(cv2.resize(part, size, interpolation=how), dtype=np.uint8)
