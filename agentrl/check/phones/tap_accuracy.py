"""Measure which pixel of a phone is hit when a model writes a tap in its dialect.

The phone shows a target, and the screenshot is resized as for the model. A perfect model would
point at the middle of the target in that image. That position is written and parsed in the
dialect and then tapped, and the app reports where it was touched.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from agentrl.actions.dialect import Dialect, Screen, open_dialect, type_names
from agentrl.actions.screen_actions import Tap
from agentrl.check.finding import Finding, note, ok, wrong
from agentrl.check.phones.phone_probes import (
    ARRIVES_S,
    PROBE,
    PROBE_ACTIVITY,
    Prove,
    wait_for_state,
)
from agentrl.config import ModelConfig
from agentrl.devices.device import Device
from agentrl.devices.screen_regions import STATUS_BAR
from agentrl.errors import ActionError, ConfigError, DeviceError
from agentrl.policies.configured_image_size import resize_for
from agentrl.policies.models.model_adapter import resize_image
from agentrl.policies.models.model_source import resolve_model
from agentrl.policies.open_encoder import open_encoder
from agentrl.types import Image
from virtual_phone.apps.probe_app import TARGET, TARGET_GROUND

_SHARES = (0.04, 0.27, 0.5, 0.731, 0.96)
TARGETS: tuple[tuple[float, float], ...] = tuple((x, y) for y in _SHARES for x in _SHARES)
"""Positions of targets in the app's area."""
_INSIDE = 0.7
"""Minimum share of the target's color in a pixel inside the target."""
_MARGIN = 3
"""Margin in pixels around the inner pixels that may still contain part of the target."""
_STRAY = 40.0
"""Largest accepted deviation of a pixel's color from a mixture of both colors."""
_NEAR = 6
"""Radius in pixels around a target to search for a better spelling."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Hit:
    """One tap on a target."""

    reply: str
    """The tap as the model writes it."""
    error: float
    """Distance from the target's middle to the pixel that was hit, in screen pixels: the larger of
    the two axes' distances."""
    least: float
    """The same distance for the best tap that the dialect can express."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Speaker:
    """A model as this test sees it: the dialect it writes, and its resize of screenshots."""

    dialect: Dialect
    see: Callable[[Image], Image]
    """Resizes a screenshot as for the model."""


def hits(
    device: Device,
    speakers: Sequence[Speaker],
    targets: Sequence[tuple[float, float]] = TARGETS,
) -> Iterator[list[Hit]]:
    """Tap on targets the way models write taps in their dialects.

    Args:
        device: a device with the probe app, or a page that shows it.
        speakers: models, each of which taps on every target.
        targets: positions in the app's area.

    Yields:
        For each target, one hit per speaker.

    Raises:
        DeviceError: the phone failed, or a tap did not arrive.
        ActionError: a dialect cannot read its own tap.
    """
    places = ";".join(f"{x},{y}" for x, y in targets)
    device.launch(PROBE, PROBE_ACTIVITY, {"targets": places, "touches": str(len(speakers))})
    for number in range(len(targets)):
        shot, center = _shown(device, number)
        yield [
            _hit(device, speaker, shot, center, number * len(speakers) + turn)
            for turn, speaker in enumerate(speakers)
        ]


def _hit(
    device: Device, speaker: Speaker, shot: Image, center: tuple[float, float], number: int
) -> Hit:
    """Tap on the target in a screenshot and compare the hit with its center in the app's area."""
    seen = speaker.see(shot)
    size, seen_size = ((image.shape[1], image.shape[0]) for image in (shot, seen))
    screen = Screen(size=size, seen=seen_size)
    middle, pointed_at = find_target(shot), find_target(seen)
    if middle is None or pointed_at is None:
        raise DeviceError(f"{device.serial}: the target cannot be seen at {seen_size}")
    reply = speaker.dialect.spell(Tap(*pointed_at), screen)
    tap = speaker.dialect.parse(reply, screen)
    assert isinstance(tap, Tap), f"{reply} is parsed as {tap}"
    device.perform(tap)
    touched = _arrived(device, number)
    off = (
        abs(at - expected) * length
        for at, expected, length in zip(touched, center, _area_size(device, size), strict=True)
    )
    least = least_error(speaker.dialect, screen, middle)
    return Hit(reply=reply, error=round(max(off), 2), least=least)


def findings(
    device: Device,
    speaker: Speaker,
    name: str,
    targets: Sequence[tuple[float, float]] = TARGETS,
) -> Iterator[Finding]:
    """Test where a model's taps hit a phone.

    Args:
        device: see `hits`.
        speaker: the model.
        name: name of the model's dialect.
        targets: see `hits`.
    """
    what, says = f"taps in {name}", speaker.dialect.says
    if Tap not in says:
        yield note(what, f"not tested: the dialect has only {type_names(says)}", "none needed")
        return
    try:
        made = [hit for (hit,) in hits(device, [speaker], targets)]
    except (ActionError, DeviceError) as error:
        yield wrong(what, str(error), "fix the problems above, then run this again")
        return
    worst = max(made, key=lambda hit: hit.error)
    most = max(hit.least for hit in made)
    detail = (
        f"{len(made)} taps hit the target's middle within {worst.error:g} px; the dialect's "
        f"precision is {most:g} px"
    )
    excess = max(hit.error - hit.least for hit in made)
    if excess > 1:
        fix = "use the image sizes of the model or server: model.max_pixels, env.dialect_kwargs"
        yield wrong(what, f"{detail}. The worst tap: {worst.reply!r}", fix)
    else:
        yield ok(what, detail)


