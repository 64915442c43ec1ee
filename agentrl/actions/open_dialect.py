"""Open the dialect that a configuration names, and check that its positions stay on the screen."""

from collections.abc import Mapping
from typing import Any

from agentrl.actions.dialect import Dialect, Resize, Screen, Size
from agentrl.actions.screen_actions import Tap
from agentrl.errors import ActionError, ConfigError, boundary, describe_error
from agentrl.extension_points import DIALECT
from agentrl.text import quoted

SCREENS: tuple[Size, ...] = ((720, 1280), (1080, 2400), (1440, 3120), (2400, 1080), (1600, 2560))
"""Phones, one of them turned, and a tablet."""
_GRID = (1.0, 0.0, 0.999, 0.001, 0.25, 1 / 3, 0.5, 0.737)
_TOLERANCE = 0.01


def open_dialect(
    name: str, kwargs: Mapping[str, Any] | None = None, resize: Resize | None = None
) -> Dialect:
    """The dialect of that name.

    Args:
        name: of a dialect of agentrl or of an installed package, or `module:Class` or
            `path/file.py:Class`.
        kwargs: arguments of its class.
        resize: the model's own resize; None for a model that sees screens unchanged.

    Raises:
        ConfigError: there is no such dialect, it rejects the arguments, or its positions leave the
            screen.
    """
    cls = DIALECT.resolve(name)
    given = dict(kwargs or {})
    with boundary(ConfigError, f"env.dialect_kwargs={given}: the dialect {name} rejects them"):
        dialect: Dialect = cls(**given)
    if resize is not None:
        dialect.resize = resize
    # A wrong scale would train a model to miss; it shows here, before any phone is touched.
    try:
        for size in SCREENS:
            check_positions(dialect, dialect.screen(size))
    except AssertionError as error:
        raise ConfigError(f"env.dialect={name}: {error}") from error
    return dialect


def check_positions(dialect: Dialect, screen: Screen) -> None:
    """Check that taps all over a screen are spelled and parsed as the same place.

    Raises:
        AssertionError: one is not, or is parsed as a place outside the screen.
    """
    if Tap not in dialect.says:
        return
    width, height = screen.size
    for x, y in (*zip(_GRID, _GRID, strict=True), *zip(_GRID, reversed(_GRID), strict=True)):
        where = f"on a screen of {width}x{height}, a tap at ({x:.3g}, {y:.3g})"
        try:
            reply = dialect.spell(Tap(x, y), screen)
            parsed = dialect.parse(reply, screen)
        except ActionError as error:
            raise AssertionError(f"{where} cannot be said: {error}") from error
        except Exception as error:
            raise AssertionError(f"{where} fails: {describe_error(error)}") from error
        assert isinstance(parsed, Tap), f"{where} is spelled {quoted(reply, 200)}: {parsed}"
        where += f" is spelled {quoted(reply, 200)} and parsed as ({parsed.x:.4g}, {parsed.y:.4g})"
        on_screen = 0 <= parsed.x <= 1 and 0 <= parsed.y <= 1
        assert on_screen, f"{where}, which is outside the screen: positions are in [0, 1]"
        close = abs(parsed.x - x) <= _TOLERANCE and abs(parsed.y - y) <= _TOLERANCE
        assert close, f"{where}, which is another place"
