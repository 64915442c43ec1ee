"""What is looked at before a job starts."""

import pytest

from agentrl import config as configuration
from agentrl.errors import ConfigError
from agentrl.training import plan


@pytest.mark.parametrize(
    ("overrides", "looked_at"),
    [([], ["env.kwargs"]), (["eval.kwargs.size=5"], ["env.kwargs", "eval.kwargs"])],
)
def test_what_an_environment_takes_is_looked_at_once(monkeypatch, overrides, looked_at):
    """For a data set it is read whole."""
    seen = []

    def looks(env, section="env.kwargs"):
        seen.append(section)
        return 7 if section == "env.kwargs" else 3

    monkeypatch.setattr(plan, "check_env_kwargs", looks)
    overrides = [*overrides, "rollout.engine=hf", "rollout.launcher=local"]
    planned = plan.resolve(configuration.load("counting", overrides))
    assert seen == looked_at
    count = planned["resolved"]["different episodes"]
    assert count == {"training": 7, "evaluation": 3 if "eval.kwargs" in seen else 7}


def test_way_of_weights_that_is_not_there_is_told_before_any_work():
    overrides = ["rollout.engine=hf", "rollout.launcher=local", "train.transfer=shared"]
    with pytest.raises(ConfigError, match=r"train\.transfer=shared is vLLM's"):
        plan.resolve(configuration.load("counting", overrides))
