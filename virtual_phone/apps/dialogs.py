"""System dialogs that cover the app in front."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from virtual_phone.apps.app import View
from virtual_phone.apps.installed_app import component_name
from virtual_phone.apps.system_packages import ACTIVITIES, DIALER
from virtual_phone.system import drawing
from virtual_phone.types import Image

Kind = Literal["anr", "crash", "call", "permission", "install", "update"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Outcome = Literal["close", "keep"]
"""Effect of a button on the app the dialog is about."""

_CALL = component_name(DIALER, ACTIVITIES[DIALER])
_PERMISSIONS = (
    "com.google.android.permissioncontroller/"
    "com.android.permissioncontroller.permission.ui.GrantPermissionsActivity"
)
_INSTALL = "com.miui.securitycenter/com.miui.permcenter.install.AdbInstallActivity"
_UPDATE = "com.google.android.gms/com.google.android.gms.update.SystemUpdateActivity"
_LOOKS: dict[Kind, tuple[str, str, str, str]] = {
    "anr": (
        "Application Not Responding: {package}",
        "{name} isn't responding",
        "Close app",
        "Wait",
    ),
    "crash": ("Application Error: {package}", "{name} keeps stopping", "Close app", "App info"),
    "call": (_CALL, "Incoming call: Virtual Caller", "Decline", "Answer"),
    "permission": (_PERMISSIONS, "Allow {name} to record audio?", "Don't allow", "Allow"),
    "install": (_INSTALL, "Install this app over USB?", "Cancel", "Install"),
    "update": (_UPDATE, "A system update is ready", "Later", "Restart now"),
}
"""Window title, message and button labels by kind of dialog."""
_BOX = (0.08, 0.36, 0.92, 0.62)
_BUTTONS = ((0.12, 0.52, 0.48, 0.59), (0.52, 0.52, 0.88, 0.59))
_SHADE = 0.4
_PAPER = (245, 245, 245)
_INK = (30, 30, 30)
_BUTTON = (205, 215, 230)


@dataclass(slots=True, kw_only=True, frozen=True)
class Dialog:
    """A dialog with two buttons."""

    kind: Kind
    package: str
    """Package of the app the dialog is about."""

    @property
    def title(self) -> str:
        """Window title, as in `dumpsys window`."""
        return _LOOKS[self.kind][0].format(package=self.package)

    @property
    def text(self) -> str:
        """Message of the dialog."""
        return _LOOKS[self.kind][1].format(name=self.package.rpartition(".")[2])

    @property
    def buttons(self) -> tuple[tuple[str, Outcome], tuple[str, Outcome]]:
        """Labels and outcomes of the two buttons."""
        _, _, first, second = _LOOKS[self.kind]
        return (first, "close" if self.kind in ("anr", "crash") else "keep"), (second, "keep")

    @property
    def yields_to_back(self) -> bool:
        """Whether BACK dismisses the dialog."""
        return self.kind in ("call", "permission", "install")

    @property
    def yields_to_home(self) -> bool:
        """Whether HOME dismisses the dialog."""
        return self.yields_to_back or self.kind == "update"

    def pressed(self, x: float, y: float) -> Outcome | None:
        """Return the outcome of a touch at (x, y), in fractions; None outside the buttons."""
        for (left, top, right, bottom), (_, outcome) in zip(_BUTTONS, self.buttons, strict=True):
            if left <= x <= right and top <= y <= bottom:
                return outcome
        return None

    def drawn_on(self, area: Image) -> Image:
        """Return the app area with the dialog on top, uint8[height, width, 3]."""
        width = area.shape[1]
        image = (area * _SHADE).astype(np.uint8)
        drawing.fill(image, _BOX, _PAPER)
        drawing.write(image, self.text, (0.12, 0.44), width / 1100, _INK)
        for box, (text, _) in zip(_BUTTONS, self.buttons, strict=True):
            drawing.fill(image, box, _BUTTON)
            drawing.write(image, text, (box[0] + 0.04, box[3] - 0.02), width / 1300, _INK)
        return image

    def views(self) -> Sequence[View]:
        """Return the views of the message and the buttons."""
        text = View(bounds=_BOX, text=self.text, kind="android.widget.TextView")
        buttons = (
            View(bounds=box, text=label, kind="android.widget.Button", is_clickable=True)
            for box, (label, _) in zip(_BUTTONS, self.buttons, strict=True)
        )
        return [text, *buttons]
