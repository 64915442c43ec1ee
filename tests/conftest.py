import gc
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import Phase, settings

from agentrl.child_process import free_port
from agentrl.devices import Device
from agentrl.devices.adb import AdbServer, find_adb
from agentrl.devices.device_opener import DeviceOpener
from agentrl.errors import DeviceError
from tests.leftovers import pytest_runtest_call  # noqa: F401 - a hook
from tests.wheel import build_wheel
from virtual_phone import spawn

# Nothing here is on the hub: without this, each look for it would be repeated for half a minute.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# No garbage is looked for until all tests are collected, nor later among what they consist of.
gc.disable()

PROBE = "virtual_phone.apps.probe_app:ProbeApp"

# On a busy machine an example of a few tensors may take a second. A failing example is made small,
# and no more of it is explained: that may take longer than a test's timeout.
settings.register_profile(
    "patient",
    deadline=None,
    report_multiple_bugs=False,
    phases=[phase for phase in Phase if phase is not Phase.explain],
)
settings.load_profile("patient")


@pytest.fixture(scope="session")
def adb_server() -> Iterator[AdbServer]:
    """A real adb server of our own, on a free port, that every program started here uses."""
    port = free_port()
    old = os.environ.get("ANDROID_ADB_SERVER_PORT")
    os.environ["ANDROID_ADB_SERVER_PORT"] = str(port)
    server = AdbServer(port=port)
    # Where there is no key yet a server makes one: of two that start at once, one would sign with
    # another key than the file's, and no phone would ever know it again.
    with FileLock(Path(tempfile.gettempdir()) / f"agentrl-tests-adb-{os.getuid()}.lock", 60):
        process = subprocess.Popen(
            [find_adb(), "-P", str(port), "nodaemon", "server"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "ADB_LOCAL_TRANSPORT_MAX_PORT": "5553"},
        )
        end = time.monotonic() + 20
        while True:
            try:
                server.devices(1)
                break
            except DeviceError:
                assert process.poll() is None, "the adb server does not start"
                assert time.monotonic() < end, "the adb server does not answer"
                time.sleep(0.02)
    yield server
    process.terminate()
    process.wait(10)
    if old is None:
        del os.environ["ANDROID_ADB_SERVER_PORT"]
    else:
        os.environ["ANDROID_ADB_SERVER_PORT"] = old


@pytest.fixture(scope="session")
def unused_serials() -> Iterator[Iterator[str]]:
    """Serials of phones with the probe on them, ten in a process: starting it costs the most."""
    with ExitStack() as running:

        def serials() -> Iterator[str]:
            while True:
                yield from running.enter_context(spawn(10, [PROBE], tempo="quick")).serials

        yield serials()


@pytest.fixture
def unused_serial(adb_server: AdbServer, unused_serials: Iterator[str]) -> Iterator[str]:
    """The serial of a phone of its own for one test; effects come at once."""
    serial = next(unused_serials)
    yield serial
    adb_server.disconnect(serial)


@pytest.fixture
def virtual_phone(unused_serial: str) -> Iterator[Device]:
    """A phone of its own for one test, with the probe in front; effects come at once."""
    device = DeviceOpener().open(unused_serial, known=True)
    device.launch("org.agentrl.probe", ".Main", {})
    yield device
    device.close()


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    return build_wheel(tmp_path_factory.mktemp("checkout"))


@pytest.fixture(scope="session")
def tiny_vlm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny Qwen2.5-VL, built from seed 0; not to be written to."""
    from agentrl.policies import tiny_model

    return tiny_model.build(tmp_path_factory.mktemp("models") / "tiny", 0)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    try:
        return (yield)
    finally:
        if loaded := sys.modules.get("transformers.configuration_utils"):
            # Written whenever a configuration is read, for a log that is off: most of the time.
            loaded.PreTrainedConfig.__repr__ = object.__repr__
        gc.freeze()
        gc.enable()


def mark_parameters_slow(items: list[pytest.Item]) -> None:
    """Mark those parameters of each test as slow that its marker `quick` does not name."""
    tests: dict[str, list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("quick"):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for of_one in tests.values():
        marker = of_one[0].get_closest_marker("quick")
        assert marker is not None
        ids = [item.callspec.id for item in of_one]
        if "every" in marker.kwargs:
            quick = ids[:: marker.kwargs["every"]]
        else:
            quick = ids[: marker.args[0]] if isinstance(marker.args[0], int) else marker.args
        for item in of_one:
            if item.callspec.id not in quick:
                item.add_marker("slow")


_LONGEST_FIRST = (
    "training/trainer/test_train.py",
    "test_examples.py",
    "policies/engines/test_vllm_engine.py",
    "viewer/test_pages.py",
    "viewer/test_episode_page.py",
    "viewer/test_episode_list.py",
    "training/demonstrations/test_demonstration_filter.py",
    "training/learner/test_learner.py",
    "training/trainer/test_training_samples.py",
    "phone_page/test_page_jobs.py",
    "viewer/test_viewer_server.py",
    "viewer/test_run_app.py",
    "viewer/test_serving.py",
    "training/learner/test_ranks.py",
    "rollout/workers/test_rollout_worker.py",
    "training/learner/test_lora_adapters.py",
    "viewer/test_page_design.py",
    "check/test_extensions.py",
    "test_mistakes.py",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is slow, and start with long files: no process is left alone with one."""
    mark_parameters_slow(items)

    def place(item: pytest.Item) -> int:
        path = item.path.relative_to(Path(__file__).parent).as_posix()
        return _LONGEST_FIRST.index(path) if path in _LONGEST_FIRST else len(_LONGEST_FIRST)

    items.sort(key=place)
