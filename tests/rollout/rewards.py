"""Reward functions for tests."""


def given(episode):
    return episode.reset_info.get("value", 1.0)


def per_turn(episode, scale=1.0):
    return [scale * t.env_reward for t in episode.turns]


def raises(episode):
    raise RuntimeError("bad day")


NUMBER = 3
