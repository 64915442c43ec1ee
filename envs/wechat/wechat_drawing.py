"""Draws WeChat around a mini-program: the capsule, the menu, and the chats."""

from agentrl.envs.android.phone_game import cached_drawing, paint
from agentrl.envs.android.phone_game.boxes import Box
from agentrl.envs.wechat.simulated_wechat import (
    CAPSULE,
    CIRCLE,
    DOTS,
    ENTRY,
    SHEET,
    Shows,
)
from agentrl.types import Image

_GREEN = (7, 193, 96)
_INK, _QUIET, _WHITE = (30, 30, 30), (150, 150, 150), (255, 255, 255)
_PAPER, _LINE = (250, 250, 250), (226, 226, 226)
_CHATS = ("Ada", "Ben", "Cai", "Dee", "Eli", "Fay")
_ROW = 0.09
"""Height of a chat, as a share of the screen's height."""


def draw_capsule(picture: Image) -> None:
    """Draw the capsule: dots and a circle, in place."""
    paint.rounded(picture, CAPSULE, _LINE, 0.04)
    inner = Box(
        CAPSULE.left + 0.004, CAPSULE.top + 0.002, CAPSULE.right - 0.004, CAPSULE.bottom - 0.002
    )
    paint.rounded(picture, inner, _WHITE, 0.037)
    for share in (0.3, 0.5, 0.7):
        x = DOTS.across(share)
        paint.disc(picture, Box(x, DOTS.top, x, DOTS.bottom), _INK, 0.008)
    for color, size in ((_INK, 0.026), (_WHITE, 0.02), (_INK, 0.01)):
        paint.disc(picture, CIRCLE, color, size)


def draw_menu(picture: Image) -> None:
    """Darken the picture and draw the menu over it, in place."""
    picture[:] = picture // 2
    paint.rounded(picture, SHEET, _PAPER, 0.03)
    for x, label in zip((0.2, 0.5, 0.8), ("Share", "Float", "Reload"), strict=True):
        icon = Box(x - 0.07, SHEET.down(0.22), x + 0.07, SHEET.down(0.5))
        paint.rounded(picture, icon, _LINE, 0.02)
        paint.text(picture, label, x, SHEET.down(0.62), 0.042, _QUIET)
    paint.text(picture, "Cancel", 0.5, SHEET.down(0.86), 0.05, _INK)


def draw_chats(name: str, width: int, height: int) -> Image:
    """Draw WeChat's chats, with the game's entry at the top, uint8[height, width, 3]."""
    return cached_drawing.draw((_chats, (name,)), (), width, height)


def _chats(picture: Image, name: str) -> None:
    picture[:] = _PAPER
    paint.text(picture, "Chats", 0.5, 0.08, 0.055, _INK)
    _draw_entry(picture, name)
    for row, chat in enumerate(_CHATS):
        top = ENTRY.bottom + row * _ROW
        paint.rounded(picture, Box(0.05, top + 0.012, 0.17, top + _ROW - 0.012), _LINE, 0.02)
        paint.text(picture, chat, 0.27, top + _ROW / 2, 0.05, _INK)


def _draw_entry(picture: Image, name: str) -> None:
    """Draw the game's icon, a white tree on a green square, and its name."""
    high, wide = picture.shape[:2]
    half = 0.06 * wide / high
    icon = Box(0.05, ENTRY.center[1] - half, 0.17, ENTRY.center[1] + half)
    paint.rounded(picture, icon, _GREEN, 0.02)
    x, y = icon.center
    paint.disc(picture, Box(x, y - 0.01, x, y - 0.01), _WHITE, 0.03)
    trunk = (
        (x - 0.008, y),
        (x + 0.008, y),
        (x + 0.008, icon.down(0.85)),
        (x - 0.008, icon.down(0.85)),
    )
    paint.polygon(picture, trunk, _WHITE)
    paint.text(picture, name, 0.42, y, 0.05, _INK)


def draw_around(picture: Image, shows: Shows) -> None:
    """Draw the capsule, and the menu if it is open, on top of an open game, in place."""
    draw_capsule(picture)
    if shows is Shows.MENU:
        draw_menu(picture)
        draw_capsule(picture)
