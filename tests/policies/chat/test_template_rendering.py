import threading

import pytest

from agentrl.errors import ConfigError
from agentrl.policies.chat import template_rendering
from agentrl.policies.chat.template_rendering import render

LOOPS = "{% for a in r %}{% for b in r %}{% endfor %}{% endfor %}"
ENDLESS = [
    "{% set r = range(100000) %}" + LOOPS,
    "{% set r = range(100000) %}{% macro m() %}" + LOOPS + "{% endmacro %}{{ m() }}",
]


@pytest.mark.parametrize("template", ENDLESS)
def test_loops_that_write_nothing_end_at_the_deadline_in_any_thread(template, monkeypatch):
    monkeypatch.setattr(template_rendering, "DEADLINE_S", 0.2)
    failures = []

    def fail() -> None:
        with pytest.raises(ConfigError, match=r"rendering takes longer than 0\.2 s"):
            render(template, [], {})
        failures.append(template)

    fail()
    thread = threading.Thread(target=fail, daemon=True)
    thread.start()
    thread.join(10)
    assert failures == [template] * 2


def test_the_check_of_loops_does_not_change_what_they_write():
    template = "{% for x in range(3)[::-1] %}{{ loop.index }}{{ x }}{% else %}none{% endfor %}"
    assert render(template, [], {}) == "122130"
