"""A phone's whole state as plain JSON: taken, kept, and put back on this phone or on another.

An app is a pure state machine, so what it was started with and its inputs since are its state.
What makes one phone another than the next stays: its serial number, its keys, its delays, its
faults and the size of its screen. Over adb, a phone is forked by

    adb -s ONE shell cmd agentrl dump | adb -s OTHER shell cmd agentrl load
"""

import base64
import stat
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from agentrl.virtual_phone.apps.apk import Manifest
from agentrl.virtual_phone.apps.installed_app import Installed
from agentrl.virtual_phone.apps.system_apps import Page
from agentrl.virtual_phone.protocol.adb_auth import KEYS_FILE
from agentrl.virtual_phone.system.dialogs import KINDS, Dialog
from agentrl.virtual_phone.system.file_system import Node

if TYPE_CHECKING:
    from agentrl.virtual_phone.phone import Phone

VERSION = 2
_OWN_PROPERTIES = ("ro.serialno", "ro.boot.serialno")
_EVENTS: dict[str, tuple[type, ...]] = {
    "touch": (float, float),
    "swipe": (float, float, float, float, int),
    "key": (str,),
    "text": (str,),
    "clear_text": (),
    "status_bar": (),
    "tick": (int,),
    "home": (),
}
"""What an app can have gone through, and what each was called with."""


def take(phone: "Phone") -> dict[str, Any]:
    """The state of a phone, as JSON can hold it."""
    tasks, dialog = phone.tasks, phone.dialog
    return {
        "version": VERSION,
        "apps": {
            name: _app(app) for name, app in tasks.apps.items() if app.launches or app.manifest
        },
        "pages": {name: _page(page) for name, page in tasks.pages.items()},
        "running": sorted(tasks.running),
        "crashed": sorted(tasks.crashed),
        "stack": list(tasks.stack),
        "home_clock_s": tasks.home_clock_s,
        "dialog": None if dialog is None else {"kind": dialog.kind, "package": dialog.package},
        "power": asdict(phone.power),
        "battery": dict(phone.battery.values),
        "override": phone.geometry.override,
        "density": phone.geometry.density_override,
        "settings": phone.settings.as_rows(),
        "properties": {k: v for k, v in phone.properties.items() if k not in _OWN_PROPERTIES},
        "files": [_file(path, node) for path, node in phone.files.all() if path != KEYS_FILE],
    }


def restore(phone: "Phone", told: object) -> None:
    """Put a phone into a state that `take` gave; it is to be seen at once.

    Raises:
        ValueError: it is none, or names an app that this phone has not; nothing has changed then.
    """
    before = take(phone)
    try:
        _apply(phone, told)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        _apply(phone, before)
        raise ValueError(f"{type(error).__name__}: {error}") from error
    finally:
        phone.display.at_once()


def _app(installed: Installed) -> dict[str, Any]:
    told = {
        name: getattr(installed, name)
        for name in ("is_enabled", "extras", "touches", "launches", "clock_s")
    }
    manifest = None if installed.manifest is None else asdict(installed.manifest)
    return {**told, "inputs": [list(event) for event in installed.inputs], "manifest": manifest}


def _page(installed: Installed) -> dict[str, Any]:
    return {
        "activity": installed.app.activity,
        "extras": installed.extras,
        "clock_s": installed.clock_s,
    }


def _file(path: str, node: Node) -> list[Any]:
    content = None if node.content is None else base64.b64encode(node.content).decode()
    return [path, node.mode, node.mtime, content]


