"""Size and rotation of a phone's screen."""

from virtual_phone.system import screen_frame
from virtual_phone.system.phone_settings import PhoneSettings

_SIDES = range(64, 4097)
_DENSITY_OF_720 = 320


class ScreenGeometry:
    """Physical size, overridden size and rotation of the screen."""

    def __init__(self, physical: tuple[int, int], settings: PhoneSettings) -> None:
        self.physical = physical
        self.override: tuple[int, int] | None = None
        self.density_override: int | None = None
        self.sensor = 0
        """Orientation in which the phone is held: number of quarter turns to the left."""
        self._settings = settings

    @property
    def rotation(self) -> int:
        """Rotation of the image: as the phone is held, or as locked by the settings."""
        if self._settings.get("system", "accelerometer_rotation") != "0":
            return self.sensor
        locked = self._settings.get("system", "user_rotation") or "0"
        return int(locked) if locked in ("0", "1", "2", "3") else 0

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the image, in pixels."""
        width, height = self.override or self.physical
        return (height, width) if self.rotation % 2 else (width, height)

    @property
    def area(self) -> tuple[int, int]:
        """Width and height of the app area below the status bar, in pixels."""
        width, height = self.size
        return width, height - screen_frame.bar_height(height)

    @property
    def physical_density(self) -> int:
        """Built-in density in dots per inch."""
        return min(self.physical) * _DENSITY_OF_720 // 720

    def in_area(self, px: float, py: float) -> tuple[float, float]:
        """Convert a pixel to fractions of the app area; y is negative in the status bar."""
        (width, height), (_, area_height) = self.size, self.area
        x = (min(max(px, 0), width - 1) + 0.5) / width
        y = (min(py, height - 1) - (height - area_height) + 0.5) / area_height
        return x, y

    def from_panel(self, x: float, y: float) -> tuple[float, float]:
        """Convert a point of the touchscreen, which does not rotate, to a pixel of the image."""
        width, height = self.physical
        right, below = width - 1 - x, height - 1 - y
        turned = ((x, y), (y, right), (right, below), (below, x))[self.rotation]
        sides = (height, width) if self.rotation % 2 else (width, height)
        px, py = (
            (t + 0.5) * n / of - 0.5 for t, n, of in zip(turned, self.size, sides, strict=True)
        )
        return px, py

    def set_size(self, size: tuple[int, int] | None) -> None:
        """Override the screen size; None restores the physical size."""
        if size is not None and not all(side in _SIDES for side in size):
            raise ValueError(f"both sides must be {_SIDES[0]} to {_SIDES[-1]} pixels")
        self.override = size
