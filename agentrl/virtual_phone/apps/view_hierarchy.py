"""The view hierarchy of the screen, as written by `uiautomator dump`."""

import logging
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import quoteattr

from agentrl.virtual_phone.apps.app import View
from agentrl.virtual_phone.apps.system_apps import LAUNCHER
from agentrl.virtual_phone.system import drawing
from agentrl.virtual_phone.virtual_phone import VirtualPhone

log = logging.getLogger(__name__)

_WHOLE = (0.0, 0.0, 1.0, 1.0)
_MAX_DEPTH = 100
_HEAD = "<?xml version='1.0' encoding='UTF-8' standalone='yes' ?>"


def dump(phone: VirtualPhone) -> str:
    """The hierarchy as XML, with bounds in pixels of the screen."""
    package, views = _front(phone)
    root = View(bounds=_WHOLE, kind="android.widget.FrameLayout", children=views)
    lines = _node(phone, package, root, 0, 0)
    return f'{_HEAD}<hierarchy rotation="{phone.geometry.rotation}">{"".join(lines)}</hierarchy>'


def _front(phone: VirtualPhone) -> tuple[str, Sequence[View]]:
    """The package in front and its views."""
    if phone.power.locked:
        lock = View(bounds=_WHOLE, id="keyguard", description="Swipe up to unlock")
        return "com.android.systemui", [lock]
    if phone.dialog is not None:
        return "android", phone.dialog.views()
    installed = phone.tasks.installed
    if installed is None:
        return LAUNCHER, _tiles(phone)
    package = installed.app.package
    views = getattr(installed.app, "views", None)
    try:
        children = views() if callable(views) else []
    except Exception:
        # An app that fails to describe its views appears without any.
        log.exception("views of %s failed", package)
        children = []
    return package, children


def _tiles(phone: VirtualPhone) -> list[View]:
    """The app tiles of the home screen."""
    tiles = []
    for index, package in enumerate(phone.tasks.apps):
        bounds, name = drawing.tile_bounds(index), package.rpartition(".")[2]
        kind = "android.widget.TextView"
        tiles.append(View(bounds=bounds, text=name, kind=kind, is_clickable=True))
    return tiles


def _node(phone: VirtualPhone, package: str, view: View, index: int, depth: int) -> Iterator[str]:
    width, height = phone.geometry.size
    area_height = phone.geometry.area[1]
    left, top, right, bottom = view.bounds
    above = height - area_height
    ys = (round(above + top * area_height), round(above + bottom * area_height))
    attributes = {
        "index": str(index),
        "text": view.text,
        "resource-id": f"{package}:id/{view.id}" if view.id else "",
        "class": view.kind,
        "package": package,
        "content-desc": view.description,
        "checkable": _yes(view.is_checked is not None),
        "checked": _yes(view.is_checked is True),
        "clickable": _yes(view.is_clickable),
        "enabled": _yes(view.is_enabled),
        "focusable": _yes(view.is_clickable),
        "focused": "false",
        "scrollable": "false",
        "long-clickable": "false",
        "password": "false",
        "selected": "false",
        "bounds": f"[{round(left * width)},{ys[0]}][{round(right * width)},{ys[1]}]",
    }
    written = " ".join(f"{name}={quoteattr(_printable(text))}" for name, text in attributes.items())
    if depth >= _MAX_DEPTH or not view.children:
        yield f"<node {written} />"
        return
    yield f"<node {written}>"
    for number, child in enumerate(view.children):
        yield from _node(phone, package, child, number, depth + 1)
    yield "</node>"


def _printable(text: str) -> str:
    """The text without characters that XML cannot represent."""
    return "".join(c if c >= " " or c in "\t\n" else "." for c in text)


def _yes(value: bool) -> str:
    return "true" if value else "false"