def _apply(phone: "Phone", told: Any) -> None:
    """Put everything back, part by part; whatever is no snapshot raises on the way."""
    if not isinstance(told, dict) or told.get("version") != VERSION:
        raise ValueError(f"it must be a mapping with version: {VERSION}")
    tasks = phone.tasks
    _apply_apps(phone, told["apps"])
    tasks.pages = {str(name): _make_page(str(name), page) for name, page in told["pages"].items()}
    tasks.running = {_known(name, tasks.apps) for name in told["running"]}
    tasks.crashed = {_known(name, tasks.apps) for name in told["crashed"]}
    tasks.stack = [_known(name, {**tasks.apps, **tasks.pages}) for name in told["stack"]]
    tasks.home_clock_s = int(told["home_clock_s"])
    phone.dialog = _make_dialog(told["dialog"])
    for name, value in told["power"].items():
        setattr(phone.power, _known(name, ("awake", "locked", "has_lock")), bool(value))
    phone.battery.values = _texts(told["battery"])
    phone.geometry.set_size(None if told["override"] is None else _size(told["override"]))
    phone.geometry.density_override = None if told["density"] is None else int(told["density"])
    phone.settings.set_rows([[str(one) for one in row] for row in told["settings"]])
    own = {name: phone.properties[name] for name in _OWN_PROPERTIES}
    phone.properties.clear()
    phone.properties.update({**_texts(told["properties"]), **own})
    _apply_files(phone, told["files"])


def _apply_apps(phone: "Phone", told: Mapping[str, Any]) -> None:
    apps = phone.tasks.apps
    for package in [p for p, app in apps.items() if app.manifest is not None]:
        del apps[package]
    for package, one in told.items():
        if one["manifest"] is not None:
            manifest = Manifest(**one["manifest"])
            page = Page(manifest.package, manifest.activity)
            apps[manifest.package] = Installed(app=page, manifest=manifest)
        _known(package, apps)
    for package, installed in apps.items():
        _apply_app(installed, told.get(package))


def _apply_app(installed: Installed, told: Mapping[str, Any] | None) -> None:
    installed.extras, installed.inputs, installed.area = {}, [], None
    installed.touches = installed.launches = 0
    if told is None:
        return
    installed.is_enabled = bool(told["is_enabled"])
    installed.extras = _texts(told["extras"])
    installed.inputs = [_event(event) for event in told["inputs"]]
    installed.touches, installed.launches = int(told["touches"]), int(told["launches"])
    installed.clock_s = int(told["clock_s"])
    if installed.launches:
        installed.replay()


def _event(told: list[Any]) -> tuple[Any, ...]:
    """One input, of a kind that there is."""
    name, *values = told
    kinds = _EVENTS[name]
    if len(values) != len(kinds):
        raise ValueError(f"{name} takes {len(kinds)} values, not {len(values)}")
    return (name, *(kind(value) for kind, value in zip(kinds, values, strict=True)))


def _make_page(package: str, told: Mapping[str, Any]) -> Installed:
    page = Installed(app=Page(package, str(told["activity"])))
    page.launch(_texts(told["extras"]), int(told["clock_s"]))
    return page


def _make_dialog(told: Mapping[str, Any] | None) -> Dialog | None:
    if told is None:
        return None
    kind = next((kind for kind in KINDS if kind == told["kind"]), None)
    if kind is None:
        raise ValueError(f"there is no dialog {told['kind']!r}")
    return Dialog(kind=kind, package=str(told["package"]))


def _apply_files(phone: "Phone", told: list[Any]) -> None:
    files = phone.files
    keys = files.read(KEYS_FILE) if files.find(KEYS_FILE) is not None else None
    files.clear()
    for path, mode, mtime, content in told:
        if content is None:
            files.make_folders(str(path))
        else:
            data = base64.b64decode(content, validate=True)
            files.make_folders(str(path).rpartition("/")[0] or "/")
            files.write(str(path), data, mode=stat.S_IMODE(int(mode)), mtime=int(mtime))
    if keys is not None:
        files.make_folders(KEYS_FILE.rpartition("/")[0])
        files.write(KEYS_FILE, keys)


def _texts(told: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in told.items()}


def _size(told: Any) -> tuple[int, int]:
    width, height = told
    return int(width), int(height)


def _known(name: Any, names: Any) -> str:
    if name not in names:
        raise ValueError(f"there is no {name!r} on this phone")
    return str(name)
