"""`agentrl devices`: list, connect, inspect and test phones and emulators."""

import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentrl.actions.screen_actions import Key, Tap
from agentrl.cli.command_help import CommandGroup
from agentrl.cli.terminal_output import print_findings, print_table, suggest
from agentrl.errors import ConfigError, DeviceError
from agentrl.text.formatting import pluralize, printable
from agentrl.text.name_suggestions import known_names

if TYPE_CHECKING:
    from agentrl.check.finding import Finding
    from agentrl.check.phones.phone_probes import Prove
    from agentrl.devices.adb import AdbServer
    from agentrl.devices.adb_phone import AdbPhone

app = typer.Typer(
    cls=CommandGroup, help="List, connect, control and test phones and emulators known to adb."
)

_NO_PHONE = (
    "No phone is connected. Plug one in and allow USB debugging on its screen, or connect one "
    "with: agentrl devices connect HOST:PORT, or start a virtual one with: agentrl phone up"
)
_SHELL_S = 60.0
_WATCH_S = 1.0
_AT_ONCE = 4
"""Number of a machine's phones to check concurrently."""
_IN_USE = "in use by a running job, not checked"

Serial = Annotated[
    str | None,
    typer.Argument(
        help="Serial, as listed by `agentrl devices`; defaults to the only phone that is ready."
    ),
]
Driver = Annotated[str, typer.Option(help="ADB library; see agentrl list driver.")]
ListDriver = Annotated[
    str | None,
    typer.Option("--driver", help="ADB library (default: adbutils); see agentrl list driver."),
]
Hosts = Annotated[
    str | None,
    typer.Option(
        help="Nodes of the Ray cluster at RAY_ADDRESS: addresses, hostnames or ids, separated by "
        "commas; defaults to all."
    ),
]
NodesDeadline = Annotated[
    float, typer.Option(help="Seconds to wait for the nodes to reply.", min=1)
]


@app.callback(invoke_without_command=True)
def devices(context: typer.Context, driver: ListDriver = None) -> None:
    """List, connect, control and test phones and emulators known to adb; list them by default.

    Example: agentrl devices
    """
    if context.invoked_subcommand is not None:
        # Otherwise --driver would be silently ignored.
        if driver is not None:
            raise ConfigError(
                f"--driver {driver} has no effect before a command; put it after "
                f"`agentrl devices {context.invoked_subcommand}`, if that command accepts it"
            )
    else:
        server = _server(driver or "adbutils")
        known = server.devices()
        if not known:
            typer.echo(_NO_PHONE)
            return
        print_table(_table(server, known))
        suggest(("devices", "doctor"))


@app.command()
def connect(
    address: Annotated[
        str,
        typer.Argument(help="HOST:PORT that a phone listens on, or its wireless name (adb-...)."),
    ],
    public: Annotated[
        bool, typer.Option("--public", help="Allow a public address; adb does not encrypt.")
    ] = False,
) -> None:
    """Connect a phone over the network.

    Example: agentrl devices connect 192.168.1.7:5555
    """
    from agentrl.devices.adb.network_address_check import is_mdns_name, is_network_serial

    if not is_network_serial(address) and not is_mdns_name(address):
        raise ConfigError(f"{address!r} must have the form HOST:PORT, such as 192.168.1.7:5555")
    server = _server(public=(address,) if public else ())
    server.connect(address)
    typer.echo(f"{address} is ready")
    suggest(("devices", "doctor", address))


@app.command()
def disconnect(
    address: Annotated[str, typer.Argument(help="HOST:PORT of a connected phone.")],
) -> None:
    """Disconnect a network phone from the adb server.

    A job that is using the phone loses it.

    Example: agentrl devices disconnect 192.168.1.7:5555
    """
    server = _server()
    if address not in server.devices():
        raise ConfigError(f"{address!r} is not connected; see agentrl devices")
    server.disconnect(address)
    typer.echo(f"{address} is disconnected")
    suggest(("devices",))


