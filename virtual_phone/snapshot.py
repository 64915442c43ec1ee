"""Snapshots: the complete state of a phone as JSON, restored on the same phone or another.

An app is a pure state machine, so its launch arguments and subsequent inputs are its state.
Excluded is everything that makes a phone unique: serial number, ADB keys, delays, faults
and screen size. To copy a phone's state over adb:

    adb -s ONE shell cmd agentrl dump | adb -s OTHER shell cmd agentrl load
"""

import base64
import stat
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from virtual_phone.apps.apk import ApkManifest
from virtual_phone.apps.dialogs import KINDS, Dialog
from virtual_phone.apps.installed_app import InstalledApp
from virtual_phone.apps.text_page_app import TextPage
from virtual_phone.device_state import DeviceState
from virtual_phone.system.file_system import KEYS_FILE, is_writable
from virtual_phone.system.phone_settings import ANDROID_ID

VERSION = 3
_IDENTITY_PROPERTIES = ("ro.serialno", "ro.boot.serialno")
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
"""Recorded inputs of an app and the types of their arguments."""


def take(phone: DeviceState) -> dict[str, Any]:
    """Return the state of a phone as JSON-compatible values.

    Raises:
        ValueError: a live app is running, whose state is outside the phone.
    """
    tasks, dialog = phone.tasks, phone.dialog
    if live := sorted(name for name in tasks.running if tasks.apps[name].is_live):
        raise ValueError(f"{live[0]} is running, and its state cannot be saved; stop it first")
    return {
        "version": VERSION,
        "apps": {
            name: _app(app) for name, app in tasks.apps.items() if app.launches or app.manifest
        },
        "pages": {
            name: {"activity": page.app.activity, "extras": page.extras, "clock_s": page.clock_s}
            for name, page in tasks.pages.items()
        },
        "disabled": sorted(tasks.disabled),
        "running": sorted(tasks.running),
        "crashed": sorted(tasks.crashed),
        "stack": list(tasks.stack),
        "home_clock_s": tasks.home_clock_s,
        "dialog": None if dialog is None else {"kind": dialog.kind, "package": dialog.package},
        "power": asdict(phone.power),
        "battery": dict(phone.battery.values),
        "override": phone.geometry.override,
        "density": phone.geometry.density_override,
        "settings": [row for row in phone.settings.as_rows() if row[1] != ANDROID_ID],
        "properties": {k: v for k, v in phone.properties.items() if k not in _IDENTITY_PROPERTIES},
        "files": [
            [path, node.mode, node.mtime, _encoded(node.content)]
            for path, node in phone.files.all()
            if path != KEYS_FILE
        ],
    }


def restore(phone: DeviceState, state: object) -> None:
    """Restore and show a state from `take`; an invalid state changes nothing and raises."""
    before = take(phone)
    try:
        _apply(phone, state)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        _apply(phone, before)
        raise ValueError(f"{type(error).__name__}: {error}") from error
    finally:
        phone.show_now()


def _app(installed: InstalledApp) -> dict[str, Any]:
    fields = {
        name: getattr(installed, name) for name in ("extras", "touches", "launches", "clock_s")
    }
    manifest = None if installed.manifest is None else asdict(installed.manifest)
    return {**fields, "inputs": [list(event) for event in installed.inputs], "manifest": manifest}


