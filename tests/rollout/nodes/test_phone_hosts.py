"""Which nodes have phones, and which phones each of them has."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl import config as configuration
from agentrl.cluster.placement import Layout, Node, Slot
from agentrl.config import DevicesConfig
from agentrl.errors import ConfigError
from agentrl.rollout.nodes.phone_hosts import (
    claim_serials,
    find_phone_hosts,
    nodes_of_hosts,
    share_virtual,
)
from agentrl.training.plan.job_plan import plan_training

A, B, C = nodes = tuple(
    Node(address=f"10.0.0.{k}", cpus=2, id=f"{k}" * 16, hostname=f"shelf-{k}") for k in (1, 2, 3)
)
SERIALS = ["R58M", "0123", "emulator-5554", "127.0.0.1:5600", "[::1]:5600", "192.168.1.7:5555",
           "adb-R58M._adb-tls-connect._tcp", "[fd00::7]:5555"]  # fmt: skip
EVERYWHERE = {*SERIALS[5:]}


def hosts_of(settings, engines=(A, B)):
    layout = Layout(
        nodes=nodes,
        engines=tuple(Slot(node=node) for node in engines),
        ranks=(),
        phones=nodes_of_hosts(settings.hosts, nodes),
    )
    settings.validate()
    return {h.node.name: h.settings for h in find_phone_hosts(settings, layout, 10.0)}


@given(st.lists(st.sets(st.sampled_from(SERIALS)), min_size=1, max_size=4), st.data())
def test_every_node_gets_what_is_connected_to_it_and_no_phone_has_two_nodes(connected, data):
    serials = data.draw(st.lists(st.sampled_from(SERIALS), unique=True))
    lost = set(serials) - set().union(*connected)
    if lost:
        with pytest.raises(ConfigError, match="not connected to any of the job's") as caught:
            claim_serials(serials, connected)
        assert all(serial in str(caught.value) for serial in lost)
        return
    shares = claim_serials(serials, connected)
    for share, known in zip(shares, connected, strict=True):
        assert set(share) <= known
        assert share == [serial for serial in serials if serial in share]
    for serial in serials:
        owners = [k for k, share in enumerate(shares) if serial in share]
        having = [k for k, known in enumerate(connected) if serial in known]
        assert owners == (having[:1] if serial in EVERYWHERE else having)


@given(st.integers(1, 40), st.integers(1, 8))
def test_virtual_phones_are_divided_evenly(phones, count):
    if phones < count:
        with pytest.raises(ConfigError, match=f"set devices.source=virtual:{count} or more"):
            share_virtual(f"virtual:{phones}", count)
        return
    counts = [
        int(share.removeprefix("virtual:")) for share in share_virtual(f"virtual:{phones}", count)
    ]
    assert sum(counts) == phones
    assert max(counts) - min(counts) <= 1


def test_hosts_have_their_own_phones_or_a_part_of_those_of_the_job():
    assert {n: s.source for n, s in hosts_of(DevicesConfig(source="virtual:5")).items()} == {
        "10.0.0.1": "virtual:2",
        "10.0.0.2": "virtual:3",
    }
    found = hosts_of(
        DevicesConfig(
            source="virtual:4",
            adb_port=5039,
            hosts={
                "shelf-3": {"source": ["R58M"], "adb_port": 5038},
                "10.0.0.1": None,
                "22222222": {"adb_port": 5040},
            },
        )
    )
    assert {n: (s.source, s.adb_port, s.hosts) for n, s in found.items()} == {
        "10.0.0.3": (["R58M"], 5038, {}),
        "10.0.0.1": ("virtual:2", 5039, {}),
        "10.0.0.2": ("virtual:2", 5040, {}),
    }


def test_nodes_with_one_address_are_named_by_their_ids_too():
    twins = [Node(address=A.address, cpus=2, id=digit * 16, shares_address=True) for digit in "19"]
    layout = Layout(nodes=tuple(twins), engines=tuple(Slot(node=n) for n in twins), ranks=())
    found = find_phone_hosts(DevicesConfig(source="connected"), layout, 10.0)
    assert [host.node.name for host in found] == ["10.0.0.1-11111111", "10.0.0.1-99999999"]
    assert layout.describe() == {host.node.name: "engine " + str(k) for k, host in enumerate(found)}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"hosts": {"10.0.0.9": None}},
            r"devices\.hosts: 10\.0\.0\.9 is not .*shelf-3.*devices\.hosts=\{10\.0\.0\.9: false\}",
        ),
        ({"hosts": {"10.0.0.1": None, "shelf-1": None}}, "10.0.0.1 and shelf-1 are the same node"),
        ({"hosts": {"shelf-1": {"port": 5038}}}, r"hosts\.shelf-1\.port: no such setting"),
        ({"hosts": {"shelf-1": {"sauce": "connected"}}}, "did you mean 'source'"),
        ({"hosts": {"shelf-1": {"adb_port": 70000}}}, r"adb_port=70000: must be a port"),
        ({"hosts": {"shelf-1": []}}, r"devices\.hosts\.shelf-1=\[\]: must be virtual:N"),
        ({"hosts": {"shelf-1": 5}}, r"devices\.hosts\.shelf-1=5: must be virtual:N"),
        ({"source": "R58M"}, "is one phone, but the job has 2 nodes; name the node that has it"),
        ({"source": "virtual:1"}, "2 nodes need a phone each"),
        ({"adb_port": 0}, r"devices\.adb_port=0: must be a port from 1"),
    ],
)
def test_what_cannot_be_is_refused(settings, said):
    with pytest.raises(ConfigError, match=said):
        hosts_of(DevicesConfig(**settings))


def test_a_saved_job_can_leave_out_one_of_its_hosts(tmp_path):
    job = configuration.load("number_game", ["devices.hosts={10.0.0.1: 'virtual:2', b: null}"])
    (tmp_path / "job.yaml").write_text(configuration.to_yaml(job.to_dict()))
    resumed = configuration.load(tmp_path / "job.yaml", ["devices.hosts={10.0.0.1: false}"])
    assert resumed.devices.hosts == {"b": None}
    assert configuration.from_dict(resumed.to_dict()).devices.hosts == {"b": None}


def test_hosts_without_a_cluster_are_refused_before_work_starts(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    job = configuration.load("number_game", ["devices.hosts={10.0.0.1: 'virtual:2', b: null}"])
    assert job.devices.hosts == {"10.0.0.1": "virtual:2", "b": None}
    assert configuration.from_dict(job.to_dict()).devices.of_host("10.0.0.1").source == "virtual:2"
    with pytest.raises(ConfigError, match=r"devices\.hosts names nodes of a Ray cluster"):
        plan_training(job)
