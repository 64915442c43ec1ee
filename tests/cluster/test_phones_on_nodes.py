"""Phones on the two nodes of a cluster, which is one machine with two adb servers."""

import asyncio
import os
import signal
import subprocess
from contextlib import contextmanager
from dataclasses import replace

import pytest

from agentrl import cli, replay
from agentrl.child_process import free_port
from agentrl.cluster.node_discovery import find_nodes
from agentrl.config import Config, DevicesConfig, EnvConfig, RolloutConfig
from agentrl.devices.adb import AdbServer, find_adb
from agentrl.devices.pool.phones_in_use import PhonesInUse
from agentrl.env_registry import find_env
from agentrl.errors import ConfigError
from agentrl.replay.live_phone_states import read_live_phones
from agentrl.rollout.collector import requests_of_step
from agentrl.rollout.rollout_plan import plan_rollouts
from agentrl.rollout.workers.open_rollouts import open_rollouts
from agentrl.training.plan.job_plan import check_scripted_play
from agentrl.viewer.run_overview import devices as phones_of_run
from virtual_phone import spawn

pytestmark = [pytest.mark.slow, pytest.mark.adb, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def ports(adb_server):
    """The adb servers of the two hosts."""
    second = AdbServer(port=free_port())
    second.ensure(20)
    yield adb_server.port, second.port
    subprocess.run([find_adb(), "-P", str(second.port), "kill-server"], timeout=20, check=True)


@pytest.fixture(scope="module")
def cluster(ports, cluster):  # in this order: its processes inherit the port of the first server
    return cluster


def names_of(nodes):
    return [f"{node.address}-{node.id[:8]}" for node in nodes]


def number_game(actors, **devices):
    config = Config(
        env=EnvConfig(id="NumberGame-v0", max_turns=2),
        rollout=RolloutConfig(actors=actors, engine="hf", max_new_tokens=8),
        devices=DevicesConfig(tempo="quick", **devices),
    )
    config.model.image_size = [84, 140]
    return config


async def test_prompts_travel_from_the_phones_of_both_nodes_to_the_only_engine(
    nodes, ports, tiny_vlm, tmp_path
):
    hosts = {
        node.id: {"source": "virtual:2", "adb_port": port}
        for node, port in zip(nodes, ports, strict=True)
    }
    config = number_game(1, hosts=hosts)
    check_scripted_play(plan_rollouts(config))
    rollouts = await open_rollouts(plan_rollouts(config), tiny_vlm, tmp_path)
    try:
        requests = requests_of_step("train", 1, [1, 2, 3, 4], 2)
        played = await rollouts.collect(requests)
        live = read_live_phones(tmp_path)
        expert = await rollouts.collect(requests_of_step("eval", 1, [5, 6], 1), "expert")
    finally:
        await rollouts.close()
    assert [one.episode.id for one in played] == [request.id for request in requests]
    assert all(turn.reply_ids for one in played for turn in one.episode.turns)
    assert {one.episode.outcome.name for one in [*played, *expert]} == {"TRUNCATED"}
    recorded = replay.open(tmp_path)
    names = {one.id: one.device for one in recorded.episodes()}
    hosts_of_phones = {device.rpartition("@")[2] for device in names.values()}
    assert hosts_of_phones == {*names_of(nodes)}
    assert {row["device"] for row in phones_of_run(recorded)} == {*names.values()}
    assert sorted(phone["host"] for phone in live) == sorted(2 * names_of(nodes))
    logs = {file.stem for file in (tmp_path / "logs").iterdir()}
    assert {"engine0", "rollout0", "rollout1", "phones", "phones1"} <= logs


async def test_a_host_and_the_only_engine_die_while_episodes_are_played(
    cluster, nodes, ports, tiny_vlm, tmp_path
):
    hosts = {
        node.id: {"source": "virtual:2", "adb_port": port}
        for node, port in zip(nodes, ports, strict=True)
    }
    rollouts = await open_rollouts(plan_rollouts(number_game(1, hosts=hosts)), tiny_vlm, tmp_path)

    async def play(step, lose):
        """Play while something is lost, as soon as the second host has recorded an episode."""
        index = tmp_path / "episodes" / "index-rollout1.jsonl"
        requests = requests_of_step("train", step, range(12), 2)
        playing = asyncio.create_task(rollouts.collect(requests))
        while not (index.exists() and f'"train-{step:05}' in index.read_text()):
            assert not playing.done(), playing.result()
            await asyncio.sleep(0.02)
        await lose()
        played = await playing
        assert [one.episode.id for one in played] == [request.id for request in requests]
        assert {one.episode.outcome.name for one in played} == {"TRUNCATED"}

    async def lose_host():
        (dies,) = cluster.worker_nodes
        cluster.remove_node(dies, allow_graceful=False)

    async def lose_engine():
        pid = engine.actor.__ray_call__.remote(lambda self: os.getpid())
        os.kill(await asyncio.wrap_future(pid.future()), signal.SIGKILL)

    (engine,), (_, second) = rollouts._workers.engines, rollouts._workers.players
    try:
        async with asyncio.timeout(200):
            await play(1, lose_host)
            assert rollouts.worker_metrics() == {"workers": 1.0, "replaced_workers": 0.0}
            cluster.add_node(num_cpus=1)
            await second.replacement
            assert rollouts.worker_metrics() == {"workers": 2.0, "replaced_workers": 1.0}
            await play(2, lose_engine)
            assert rollouts.worker_metrics() == {"workers": 2.0, "replaced_workers": 2.0}
    finally:
        await rollouts.close()
    returned = find_nodes("ray")[1]
    assert returned.id != nodes[1].id
    layout = rollouts._starter.reservation.layout
    assert layout.nodes == layout.phones == (nodes[0], returned)
    played = replay.open(tmp_path).episodes()
    assert len({one.id for one in played}) == len(played) == 48
    for step, phones in ((1, nodes), (2, layout.phones)):
        hosts_of_step = {one.device.rpartition("@")[2] for one in played if one.step == step}
        assert hosts_of_step == {*names_of(phones)}


@contextmanager
def connected(server):
    """A virtual phone that an adb server knows."""
    with spawn(1, [find_env("NumberGame-v0").app]) as phones:
        server.connect(phones.serials[0])
        yield phones.serials[0]
        server.disconnect(phones.serials[0])


async def test_scripted_players_use_the_phones_of_a_list_where_they_are(nodes, ports, tmp_path):
    with connected(AdbServer(port=ports[0])) as here, connected(AdbServer(port=ports[1])) as there:
        hosts = {node.id: {"adb_port": port} for node, port in zip(nodes, ports, strict=True)}
        config = number_game(1, source=[there, here], hosts=hosts)
        check_scripted_play(plan_rollouts(config))
        rollouts = await open_rollouts(plan_rollouts(config), None, tmp_path)
        try:
            played = await rollouts.collect(requests_of_step("eval", 1, [5, 6], 1), "expert")
        finally:
            await rollouts.close()
        assert {one.episode.device for one in played} == {
            f"{serial}@{name}" for serial, name in zip((here, there), names_of(nodes), strict=True)
        }
        lost = replace(config.devices, source=[here, "emulator-5999"])
        with pytest.raises(ConfigError, match="emulator-5999: not connected to any of the job's 2"):
            check_scripted_play(plan_rollouts(replace(config, devices=lost)))
        gone = {nodes[1].id: {"source": ["emulator-5999"], "adb_port": ports[1]}}
        gone = replace(config.devices, hosts=gone)
        with pytest.raises(ConfigError, match=r"phones of .*emulator-5999 is not known to adb"):
            check_scripted_play(plan_rollouts(replace(config, devices=gone)))


def test_the_doctor_examines_the_phones_of_a_node_and_reports_one_that_hangs(
    cluster, nodes, unused_serial, adb_server, monkeypatch, capsys
):
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    adb_server.connect(unused_serial)
    here, there = names_of(nodes)
    in_use = PhonesInUse([unused_serial])
    assert cli.run(["devices", "doctor", "--hosts", nodes[0].id]) == 0
    in_use.close()
    assert f"{unused_serial}  in use by a running job, not checked" in capsys.readouterr().out
    assert cli.run(["devices", "doctor", "--hosts", nodes[0].id]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.split() for line in said] == [
        [here, unused_serial, "ready"],
        ["1", "of", "1", "phones", "are", "ready", "for", "jobs."],
    ]
    (hangs,) = cluster.worker_nodes
    raylet = hangs.all_processes["raylet"][0].process.pid
    os.kill(raylet, signal.SIGSTOP)
    try:
        assert cli.run(["devices", "doctor", "--hosts", nodes[1].id, "--deadline", "5"]) == 1
    finally:
        os.kill(raylet, signal.SIGCONT)
    said = capsys.readouterr().out.splitlines()
    assert said[0].split() == [there, *["no", "answer", "within", "5", "s"]]
    assert said[-1] == "No answer from 1 node."
    assert cli.run(["devices", "doctor", "--hosts", "10.9.9.9"]) == 2
    assert "10.9.9.9 is not a node of the cluster" in capsys.readouterr().err
    assert cli.run(["devices", "doctor", unused_serial, "--hosts", nodes[0].id]) == 2
    assert "excludes --hosts; run the command on the phone's own node" in capsys.readouterr().err