def _encoded(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


def _apply(phone: DeviceState, state: Any) -> None:
    """Restore part by part; an invalid snapshot raises midway."""
    if not isinstance(state, dict) or state.get("version") != VERSION:
        raise ValueError(f"it must be a mapping with version: {VERSION}")
    tasks = phone.tasks
    _apply_apps(phone, state["apps"])
    tasks.pages = {str(name): _make_page(str(name), page) for name, page in state["pages"].items()}
    tasks.disabled = {str(name) for name in state["disabled"]}
    tasks.running = {_known(name, tasks.apps) for name in state["running"]}
    tasks.crashed = {_known(name, tasks.apps) for name in state["crashed"]}
    tasks.stack = [_known(name, {**tasks.apps, **tasks.pages}) for name in state["stack"]]
    tasks.home_clock_s = int(state["home_clock_s"])
    phone.dialog = _make_dialog(state["dialog"])
    for name, value in state["power"].items():
        setattr(phone.power, _known(name, ("awake", "locked", "has_lock")), bool(value))
    phone.battery.values = _texts(state["battery"])
    width, height = state["override"] or (0, 0)
    phone.geometry.set_size((int(width), int(height)) if state["override"] else None)
    phone.geometry.density_override = None if state["density"] is None else int(state["density"])
    android_id = phone.settings.get("secure", ANDROID_ID) or ""
    phone.settings.set_rows([[str(cell) for cell in row] for row in state["settings"]])
    phone.settings.put("secure", ANDROID_ID, android_id)
    own = {name: phone.properties[name] for name in _IDENTITY_PROPERTIES}
    phone.properties.clear()
    phone.properties.update({**_texts(state["properties"]), **own})
    _apply_files(phone, state["files"])


def _apply_apps(phone: DeviceState, states: Mapping[str, Any]) -> None:
    apps = phone.tasks.apps
    for package in [p for p, app in apps.items() if app.manifest is not None]:
        del apps[package]
    for package, state in states.items():
        if state["manifest"] is not None:
            manifest = ApkManifest(**state["manifest"])
            page = TextPage(manifest.package, manifest.activity)
            apps[manifest.package] = InstalledApp(app=page, manifest=manifest)
        _known(package, apps)
    for package, installed in apps.items():
        _apply_app(installed, states.get(package))


def _apply_app(installed: InstalledApp, state: Mapping[str, Any] | None) -> None:
    installed.extras, installed.inputs, installed.area = {}, [], None
    installed.touches = installed.launches = 0
    if state is None:
        return
    installed.extras = _texts(state["extras"])
    installed.inputs = [_event(event) for event in state["inputs"]]
    installed.touches, installed.launches = int(state["touches"]), int(state["launches"])
    installed.clock_s = int(state["clock_s"])
    if installed.launches and not installed.is_live:
        installed.replay()


def _event(stored: list[Any]) -> tuple[Any, ...]:
    """Validate a recorded input."""
    name, *values = stored
    kinds = _EVENTS[name]
    if len(values) != len(kinds):
        raise ValueError(f"input {name} takes {len(kinds)} values, not {len(values)}")
    return (name, *(kind(value) for kind, value in zip(kinds, values, strict=True)))


def _make_page(package: str, state: Mapping[str, Any]) -> InstalledApp:
    page = InstalledApp(app=TextPage(package, str(state["activity"])))
    page.launch(_texts(state["extras"]), int(state["clock_s"]))
    return page


def _make_dialog(state: Mapping[str, Any] | None) -> Dialog | None:
    if state is None:
        return None
    kind = next((kind for kind in KINDS if kind == state["kind"]), None)
    if kind is None:
        raise ValueError(f"unknown dialog {state['kind']!r}")
    return Dialog(kind=kind, package=str(state["package"]))


def _apply_files(phone: DeviceState, rows: list[Any]) -> None:
    files = phone.files
    keys = files.read(KEYS_FILE) if files.find(KEYS_FILE) is not None else None
    files.clear()
    for path, mode, mtime, content in rows:
        data = None if content is None else base64.b64decode(content, validate=True)
        if not is_writable(str(path)):
            continue
        if data is None:
            files.make_folders(str(path))
            continue
        files.make_folders(str(path).rpartition("/")[0] or "/")
        if stat.S_ISLNK(int(mode)):
            files.make_link(str(path), data.decode("utf-8", "surrogateescape"))
        else:
            files.write(str(path), data, mode=stat.S_IMODE(int(mode)), mtime=int(mtime))
    if keys is not None:
        files.make_folders(KEYS_FILE.rpartition("/")[0])
        files.write(KEYS_FILE, keys)


def _texts(mapping: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in mapping.items()}


def _known(name: Any, names: Any) -> str:
    if name not in names:
        raise ValueError(f"this phone has no {name!r}")
    return str(name)
