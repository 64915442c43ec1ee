"""Find the nodes of a job with phones, and the phones of each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TypeVar

from agentrl import devices
from agentrl.cluster.ask_nodes import ask_nodes
from agentrl.cluster.placement import Layout, Node, node_named
from agentrl.config import DevicesConfig
from agentrl.cross_origin_requests import is_loopback
from agentrl.devices.adb import AdbServer
from agentrl.devices.adb.network_address_check import is_network_serial
from agentrl.devices.device_sources import CONNECTED, num_virtual
from agentrl.errors import ConfigError
from agentrl.rollout.nodes.shared_phone_pool import open_settings
from agentrl.text.formatting import pluralize

_T = TypeVar("_T")
_WITHOUT = ". Start Ray there, or leave the node out with 'devices.hosts={{{}: false}}'"


@dataclass(slots=True, kw_only=True, frozen=True)
class PhoneHost:
    """A node with phones."""

    node: Node
    settings: DevicesConfig
    """Settings of the node's own phones, without `hosts`."""


def nodes_of_hosts(hosts: Collection[str], nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return the nodes that `devices.hosts` names, in the same order.

    Raises:
        ConfigError: no cluster has been joined, a node does not exist, or one is named twice.
    """
    if hosts and not all(node.id for node in nodes):
        raise ConfigError(
            f"devices.hosts names nodes of a Ray cluster ({', '.join(hosts)}), but this job uses "
            "one machine; set RAY_ADDRESS and rollout.launcher=ray, or use devices.source"
        )
    found: dict[Node, str] = {}
    for host in hosts:
        try:
            node = node_named(host, nodes, _WITHOUT.format(host))
        except ConfigError as error:
            raise ConfigError(f"devices.hosts: {error}") from None
        # A node may be named both by its host name and by its address.
        if node in found:
            raise ConfigError(f"devices.hosts: {found[node]} and {host} are the same node")
        found[node] = host
    return tuple(found)


def find_phone_hosts(settings: DevicesConfig, layout: Layout, deadline_s: float) -> list[PhoneHost]:
    """Return the nodes with phones: the nodes in `devices.hosts`, or else the nodes with engines.

    Args:
        settings: the job's `devices` section.
        layout: the job's layout.
        deadline_s: time limit for adb servers to list their phones, in seconds; only used to
            divide a list of serials.

    Returns:
        At least one host; nodes without any of the listed phones are left out.

    Raises:
        ConfigError: there are too few virtual phones, or a phone is not connected to any node.
    """
    if settings.hosts:
        nodes = list(layout.phones)
        own = [settings.of_host(name) for name in settings.hosts]
        shared = [k for k, name in enumerate(settings.hosts) if not settings.has_own_source(name)]
    else:
        nodes = list(dict.fromkeys(slot.node for slot in layout.engines))
        own, shared = [settings] * len(nodes), list(range(len(nodes)))
    if len(shared) > 1:
        shares = _shares([nodes[k] for k in shared], [own[k] for k in shared], deadline_s)
        for k, share in zip(shared, shares, strict=True):
            own[k] = replace(own[k], source=share)
    return [
        PhoneHost(node=node, settings=settings)
        for node, settings in zip(nodes, own, strict=True)
        # The source is empty on a node with none of the listed phones.
        if settings.source
    ]


def _shares(
    nodes: Sequence[Node], settings: Sequence[DevicesConfig], deadline_s: float
) -> Sequence[str | Sequence[str]]:
    """Return each node's part of `devices.source`; empty for a node with none of the serials."""
    source, count = settings[0].source, len(nodes)
    if source == CONNECTED:
        return [CONNECTED] * count
    if isinstance(source, str):
        return share_virtual(source, count)
    asked = [partial(_connected_serials, one.driver, one.adb_port) for one in settings]
    return claim_serials(source, _ask(nodes, asked, deadline_s))


def share_virtual(source: str, count: int) -> list[str]:
    """Divide `virtual:N` into the part that each node starts.

    Raises:
        ConfigError: the source is a single serial, or N is too small.
    """
    virtual = num_virtual(source)
    if virtual is None:
        raise ConfigError(
            f"devices.source={source} is one phone, but the job has {count} nodes; name the node "
            "that has it in devices.hosts"
        )
    if virtual < count:
        raise ConfigError(
            f"devices.source={source}: {count} nodes need a phone each; set "
            f"devices.source=virtual:{count} or more, or name fewer nodes in devices.hosts"
        )
    bounds = [virtual * k // count for k in range(count + 1)]
    return [f"virtual:{end - start}" for start, end in pairwise(bounds)]


def claim_serials(serials: Sequence[str], connected: Sequence[Collection[str]]) -> list[list[str]]:
    """Divide a list of serials among the nodes that they are connected to.

    A network address means the same phone everywhere and goes to the first node that is connected
    to it; other serials, such as `emulator-5554`, mean a different phone on each node.

    Args:
        serials: distinct serials.
        connected: the serials that each node's adb server lists.

    Returns:
        The serials of each node, in the order of the list.

    Raises:
        ConfigError: a serial is not connected to any node.
    """
    taken: set[str] = set()
    shares = []
    for known in connected:
        share = [serial for serial in serials if serial in known and serial not in taken]
        taken.update(serial for serial in share if _is_same_everywhere(serial))
        shares.append(share)
    lost = [serial for serial in serials if not any(serial in share for share in shares)]
    if lost:
        raise ConfigError(
            f"devices.source: {', '.join(lost)}: not connected to any of the job's "
            f"{pluralize(len(connected), 'node')} (see agentrl devices on each node). Connect "
            f"{'it' if len(lost) == 1 else 'them'} there, or name the nodes with phones in "
            "devices.hosts"
        )
    return shares


def _is_same_everywhere(serial: str) -> bool:
    if is_network_serial(serial):
        return not is_loopback(serial.rpartition(":")[0].strip("[]"))
    return "._tcp" in serial


def check_phone_hosts(hosts: Sequence[PhoneHost], deadline_s: float) -> None:
    """Check on every host that its phones can be reached.

    Raises:
        ConfigError: a phone cannot be reached, or a host does not answer.
    """
    checks = [partial(_check_source, host.settings) for host in hosts]
    _ask([host.node for host in hosts], checks, deadline_s)


def _ask(nodes: Sequence[Node], calls: Sequence[Callable[[], _T]], deadline_s: float) -> list[_T]:
    replies = ask_nodes(nodes, calls, deadline_s)
    failed = [f"{reply.node.name}: {reply.error}" for reply in replies if reply.error]
    if failed:
        raise ConfigError(f"phones of {'; '.join(failed)}")
    return [reply.result for reply in replies]  # type: ignore[misc]


def _connected_serials(driver: str, adb_port: int | None) -> list[str]:
    """Return the serials of this node's phones, including phones that are not ready."""
    server = AdbServer.from_environment(driver, port=adb_port)
    server.ensure()
    return list(server.devices())


def _check_source(settings: DevicesConfig) -> None:
    """Check that this host's phones can be reached."""
    devices.check_source(settings.source, **open_settings(settings))