@app.command()
def pair(
    address: Annotated[str, typer.Argument(help="HOST:PORT shown by the phone with the code.")],
    code: Annotated[
        str, typer.Option(prompt="Code", help="Six-digit pairing code; prompted for if omitted.")
    ],
) -> None:
    """Pair with a phone over Wireless debugging.

    Needs Android 11 or later. Run `agentrl devices connect` afterwards.

    Example: agentrl devices pair 192.168.1.7:37099 --code 123456
    """
    _server().pair(address, code)
    typer.echo("paired; Wireless debugging shows the HOST:PORT to connect to")
    suggest(("devices", "connect", "HOST:PORT"))


@app.command()
def screenshot(
    serial: Serial = None,
    to: Annotated[Path, typer.Option("--to", "-o", help="PNG file.")] = Path("screen.png"),
) -> None:
    """Save a screenshot to a file.

    Example: agentrl devices screenshot --to screen.png
    """
    from PIL import Image

    if to.suffix.lower() != ".png":
        raise ConfigError(f"--to {to}: must end in .png")
    if not to.parent.is_dir():
        raise ConfigError(f"--to {to}: the folder {to.parent} does not exist")
    with _phone(serial) as phone:
        picture = phone.screenshot()
    Image.fromarray(picture).save(to)
    typer.echo(f"wrote {to}, {picture.shape[1]}x{picture.shape[0]}")
    suggest(("devices", "tap", *([serial] if serial else ()), "0.5", "0.5"))


class _TapCommand(typer.core.TyperCommand):
    """Command that accepts SERIAL X Y or just X Y."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; given only X Y, Click would take X for SERIAL."""
        return super().parse_args(ctx, ["", *args] if len(args) == 2 else args)


@app.command(cls=_TapCommand)
def tap(
    serial: Serial = None,
    x: Annotated[float, typer.Argument(min=0, max=1, help="0 (left) to 1 (right).")] = ...,  # type: ignore[assignment]
    y: Annotated[float, typer.Argument(min=0, max=1, help="0 (top) to 1 (bottom).")] = ...,  # type: ignore[assignment]
) -> None:
    """Tap on the screen.

    Example: agentrl devices tap emulator-5554 0.5 0.9
    """
    with _phone(serial or None) as phone:
        phone.perform(Tap(x, y))
    suggest(("devices", "screenshot", *([serial] if serial else ())))


@app.command(context_settings={"allow_interspersed_args": False})
def shell(
    serial: Annotated[str, typer.Argument(help="Which phone.")],
    command: Annotated[
        list[str],
        typer.Argument(help="The command and its arguments, or a whole command line in quotes."),
    ],
) -> None:
    """Run a command on the phone, and exit with its exit code.

    The phone's shell expands a quoted command line, but not separate arguments.

    Example: agentrl devices shell emulator-5554 "ls /sdcard | head"
    """
    # A single argument is a whole command line; several are each quoted for the phone's shell.
    if len(command) == 1:
        command = ["sh", "-c", *command]
    with _phone(serial, command_s=_SHELL_S) as phone:
        (result,) = phone.batch(command)
    # A pipe gets the output unchanged; a terminal must not interpret what a phone prints.
    sys.stdout.write(result.output if not sys.stdout.isatty() else printable(result.output))
    raise typer.Exit(result.code)


@app.command()
def watch(
    seconds: Annotated[
        float | None, typer.Option(help="Stop after this time; default: never.", min=0)
    ] = None,
) -> None:
    """Print phones as they connect, disconnect or change state, until Ctrl-C.

    Example: agentrl devices watch --seconds 60
    """
    from agentrl.devices.pool.device_tracker import track_devices

    end = None if seconds is None else time.monotonic() + seconds
    before: dict[str, str] = {}
    with closing(track_devices(_server(), _WATCH_S)) as lists:
        for known in lists:
            # None means that nothing changed; it lets the loop check the time limit.
            if known is not None:
                for serial in sorted(known.keys() | before.keys()):
                    was, now = before.get(serial), known.get(serial, "gone")
                    if was != now:
                        typer.echo(f"{time.strftime('%H:%M:%S')}  {serial}  {printable(now)}")
                before = known
            if end is not None and time.monotonic() >= end:
                return


