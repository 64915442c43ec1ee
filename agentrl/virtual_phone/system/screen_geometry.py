"""The size of a phone's screen, and which way it is turned."""

from agentrl.virtual_phone.system import screen
from agentrl.virtual_phone.system.phone_settings import Settings

_SIDES = range(64, 4097)
_DENSITY_OF_720 = 320


class Geometry:
    """Pixels as they are built in, as they are set, and as the phone is held."""

    def __init__(self, physical: tuple[int, int], settings: Settings) -> None:
        """Upright.

        Args:
            physical: width and height of the screen, in pixels.
            settings: of the phone; they say whether the screen turns with the phone.
        """
        self.physical = physical
        self.override: tuple[int, int] | None = None
        self.density_override: int | None = None
        self.sensor = 0
        """How the phone is held: 0 upright, then each a quarter turn to the left."""
        self._settings = settings

    @property
    def rotation(self) -> int:
        """How the picture is turned: as the phone is held, or as the settings lock it."""
        if self._settings.get("system", "accelerometer_rotation") != "0":
            return self.sensor
        locked = self._settings.get("system", "user_rotation") or "0"
        return int(locked) if locked in ("0", "1", "2", "3") else 0

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the picture, in pixels."""
        width, height = self.override or self.physical
        return (height, width) if self.rotation % 2 else (width, height)

    @property
    def area(self) -> tuple[int, int]:
        """Width and height of what apps draw, below the status bar."""
        width, height = self.size
        return width, height - screen.bar_height(height)

    @property
    def density(self) -> int:
        """In dots per inch."""
        return self.density_override or self.physical_density

    @property
    def physical_density(self) -> int:
        """As it is built in, in dots per inch."""
        return min(self.physical) * _DENSITY_OF_720 // 720

    def in_area(self, px: float, py: float) -> tuple[float, float]:
        """A pixel of the screen in [0, 1] of the apps' area; y is negative in the status bar."""
        (width, height), (_, area_height) = self.size, self.area
        x = (min(max(px, 0), width - 1) + 0.5) / width
        y = (min(py, height - 1) - (height - area_height) + 0.5) / area_height
        return x, y

    def set_size(self, size: tuple[int, int] | None) -> None:
        """Pretend another screen; None for the one that is built in.

        Raises:
            ValueError: a size that no screen has.
        """
        if size is not None and not all(side in _SIDES for side in size):
            raise ValueError(f"sides must be {_SIDES[0]} to {_SIDES[-1]} pixels")
        self.override = size
