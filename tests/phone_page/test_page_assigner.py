from collections.abc import Iterator
from contextlib import closing

import pytest

from agentrl.devices.adb import AdbServer
from agentrl.devices.adb_phone import AdbPhone
from agentrl.errors import ConfigError
from agentrl.phone_page import PageAssigner, PageDevice
from virtual_phone import spawn
from virtual_phone.phones_spec import AppSpec

pytestmark = pytest.mark.adb
PROBE = AppSpec(app="virtual_phone.apps.probe_app:ProbeApp")
GAME = AppSpec(app="agentrl.envs.android.number_game.app:NumberGameApp")


@pytest.fixture(scope="module")
def phone(adb_server: AdbServer) -> Iterator[AdbPhone]:
    """A phone that has the probe, and not the game."""
    with spawn(1, [PROBE]) as phones:
        with closing(AdbPhone(adb_server, phones.serials[0])) as device:
            yield device
        adb_server.disconnect(phones.serials[0])


def test_a_phone_with_the_app_installed_needs_no_page(phone: AdbPhone) -> None:
    with closing(PageAssigner([PROBE])) as pager:
        assert pager.wrap(phone) is phone
    with closing(PageAssigner([GAME], "installed")) as pager:
        assert pager.wrap(phone) is phone


def test_a_phone_without_the_app_gets_its_page(phone: AdbPhone) -> None:
    with closing(PageAssigner([GAME])) as pager:
        assert isinstance(pager.wrap(phone), PageDevice)
    with closing(PageAssigner([PROBE], "page")) as pager:
        assert isinstance(pager.wrap(phone), PageDevice)
    with (
        closing(PageAssigner([AppSpec(app="nowhere:App")])) as pager,
        pytest.raises(ConfigError),
    ):
        pager.wrap(phone)