@app.command()
def bench(
    serial: Serial = None,
    rounds: Annotated[int, typer.Option(help="Number of measurements per method.", min=1)] = 5,
    driver: Driver = "adbutils",
) -> None:
    """Measure the latency of every capture and input method on a phone.

    Opens the Settings app and the home screen to see how soon a capture shows the change.

    Example: agentrl devices bench --rounds 10
    """
    from agentrl.devices.capture_and_input_choice import mark_fastest
    from agentrl.devices.capture_and_input_timing import measure_methods, screen_toggler

    with _phone(serial, driver=driver) as phone:
        rows = mark_fastest(measure_methods(phone, rounds=rounds, change=screen_toggler(phone)))
        # Leave the Settings app, which was opened to make the screen change.
        phone.perform(Key("HOME"))
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("", "method", "median, ms", "lag, ms", ""):
        table.add_column(column, justify="right" if column.endswith("ms") else "left")
    for row in rows:
        table.add_row(
            row.kind,
            Text(row.name, style="bold"),
            "" if row.median_ms is None else f"{row.median_ms:.1f}",
            "" if row.lag_s is None else f"{1000 * row.lag_s:.0f}",
            Text(row.failure, style="red") if row.failure else "picked" if row.picked else "",
        )
    print_table(table)
    picked = {row.kind: row.name for row in rows if row.picked}
    suggest(("train", "number_game", *(f"devices.{k}={name}" for k, name in picked.items())))


@app.command()
def doctor(
    serial: Annotated[
        str | None, typer.Argument(help="Serial; defaults to all phones that no running job uses.")
    ] = None,
    driver: Driver = "adbutils",
    dialect: Annotated[
        str | None,
        typer.Option(help="Also tap on targets with actions in this dialect: ui-tars-1.5, ..."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="With --dialect: folder or Hugging Face id of the model to resize for."),
    ] = None,
    max_pixels: Annotated[
        int, typer.Option(help="With --dialect: maximum pixels of the resized image.", min=1)
    ] = 602112,
    hosts: Hosts = None,
    deadline: NodesDeadline = 300.0,
) -> None:
    """Check phones and print how to fix any problem.

    Starts an app on each phone, taps and types. Without a serial, checks several phones at the same
    time and skips those in use by jobs on this machine; never name one of those. Exits with 1 if a
    phone has a problem. With --dialect, also taps on targets in a model's own action format, after
    the model's own image resize, and prints how far from its target each tap lands.

    If RAY_ADDRESS is set and neither a phone nor a dialect is given, checks the phones of all nodes
    and prints one line for each.

    Example: agentrl devices doctor emulator-5554 --dialect ui-tars-1.5
    """
    from agentrl.check.phones.tap_accuracy import dialect_proof

    is_local = serial is not None or dialect is not None
    if hosts is not None and is_local:
        what = f"phone {serial}" if serial is not None else f"--dialect {dialect}"
        raise ConfigError(f"{what} excludes --hosts; run the command on the phone's own node")
    # A named phone and a dialect's model must be local; without them, check phones on any node.
    if hosts is not None or (os.environ.get("RAY_ADDRESS") and not is_local):
        _check_nodes(hosts, driver, deadline)
        return
    prove = dialect_proof(dialect, model, max_pixels)
    server = _server(driver)
    serials, in_use = ([serial], []) if serial else _known_phones(server)
    if not (serials or in_use):
        raise DeviceError(_NO_PHONE)
    _announce_checks(serials, in_use)
    if not serials:
        return
    unusable = _print_checks(_check_phones(server, serials, prove))
    typer.echo(f"{len(serials) - len(unusable)} of {len(serials)} phones are ready for jobs.")
    if unusable:
        for name, wrong in unusable.items():
            typer.echo(f"{name} is not ready because of: {', '.join(wrong)}")
        raise typer.Exit(1)
    suggest(("train", "number_game", f"devices.source=[{','.join(serials)}]"))


