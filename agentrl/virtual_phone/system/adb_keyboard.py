"""ADBKeyboard, an input method that types arbitrary text from broadcasts, and key codes.

https://github.com/senzhk/ADBKeyBoard
"""

import base64
import binascii
from collections.abc import Mapping
from typing import TYPE_CHECKING

from agentrl.virtual_phone.system.phone_settings import ADB_KEYBOARD

if TYPE_CHECKING:
    from agentrl.virtual_phone.phone import VirtualPhone

_MOST_CHARACTERS = 100_000


def broadcast(phone: "VirtualPhone", action: str, extras: Mapping[str, str]) -> str:
    """Send a broadcast; returns the result that `am broadcast` prints.

    As on a real phone, the result does not depend on whether anything listens: ADBKeyboard only
    receives broadcasts while it is the selected input method.
    """
    done = "result=0"
    if phone.settings.get("secure", "default_input_method") != ADB_KEYBOARD:
        return done
    if phone.faults.get("input"):
        return done
    if action == "ADB_CLEAR_TEXT":
        phone.hands.clear_text()
    elif action in ("ADB_INPUT_CODE", "ADB_EDITOR_CODE"):
        code = extras.get("code", "")
        if code.isascii() and code.isdecimal():
            phone.hands.key(key_code(code))
    else:
        text = _text(action, extras)
        if text:
            phone.hands.text(text[:_MOST_CHARACTERS])
    return done


def _text(action: str, extras: Mapping[str, str]) -> str:
    """The text that a broadcast types."""
    message = extras.get("msg", "")
    try:
        if action == "ADB_INPUT_TEXT":
            return message
        if action == "ADB_INPUT_B64":
            return base64.b64decode(message).decode("utf-8", "replace")
        if action == "ADB_INPUT_CHARS":
            return "".join(chr(int(code)) for code in extras.get("chars", "").split(","))
    except (binascii.Error, ValueError, OverflowError):
        pass  # the real keyboard logs an exception and continues
    return ""


_KEYS = {
    3: "HOME", 4: "BACK", 5: "CALL", 6: "ENDCALL", 19: "DPAD_UP", 20: "DPAD_DOWN",
    21: "DPAD_LEFT", 22: "DPAD_RIGHT", 23: "DPAD_CENTER", 24: "VOLUME_UP", 25: "VOLUME_DOWN",
    26: "POWER", 27: "CAMERA", 28: "CLEAR", 55: "COMMA", 56: "PERIOD", 57: "ALT_LEFT",
    59: "SHIFT_LEFT", 61: "TAB", 62: "SPACE", 66: "ENTER", 67: "DEL", 82: "MENU",
    83: "NOTIFICATION", 84: "SEARCH", 85: "MEDIA_PLAY_PAUSE", 92: "PAGE_UP", 93: "PAGE_DOWN",
    111: "ESCAPE", 112: "FORWARD_DEL", 113: "CTRL_LEFT", 122: "MOVE_HOME", 123: "MOVE_END",
    164: "VOLUME_MUTE", 187: "APP_SWITCH", 223: "SLEEP", 224: "WAKEUP", 277: "CUT", 278: "COPY",
    279: "PASTE",
    **{7 + digit: str(digit) for digit in range(10)},
    **{29 + letter: chr(ord("A") + letter) for letter in range(26)},
}  # fmt: skip


def key_code(key: str) -> str:
    """The full name of a key: `KEYCODE_BACK` for `4` or `BACK`.

    Raises:
        ValueError: it is not a key.
    """
    if key.isascii() and key.isdecimal() and len(key) < 6:
        return f"KEYCODE_{_KEYS.get(int(key), key)}"
    name = key.upper().removeprefix("KEYCODE_")
    if not (name.isascii() and name.replace("_", "").isalnum() and len(name) < 40):
        raise ValueError(f"unknown key {key[:40]!r}")
    return f"KEYCODE_{name}"
