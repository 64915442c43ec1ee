import pytest

from agentrl import config as configuration
from agentrl.config import Config
from agentrl.errors import ConfigError
from agentrl.rollout.collector import requests_of_step
from agentrl.training import env_seeds


def made(*overrides: str) -> Config:
    return configuration.resolve(Config(), ["rollout.groups=3", "rollout.group_size=4", *overrides])


def played(config: Config, step: int) -> list[list[int]]:
    numbers = range(3 * (step - 1), 3 * step)
    chosen = [env_seeds.training_seeds(config.seed, config.rollout, n) for n in numbers]
    requests = requests_of_step("train", step, chosen, 4)
    assert [(t.group, t.member) for t in requests] == [(g, m) for g in range(3) for m in range(4)]
    return [[t.seed for t in requests if t.group == group] for group in range(3)]


def test_a_group_shares_its_seed_and_steps_share_none() -> None:
    first, second = (played(made(), step) for step in (1, 2))
    assert all(len(set(group)) == 1 for group in first + second)
    assert len({group[0] for group in first + second}) == 6


def test_episodes_have_their_own_seeds_with_seed_per_episode() -> None:
    groups = [g for step in (1, 2) for g in played(made("rollout.seed_per=episode"), step)]
    assert len({seed for group in groups for seed in group}) == 24


@pytest.mark.parametrize("per", ["group", "episode"])
def test_runs_and_splits_share_no_seed(per: str) -> None:
    of = [made(f"rollout.seed_per={per}", f"seed={seed}") for seed in (0, 1)]
    trained = [{s for step in (1, 50) for g in played(one, step) for s in g} for one in of]
    shown = [set(env_seeds.demonstration_seeds(one.seed, 50)) for one in of]
    held_out = set(env_seeds.evaluation_seeds(of[0].eval, 100))
    assert not set.intersection(*trained)
    assert not any(a & b for a in trained for b in (*shown, held_out))


def test_too_many_seeds_are_an_error() -> None:
    def check(*overrides: str) -> None:
        one = made(*overrides)
        env_seeds.check_run_seeds(one.seed, one.rollout, 1, steps=1_000_000, demonstrations=0)

    check()
    with pytest.raises(ConfigError, match="more than"):
        check("rollout.seed_per=episode")