def find_target(image: Image) -> tuple[float, float] | None:
    """Return the middle of the target in [0, 1] of an image; None if it is not visible."""
    red, green, blue = (image[..., channel].astype(np.float32) for channel in range(3))
    share = np.minimum(red, blue) / TARGET[0]
    share[np.abs(green - TARGET_GROUND[1] * (1 - share)) > _STRAY] = 0.0
    inside = np.argwhere(share > _INSIDE)
    if not len(inside):
        return None
    # Resizing blends the target's border with the background, so weighting pixels by their share
    # of the target's color gives the middle to a fraction of a pixel.
    top, left = np.maximum(inside.min(axis=0) - _MARGIN, 0)
    bottom, right = inside.max(axis=0) + _MARGIN + 1
    part = share[top:bottom, left:right]
    rows, columns = part.sum(axis=1), part.sum(axis=0)
    x = left + float(columns @ (np.arange(len(columns)) + 0.5)) / float(part.sum())
    y = top + float(rows @ (np.arange(len(rows)) + 0.5)) / float(part.sum())
    return x / image.shape[1], y / image.shape[0]


def least_error(dialect: Dialect, screen: Screen, at: tuple[float, float]) -> float:
    """Return the distance in pixels from a pixel's middle to the dialect's best possible tap."""
    width, height = screen.size
    # Writing a position rounds it, so a position next to the middle may land closer to it.
    errors: list[list[float]] = [[], []]
    for step in range(-2 * _NEAR, 2 * _NEAR + 1):
        x, y = at[0] + step / 2 / width, at[1] + step / 2 / height
        near = Tap(min(max(x, 0.0), 1.0), min(max(y, 0.0), 1.0))
        tap = dialect.parse(dialect.spell(near, screen), screen)
        assert isinstance(tap, Tap), f"a tap is parsed as {tap}"
        for axis, (hit, side) in enumerate(((tap.x, width), (tap.y, height))):
            pixel = min(int(hit * side), side - 1) + 0.5
            errors[axis].append(abs(pixel - at[axis] * side))
    return round(max(map(min, errors)), 2)


def _shown(device: Device, number: int) -> tuple[Image, tuple[float, float]]:
    """Return a screenshot with target `number` and the target's middle in the app's area."""
    shots = []

    def is_shown(state: dict[str, Any]) -> bool:
        centers = state.get("centers", ())
        if len(centers) != number + 1:
            return False
        shots.append(device.screenshot())
        at, expected = find_target(shots[-1]), _to_screen(device, *centers[number])
        # The app publishes a target before it is visible on the screen.
        return at is not None and max(abs(a - b) for a, b in zip(at, expected, strict=True)) < 0.02

    state = wait_for_state(device, is_shown)
    if state is None:
        raise DeviceError(
            f"{device.serial}: target {number + 1} did not appear within {ARRIVES_S:g} s"
        )
    x, y = state["centers"][number]
    return shots[-1], (x, y)


def _arrived(device: Device, number: int) -> tuple[float, float]:
    """Return the position where the app was touched, in its area."""
    state = wait_for_state(device, lambda state: len(state.get("hits", ())) > number)
    if state is None:
        raise DeviceError(
            f"{device.serial}: tap {number + 1} did not arrive within {ARRIVES_S:g} s"
        )
    x, y = state["hits"][number]
    return float(x), float(y)


def _to_screen(device: Device, x: float, y: float) -> tuple[float, float]:
    area = device.app_area()
    return (x, STATUS_BAR + y * (1 - STATUS_BAR)) if area is None else area.to_screen(x, y)


def _area_size(device: Device, size: tuple[int, int]) -> tuple[float, float]:
    """Return the width and height of the app's area in screen pixels."""
    (left, top), (right, bottom) = (_to_screen(device, at, at) for at in (0.0, 1.0))
    return (right - left) * size[0], (bottom - top) * size[1]


def dialect_proof(dialect: str | None, model: str | None, max_pixels: int) -> Prove | None:
    """Return the test of a dialect on a phone; None without a dialect.

    Raises:
        ConfigError: the dialect or model does not exist, or a model is given without a dialect.
    """
    if dialect is None:
        if model is not None:
            raise ConfigError(f"--model {model} has no effect without --dialect")
        return None
    speaker = speaker_of(dialect, model, max_pixels)
    return partial(findings, speaker=speaker, name=dialect)


def speaker_of(dialect: str, model: str | None, max_pixels: int) -> Speaker:
    """Return a model that writes a dialect.

    Args:
        dialect: name of the dialect.
        model: path or id of the model that resizes screens; None for a model behind a server.
        max_pixels: maximum area of the image for the model or the server.

    Raises:
        ConfigError: the dialect or model does not exist.
    """
    opened = open_dialect(dialect)
    settings = ModelConfig(path=model or "tiny", max_pixels=max_pixels)
    encoder = None
    if model is not None:
        with TemporaryDirectory() as folder:
            encoder = open_encoder(settings, resolve_model(settings, 0, Path(folder, "tiny")))
    opened.resize = resize_for(opened, settings, encoder)

    def see(image: Image) -> Image:
        return resize_image(image, opened.resize((image.shape[1], image.shape[0])))

    return Speaker(dialect=opened, see=see)
