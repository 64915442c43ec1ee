"""Tools that a model can use before it answers: a calculator and image zoom."""

import ast
from fractions import Fraction

import cv2
import numpy as np

from agentrl.types import Image

_LONGEST = 200
"""Maximum length of an expression, in characters."""
_LARGEST = 10**60
_DIGITS = 12
"""Significant digits of a result that is not a whole number."""
_SIDE = 4096


def calculate(term: str) -> str:
    """Evaluate an expression of numbers, `+ - * / // % **` and brackets.

    The expression is parsed into a syntax tree and evaluated node by node: no code is executed.

    Returns:
        A whole number, or a decimal rounded to twelve digits.

    Raises:
        ValueError: the expression is invalid, or its value is undefined or too large.
    """
    if len(term) > _LONGEST:
        raise ValueError(f"the expression has {len(term)} characters; the limit is {_LONGEST}")
    try:
        tree = ast.parse(term.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"{term!r} is not an expression of numbers") from None
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
    raise ValueError(f"{type(node).__name__} is not supported; use numbers and operators")


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
        raise ValueError(f"the operator {type(sign).__name__} is not supported")
    if not b:
        raise ValueError("division by zero")
    if isinstance(sign, ast.Div):
        return a / b
    return Fraction(a // b) if isinstance(sign, ast.FloorDiv) else a % b


def _power(a: Fraction, b: Fraction) -> Fraction:
    if b.denominator != 1 or abs(b) > 64 or (not a and b < 0):
        raise ValueError(f"{a} ** {b}: the exponent must be a whole number, at most 64")
    # Estimate the size first: computing a huge power would take too long.
    if max(abs(a.numerator), a.denominator).bit_length() * abs(b) > 1000:
        raise ValueError(f"{a} ** {b} is too large")
    return a ** int(b)


def _bounded(value: Fraction) -> Fraction:
    if max(abs(value.numerator), value.denominator) > _LARGEST:
        raise ValueError("an intermediate value is too large")
    return value


def zoom(picture: Image, box: tuple[float, float, float, float], side: int) -> Image:
    """Crop a picture and resize the crop.

    Args:
        picture: uint8[H, W, 3].
        box: left, top, right and bottom in [0, 1].
        side: length of the result's longer side, in pixels.

    Returns:
        uint8[H, W, 3], with the aspect ratio of the box.

    Raises:
        ValueError: the box is empty or extends outside the picture, or the side is too long.
    """
    left, top, right, bottom = box
    if not (0 <= left < right <= 1 and 0 <= top < bottom <= 1) or not 1 <= side <= _SIDE:
        raise ValueError(f"{box} is not a box; it must be left, top, right and bottom in [0, 1]")
    height, width = picture.shape[:2]
    x0, y0 = int(left * width), int(top * height)
    x1, y1 = max(x0 + 1, round(right * width)), max(y0 + 1, round(bottom * height))
    part = picture[y0:y1, x0:x1]
    scale = side / max(part.shape[:2])
    size = (max(1, round(part.shape[1] * scale)), max(1, round(part.shape[0] * scale)))
    how = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    return np.ascontiguousarray(cv2.resize(part, size, interpolation=how), dtype=np.uint8)
