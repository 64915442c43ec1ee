"""Properties and settings of a phone."""

import hashlib

NAMESPACES = ("system", "secure", "global")
APP_OPS = "appops"
"""Namespace that holds the modes of `appops`, out of reach of the `settings` command."""
ANDROID_ID = "android_id"
ADB_KEYBOARD = "com.android.adbkeyboard/.AdbIME"
LATIN_KEYBOARD = "com.android.inputmethod.latin/.LatinIME"

_MAX_SETTINGS = 2000
_MAX_LENGTH = 20_000


def properties(serialno: str) -> dict[str, str]:
    """Return the initial properties of a virtual phone."""
    return {
        "ro.product.model": "Virtual Phone",
        "ro.product.name": "virtual",
        "ro.product.device": "virtual",
        "ro.product.brand": "agentrl",
        "ro.product.manufacturer": "agentrl",
        "ro.product.vendor.device": "virtual",
        "ro.product.cpu.abi": "x86_64",
        "ro.product.cpu.abilist": "x86_64,arm64-v8a",
        "ro.product.locale": "en-US",
        "ro.build.version.release": "14",
        "ro.build.version.sdk": "34",
        "ro.build.version.security_patch": "2023-11-05",
        "ro.build.id": "VIRTUAL",
        "ro.build.display.id": "VIRTUAL.1 release-keys",
        "ro.build.type": "user",
        "ro.build.characteristics": "default",
        "ro.build.fingerprint": "agentrl/virtual/virtual:14/1:user/release-keys",
        "ro.debuggable": "0",
        "ro.secure": "1",
        "ro.hardware": "virtual",
        "ro.board.platform": "virtual",
        "ro.serialno": serialno,
        "ro.boot.serialno": serialno,
        "ro.sf.lcd_density": "320",
        "persist.sys.timezone": "GMT",
        "persist.sys.locale": "en-US",
        "sys.boot_completed": "1",
        "dev.bootcomplete": "1",
        "init.svc.bootanim": "stopped",
        "service.adb.root": "0",
    }


class PhoneSettings:
    """Settings by namespace and key, as in the `settings` command."""

    def __init__(self, serialno: str) -> None:
        self._initial = {
            ("secure", ANDROID_ID): hashlib.sha256(serialno.encode()).hexdigest()[:16],
            ("global", "adb_enabled"): "1",
            ("global", "airplane_mode_on"): "0",
            ("global", "animator_duration_scale"): "1.0",
            ("global", "device_name"): "Virtual Phone",
            ("global", "mobile_data"): "1",
            ("global", "stay_on_while_plugged_in"): "0",
            ("global", "transition_animation_scale"): "1.0",
            ("global", "wifi_on"): "1",
            ("global", "window_animation_scale"): "1.0",
            ("secure", "default_input_method"): LATIN_KEYBOARD,
            ("secure", "enabled_input_methods"): LATIN_KEYBOARD,
            ("secure", "location_mode"): "0",
            ("system", "accelerometer_rotation"): "1",
            ("system", "screen_brightness"): "128",
            ("system", "screen_brightness_mode"): "0",
            ("system", "screen_off_timeout"): "2147483647",
            ("system", "show_touches"): "0",
            ("system", "user_rotation"): "0",
        }
        self._stored = dict(self._initial)

    def get(self, namespace: str, key: str) -> str | None:
        """Return the value of a setting; None if it is not set."""
        return self._stored.get((namespace, key))

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value."""
        if len(key) + len(value) > _MAX_LENGTH:
            raise ValueError("the value is too long")
        if len(self._stored) >= _MAX_SETTINGS and (namespace, key) not in self._stored:
            raise ValueError("there are too many settings")
        self._stored[namespace, key] = value

    def delete(self, namespace: str, key: str) -> bool:
        """Delete a setting; return whether it existed."""
        return self._stored.pop((namespace, key), None) is not None

    def reset(self, namespace: str) -> None:
        """Reset a namespace to the settings of a new phone."""
        kept = {key: value for key, value in self._stored.items() if key[0] != namespace}
        initial = {key: value for key, value in self._initial.items() if key[0] == namespace}
        self._stored = {**kept, **initial}

    def in_namespace(self, namespace: str) -> list[tuple[str, str]]:
        """Return the sorted keys and values of a namespace."""
        return sorted((key, value) for (n, key), value in self._stored.items() if n == namespace)

    def as_rows(self) -> list[list[str]]:
        """Return all settings as plain values."""
        return [[namespace, key, value] for (namespace, key), value in self._stored.items()]

    def set_rows(self, rows: list[list[str]]) -> None:
        """Replace all settings with a result of `as_rows`."""
        self._stored = {(namespace, key): value for namespace, key, value in rows}
