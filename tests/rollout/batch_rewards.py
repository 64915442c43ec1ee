"""Batch reward functions for tests."""


def of_other_name(items):
    return [{"overall": 2.0} for item in items if item["response"]]


def raises(reward_inputs):
    return reward_inputs[0]["no such key"]


def too_few(reward_inputs):
    return []


def without_overall(reward_inputs):
    return [{"accuracy": 1.0} for _ in reward_inputs]


def not_a_number(reward_inputs):
    return [{"overall": float("nan")} for _ in reward_inputs]


def a_text(reward_inputs):
    return [{"overall": 1.0, "accuracy": "yes"} for _ in reward_inputs]


def too_large(reward_inputs):
    return [{"overall": 10**5000} for _ in reward_inputs]


class Panic(BaseException):
    """An exception like PyO3's, which does not derive from Exception."""


def panics(reward_inputs):
    raise Panic("out of order")


class Broken:
    def __float__(self):
        raise Panic("no value")


def broken(reward_inputs):
    return [{"overall": Broken()} for _ in reward_inputs]


def no_list(reward_inputs):
    return None


def no_row(reward_inputs):
    return [1.0 for _ in reward_inputs]


def misconfigured(reward_inputs):
    from agentrl.errors import ConfigError

    raise ConfigError("no such key")


class Counter:
    def __init__(self, first=0):
        if first < 0:
            raise ValueError("first must not be negative")
        self.count = first - 1

    def __call__(self, reward_inputs):
        self.count += len(reward_inputs)
        return [{"overall": self.count} for _ in reward_inputs]


def one_by_one(reward_inputs):
    return [{"overall": float(len(reward_inputs))} for _ in reward_inputs]


one_by_one.max_batch_size = 1


def in_no_batch(reward_inputs):
    return [{"overall": 0.0} for _ in reward_inputs]


in_no_batch.max_batch_size = 0


def by_reply(reward_inputs):
    """Return the result of the function that the first reply names, or a fraction per episode."""
    name = reward_inputs[0]["response"]
    if name == "count":
        return [{"overall": float(len(reward_inputs))} for _ in reward_inputs]
    if name in globals():
        return globals()[name](reward_inputs)
    return [{"overall": 1 / float(one["response"])} for one in reward_inputs]
