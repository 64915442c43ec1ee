"""`agentrl phone`: start virtual phones and keep them running."""

import re
import signal
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from shutil import which
from typing import Annotated, Any, cast

import typer

from agentrl.cli.command_help import CommandGroup
from agentrl.cli.terminal_output import suggest
from agentrl.errors import ConfigError, DeviceError

app = typer.Typer(
    cls=CommandGroup, help="Start virtual phones on this machine.", no_args_is_help=True
)

_LOOK_S = 0.5
_AppsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--app",
        help="App to install, as module:Class; repeatable; default: all games and the browser.",
    ),
]
_DelayOption = Annotated[
    str | None,
    typer.Option(
        help="LOW-HIGH range of the delay before a touch takes effect, in ms; default: 50-300, "
        "or 0-0 with --tempo quick."
    ),
]


@app.callback()
def _phone() -> None:
    """Start virtual phones. They speak ADB, so every program that uses adb can use them."""


@app.command()
def up(
    num_phones: Annotated[int, typer.Option("-n", "--num", help="Number of phones.", min=1)] = 1,
    apps: _AppsOption = None,
    size: Annotated[str, typer.Option(help="Screen size in pixels, as WIDTHxHEIGHT.")] = "720x1280",
    tempo: Annotated[
        str, typer.Option(help="`real`: gestures take as long as on a phone; `quick`: no time.")
    ] = "real",
    delay: _DelayOption = None,
    seed: Annotated[int, typer.Option(help="Seed of the phones' clocks and delays.")] = 0,
    faults: Annotated[
        Path | None, typer.Option(help="YAML file that says which faults to inject, and when.")
    ] = None,
    auth: Annotated[
        bool, typer.Option("--auth", help="Require an authorized ADB key, as real phones do.")
    ] = False,
) -> None:
    """Start virtual phones and keep them running until Ctrl-C.

    Example: agentrl phone up -n 4
    """
    from agentrl import env_registry
    from agentrl.devices.adb import AdbServer, find_adb
    from agentrl.devices.device_sources import phone_errors
    from virtual_phone import spawn
    from virtual_phone.apps.probe_app import PROBE

    stop = threading.Event()
    # Exit cleanly to disconnect the phones; otherwise the adb server keeps listing them as offline.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    width, height = _two("--size", size, "x")
    server = AdbServer.from_environment()
    with (
        phone_errors(),
        spawn(
            num_phones,
            # `agentrl devices doctor` tests taps in the probe app.
            list(dict.fromkeys((*(apps or _installable(env_registry.apps())), PROBE))),
            size=(width, height),
            tempo=cast(Any, tempo),
            effect_delay_ms=None if delay is None else _two("--delay", delay, "-"),
            seed=seed,
            faults=faults,
            auth=auth,
            adb_server=(server.host, server.port),
        ) as phones,
    ):
        try:
            server.ensure()
            for serial in phones.serials:
                server.connect(serial)
            _print_usage(phones.serials, "adb" if which("adb") else find_adb(), server.port)
            while phones.alive and not stop.wait(_LOOK_S):
                pass
            if not phones.alive:
                raise DeviceError("the process of the virtual phones exited unexpectedly")
        finally:
            server.forget(phones.serials)
    typer.echo("All phones have stopped.")


def _installable(apps: Iterable[str]) -> Iterator[str]:
    """Yield the apps that can be installed here; say why another one cannot."""
    from virtual_phone.errors import SettingError
    from virtual_phone.phones_spec import AppSpec, make_apps

    for name in apps:
        try:
            make_apps([AppSpec(app=name)])
            yield name
        except SettingError as error:  # the browser needs packages of an extra, and Chromium
            typer.echo(f"Without {name}: {error}", err=True)


def _print_usage(serials: tuple[str, ...], adb: str, port: int) -> None:
    server = "" if port == 5037 else f" -P {port}"
    for serial in serials:
        typer.echo(serial)
    typer.echo(f"To use one: {adb}{server} -s {serials[0]} shell")
    typer.echo("Press Ctrl-C to stop them.")
    suggest(("train", "number_game", f"devices.source=[{','.join(serials)}]"))


def _two(option: str, text: str, between: str) -> tuple[int, int]:
    """Parse the two numbers of an option such as `720x1280`.

    Raises:
        ConfigError: the text does not consist of two numbers separated by `between`.
    """
    found = re.fullmatch(rf"(\d{{1,5}}){between}(\d{{1,5}})", text)
    if found is None:
        raise ConfigError(f"{option} {text!r}: must have the form NUMBER{between}NUMBER")
    return int(found[1]), int(found[2])
