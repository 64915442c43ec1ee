"""`agentrl phone`: virtual phones that stay."""

import re
import signal
import threading
from pathlib import Path
from shutil import which
from typing import Annotated

import typer

from agentrl.errors import ConfigError, DeviceError

app = typer.Typer(help="Virtual phones.", no_args_is_help=True)

_LOOK_S = 0.5


@app.callback()
def _phone() -> None:
    """Virtual phones: they speak ADB, and every program that knows adb can use them."""


@app.command()
def up(
    num_phones: Annotated[int, typer.Option("-n", "--num", help="How many.", min=1)] = 1,
    apps: Annotated[
        list[str] | None,
        typer.Option("--app", help="module:Class to install; repeatable. Else all of ours."),
    ] = None,
    size: Annotated[str, typer.Option(help="WIDTHxHEIGHT of the screens, in pixels.")] = "720x1280",
    delay: Annotated[
        str, typer.Option(help="LOW-HIGH: how late the effect of a touch appears, in ms.")
    ] = "50-300",
    seed: Annotated[int, typer.Option(help="Of the clocks and delays.")] = 0,
    faults: Annotated[
        Path | None, typer.Option(help="YAML of what goes wrong with them, and when.")
    ] = None,
    auth: Annotated[
        bool, typer.Option("--auth", help="Ask computers for a key, as real phones do.")
    ] = False,
) -> None:
    """Start virtual phones and keep them until Ctrl-C."""
    from agentrl import env
    from agentrl.devices.adb import AdbServer, find_adb
    from agentrl.virtual_phone import spawn
    from agentrl.virtual_phone.apps.probe_app import (
        PROBE,  # without it the doctor can touch nothing
    )

    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    width, height = _two("--size", size, "x")
    low, high = _two("--delay", delay, "-")
    server = AdbServer.from_environment()
    with spawn(
        num_phones,
        list(dict.fromkeys((*(apps or env.apps()), PROBE))),
        size=(width, height),
        effect_delay_ms=(low, high),
        seed=seed,
        faults=faults,
        auth=auth,
    ) as phones:
        try:
            server.ensure()
            for serial in phones.serials:
                server.connect(serial)
            _tell(phones.serials, "adb" if which("adb") else find_adb(), server.port)
            while phones.alive and not stop.wait(_LOOK_S):
                pass
            if not phones.alive:
                raise DeviceError("the process of the virtual phones has ended by itself")
        finally:
            server.forget(phones.serials)
    typer.echo("The phones are gone.")


def _two(option: str, text: str, between: str) -> tuple[int, int]:
    """Two numbers out of an option such as `720x1280`.

    Raises:
        ConfigError: they are none.
    """
    found = re.fullmatch(rf"(\d{{1,5}}){between}(\d{{1,5}})", text)
    if found is None:
        raise ConfigError(f"{option} is {text!r}; it must read NUMBER{between}NUMBER")
    return int(found[1]), int(found[2])


def _tell(serials: tuple[str, ...], adb: str, port: int) -> None:
    server = "" if port == 5037 else f" -P {port}"
    for serial in serials:
        typer.echo(serial)
    typer.echo(f"Reach one: {adb}{server} -s {serials[0]} shell")
    typer.echo("Train on them: 'devices.source=[" + ",".join(serials) + "]'")
    typer.echo("Ctrl-C ends them.")
