"""`uiautomator dump`: the view hierarchy of the screen as XML."""

import inspect
import logging
import re
from collections.abc import Sequence
from xml.etree import ElementTree

from virtual_phone.apps.app import View
from virtual_phone.apps.system_packages import LAUNCHER
from virtual_phone.commands.command_table import command
from virtual_phone.commands.dumpsys import boolean
from virtual_phone.shell.command_context import CommandContext
from virtual_phone.system import system_screens
from virtual_phone.virtual_phone import VirtualPhone

log = logging.getLogger(__name__)

_DUMP = "/sdcard/window_dump.xml"
_WHOLE = (0.0, 0.0, 1.0, 1.0)
_MAX_DEPTH = 100
_NOT_XML = re.compile("[\\x00-\\x08\\x0b-\\x1f]")
"""Characters that XML cannot represent."""
_HEAD = "<?xml version='1.0' encoding='UTF-8' standalone='yes' ?>"


@command("uiautomator")
async def uiautomator(ctx: CommandContext) -> int:
    """`uiautomator dump [--compressed] [FILE]`, once the screen is idle."""
    if ctx.arguments[:1] != ["dump"]:
        return ctx.fail("Unsupported command: uiautomator " + " ".join(ctx.arguments), 1)
    files = [word for word in ctx.arguments[1:] if not word.startswith("-")]
    target = files[0] if files else _DUMP
    # On Android, the hierarchy never becomes idle while the screen is off.
    if not ctx.phone.power.awake:
        return ctx.fail("ERROR: could not get idle state.")
    await ctx.phone.display.wait_until_idle()
    xml = (await _hierarchy(ctx.phone)).encode("utf-8", "replace")
    if target == "/dev/tty":
        ctx.out(xml)
    else:
        ctx.phone.files.write(ctx.path(target), xml)
    return ctx.print(f"UI hierchary dumped to: {target}")  # codespell:ignore


async def _hierarchy(phone: VirtualPhone) -> str:
    """Return the hierarchy as XML, with bounds in screen pixels."""
    package, views = await _front(phone)
    root = View(bounds=_WHOLE, kind="android.widget.FrameLayout", children=views)
    hierarchy = ElementTree.Element("hierarchy", rotation=str(phone.geometry.rotation))
    _add_node(phone, package, root, hierarchy, 0)
    return _HEAD + ElementTree.tostring(hierarchy, "unicode")


async def _front(phone: VirtualPhone) -> tuple[str, Sequence[View]]:
    """Return the package in front and its views."""
    if phone.power.locked:
        lock = View(bounds=_WHOLE, id="keyguard", description="Swipe up to unlock")
        return "com.android.systemui", [lock]
    if phone.dialog is not None:
        return "android", phone.dialog.views()
    installed = phone.tasks.installed
    if installed is None:
        kind = "android.widget.TextView"
        names = [package.rpartition(".")[2] for package in phone.tasks.apps]
        return LAUNCHER, [
            View(bounds=system_screens.tile_bounds(index), text=name, kind=kind, is_clickable=True)
            for index, name in enumerate(names)
        ]
    package = installed.app.package
    views = getattr(installed.app, "views", None)
    try:
        found = views() if callable(views) else []
        children = await found if inspect.isawaitable(found) else found
    except Exception:
        # Treat an app whose `views` fails as an app without views.
        log.exception("views() of %s failed", package)
        children = []
    return package, children


def _add_node(
    phone: VirtualPhone, package: str, view: View, parent: ElementTree.Element, depth: int
) -> None:
    width, height = phone.geometry.size
    area_height = phone.geometry.area[1]
    left, top, right, bottom = view.bounds
    above = height - area_height
    ys = (round(above + top * area_height), round(above + bottom * area_height))
    attributes = {
        "index": str(len(parent)),
        "text": view.text,
        "resource-id": f"{package}:id/{view.id}" if view.id else "",
        "class": view.kind,
        "package": package,
        "content-desc": view.description,
        "checkable": boolean(view.is_checked is not None),
        "checked": boolean(view.is_checked is True),
        "clickable": boolean(view.is_clickable),
        "enabled": boolean(view.is_enabled),
        "focusable": boolean(view.is_clickable),
        "focused": "false",
        "scrollable": "false",
        "long-clickable": "false",
        "password": "false",
        "selected": "false",
        "bounds": f"[{round(left * width)},{ys[0]}][{round(right * width)},{ys[1]}]",
    }
    written = {name: _NOT_XML.sub(".", text) for name, text in attributes.items()}
    node = ElementTree.SubElement(parent, "node", written)
    for child in view.children if depth < _MAX_DEPTH else ():
        _add_node(phone, package, child, node, depth + 1)
