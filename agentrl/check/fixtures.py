"""Pytest fixtures for tests of what users provide.

# conftest.py
pytest_plugins = ["agentrl.check.fixtures"]
"""

from collections.abc import Iterator

import pytest

from agentrl.check.support.probe_phone import probe_phone
from agentrl.check.support.sample_episode import sample_episode
from agentrl.devices import Device
from agentrl.types import Episode


@pytest.fixture
def virtual_phone() -> Iterator[Device]:
    """A virtual phone of its own, connected through the real adb server."""
    with probe_phone() as phone:
        yield phone


@pytest.fixture
def episode() -> Episode:
    """A finished episode of three turns, as reward functions get it."""
    return sample_episode()
