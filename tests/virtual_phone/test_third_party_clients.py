"""Third-party clients work on virtual phones as docs/virtual-phone.md states."""

from collections.abc import Iterator

import pytest

from tests.virtual_phone.third_party import clients
from virtual_phone import VirtualPhones

pytestmark = [pytest.mark.slow, pytest.mark.adb, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def phones() -> Iterator[VirtualPhones]:
    with clients.start_phones() as running:
        yield running


@pytest.mark.parametrize("name", clients.LICENSES)
def test_a_clients_calls_are_answered_as_documented(phones: VirtualPhones, name: str) -> None:
    try:
        calls = clients.run_on(phones, name)
    except clients.NotInstalled as error:
        pytest.skip(str(error))
    assert {one.call: one.refusal for one in calls if one.refusal} == {}
    assert clients.row(name, calls) in clients.PAGE.read_text(), (
        "run: python -m tests.virtual_phone.third_party.clients"
    )
