"""A wrapper that ends the browsers of a web environment in the middle of some episodes."""

import gymnasium
import psutil


class Crashing(gymnasium.Wrapper):
    """Kills every child process of this process at a step of one seed."""

    def __init__(self, env, seed):
        super().__init__(env)
        self.bad, self.seed = seed, None

    def reset(self, *, seed=None, options=None):
        self.seed = seed
        return self.env.reset(seed=seed, options=options)

    def step(self, action):
        if self.seed == self.bad:
            for child in psutil.Process().children(recursive=True):
                child.kill()
        return self.env.step(action)
