"""Pytest fixtures for tests of users' extensions.

# conftest.py
pytest_plugins = ["agentrl.check.pytest_fixtures"]
"""

from collections.abc import Iterator

import pytest

from agentrl.check.support.sample_episode import sample_episode
from agentrl.check.support.virtual_probe_phone import probe_phone
from agentrl.devices import Device
from agentrl.types import Episode


@pytest.fixture
def virtual_phone() -> Iterator[Device]:
    """Start a virtual phone for one test, connected through the real adb server."""
    with probe_phone() as phone:
        yield phone


@pytest.fixture
def episode() -> Episode:
    """Return a finished three-turn episode, as passed to reward functions."""
    return sample_episode()