def _known_phones(server: "AdbServer") -> tuple[list[str], list[str]]:
    """Return the serials of the phones to check, and of those in use by running jobs."""
    from agentrl.devices.pool.phones_in_use import phones_in_use

    known, in_use = server.devices().keys(), phones_in_use()
    return sorted(known - in_use), sorted(known & in_use)


def _announce_checks(serials: Sequence[str], in_use: Sequence[str]) -> None:
    if in_use:
        typer.echo(f"{printable(', '.join(in_use))}: {_IN_USE}")
    if len(serials) > 1:
        minutes = pluralize(-(-len(serials) // _AT_ONCE), "minute")
        typer.echo(
            f"Checking {len(serials)} phones, {_AT_ONCE} at a time, which takes up to {minutes} "
            f"(seconds for virtual phones): {printable(', '.join(serials))}. To check only one, "
            "run: agentrl devices doctor SERIAL"
        )


def _print_checks(checks: "Iterable[tuple[str, Iterable[Finding]]]") -> dict[str, list[str]]:
    """Print the findings of phones; return the problems of the phones that are not ready."""
    console = Console(emoji=False)
    unusable: dict[str, list[str]] = {}
    for name, findings in checks:
        console.print(Text(name, style="bold"))
        printed = print_findings(findings, as_table=True, indent="  ")
        if wrong := [found.what for found in printed if found.state == "wrong"]:
            unusable[name] = wrong
    return unusable


def _check_phones(
    server: "AdbServer", serials: Sequence[str], prove: "Prove | None" = None
) -> "Iterator[tuple[str, Iterable[Finding]]]":
    """Yield each phone's findings, in the given order.

    With only one phone, its findings are yielded as they arrive.
    """
    if len(serials) == 1:
        yield serials[0], _findings(server, serials[0], prove)
        return
    # Threads suffice, since a check mostly waits for its phone.
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        found = threads.map(lambda serial: list(_findings(server, serial, prove)), serials)
        yield from zip(serials, found, strict=True)


def _findings(
    server: "AdbServer", serial: str, prove: "Prove | None" = None
) -> "Iterator[Finding]":
    from agentrl.check.phones import examine
    from agentrl.phone_page import PageAssigner
    from virtual_phone.apps.probe_app import PROBE
    from virtual_phone.phones_spec import AppSpec

    with closing(PageAssigner([AppSpec(app=PROBE)], "page")) as pager:
        for found in examine(server, serial, paged=pager.wrap, prove=prove):
            yield replace(found, fix=_with_serial(found.fix, serial))


def _check_nodes(hosts: str | None, driver: str, deadline_s: float) -> None:
    """Check the phones of a cluster's nodes; print a line per phone and per node without reply."""
    from agentrl.cluster import ray_cluster
    from agentrl.cluster.ask_nodes import ask_nodes
    from agentrl.cluster.node_discovery import find_nodes
    from agentrl.cluster.placement import node_named

    if not os.environ.get("RAY_ADDRESS"):
        raise ConfigError(f"--hosts {hosts} selects nodes of a Ray cluster, so set RAY_ADDRESS")
    try:
        nodes = find_nodes("ray")
        named = nodes if hosts is None else [node_named(h, nodes) for h in hosts.split(",")]
        replies = ask_nodes(named, partial(_phones_here, driver), deadline_s)
    finally:
        ray_cluster.leave_cluster()
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    num_phones = num_wrong = silent = 0
    for reply in replies:
        silent += reply.result is None
        if not reply.result:
            said = reply.error if reply.result is None else "no phone"
            table.add_row(reply.node.name, "", Text(said, style="red" if reply.error else ""))
        for serial, found in (reply.result or {}).items():
            if found is None:
                table.add_row(reply.node.name, serial, _IN_USE)
                continue
            num_phones, num_wrong = num_phones + 1, num_wrong + bool(found)
            said = "; ".join(f"{one.what}: {one.detail}; fix: {one.fix}" for one in found)
            style = "red" if found else "green"
            table.add_row(reply.node.name, serial, Text(printable(said) or "ready", style=style))
    print_table(table)
    typer.echo(f"{num_phones - num_wrong} of {num_phones} phones are ready for jobs.")
    if silent:
        typer.echo(f"No answer from {pluralize(silent, 'node')}.")
    if num_wrong or silent:
        raise typer.Exit(1)


def _phones_here(driver: str) -> "dict[str, list[Finding] | None]":
    """Return what is wrong with each of this node's phones; None for phones in use by jobs."""
    server = _server(driver)
    serials, in_use = _known_phones(server)
    checked: dict[str, list[Finding] | None] = dict.fromkeys(in_use)
    for serial, findings in _check_phones(server, serials):
        checked[serial] = [found for found in findings if found.state == "wrong"]
    return checked


def _with_serial(fix: str, serial: str) -> str:
    """Make a suggested fix name this phone; replace `adb shell` by a command that needs no adb."""
    fix = fix.replace("adb shell ", f"agentrl devices shell {serial} ")
    return re.sub(r"\badb (reboot|reconnect)\b(?! offline)", rf"adb -s {serial} \1", fix)


def _server(driver: str = "adbutils", public: tuple[str, ...] = ()) -> "AdbServer":
    from agentrl.devices.adb import AdbServer

    server = AdbServer.from_environment(driver, public=public)
    server.ensure()
    return server


@contextmanager
def _phone(
    serial: str | None, *, driver: str = "adbutils", command_s: float = 10.0
) -> "Iterator[AdbPhone]":
    """Return the phone with this serial, or the only ready phone."""
    from agentrl.devices.adb.network_address_check import is_network_serial
    from agentrl.devices.adb_phone import AdbPhone
    from agentrl.devices.device import Deadlines

    server = _server(driver)
    if serial is None:
        states = server.devices()
        ready = [name for name, state in states.items() if state == "device"]
        if len(ready) != 1:
            each = ", ".join(f"{name} is {state}" for name, state in sorted(states.items()))
            raise ConfigError(f"specify a phone by its serial: {each}" if states else _NO_PHONE)
        (serial,) = ready
    elif not is_network_serial(serial) and serial not in (known := server.devices()):
        hint = known_names(serial, known, command="agentrl devices", label="Connected")
        raise ConfigError(f"{serial}: no such phone{hint}" if known else _NO_PHONE)
    with closing(AdbPhone(server, serial, Deadlines(command_s=command_s))) as phone:
        yield phone


def _table(server: "AdbServer", known: Mapping[str, str]) -> Table:
    """Return a table with a row per phone; a phone that is connected twice is marked."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("serial", "state", "phone", "Android", "screen", "battery", "in front"):
        table.add_column(column)
    seen: dict[str, str] = {}
    for serial, state in sorted(known.items()):
        color = "green" if state == "device" else "red"
        cells = [Text(serial, style="bold"), Text(printable(state), style=color)]
        if state == "device":
            try:
                cells += map(Text, map(printable, _about(server, serial, seen)))
            except DeviceError as error:
                cells.append(Text(printable(f"{error}"), style="red"))
        table.add_row(*cells)
    return table


def _about(server: "AdbServer", serial: str, seen: dict[str, str]) -> list[str]:
    from agentrl.devices.adb_phone import AdbPhone
    from agentrl.devices.guard.foreground import WINDOW, parse_front_package
    from agentrl.devices.phone_battery import BATTERY, BatteryReading

    with closing(AdbPhone(server, serial)) as phone:
        # Run all commands in one round trip, because each round trip is slow over Wi-Fi.
        model, version, battery, window = phone.batch(
            ("getprop", "ro.product.model"),
            ("getprop", "ro.build.version.release"),
            BATTERY,
            WINDOW,
        )
        serialno, (width, height) = phone.serialno(), phone.size()
    first = seen.setdefault(serialno, serial)
    level = BatteryReading.parse(battery).level
    return [
        model.output.strip() + ("" if first == serial else f" (same phone as {first})"),
        version.output.strip(),
        f"{width}x{height}",
        "" if level is None else f"{level:.0f}%",
        parse_front_package(window.output) or "",
    ]
