"""Train a few steps on a custom environment: press the lit button.

Run: python examples/own_environment.py [key=value ...]
"""

import json
import sys
from pathlib import Path

import gymnasium
import numpy as np

import agentrl


class LitButton(gymnasium.Env):
    """Two buttons side by side, one of them lit; an episode is four presses."""

    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Box(0, 255, (28, 56, 3), np.uint8)

    def _look(self):
        screen = np.full((28, 56, 3), 40, np.uint8)
        screen[:, 28 * self.lit : 28 * self.lit + 28] = (250, 200, 40)
        return screen, {"state_key": str(self.count), "metrics": {"right": self.right / 4}}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count, self.right, self.lit = 0, 0, int(self.np_random.integers(2))
        return self._look()

    def step(self, action):
        reward = float(action == self.lit)
        self.count, self.right = self.count + 1, self.right + int(reward)
        self.lit = int(self.np_random.integers(2))
        observation, info = self._look()
        return observation, reward, self.count == 4, False, info


class Guesser:
    """Demonstrates the format of replies but guesses the answers."""

    def reply(self, info, rng):
        return f"<action>{rng.choice(['left', 'right'])}</action>"


agentrl.register(
    "LitButton-v0",
    "own_environment:LitButton",
    players={"guesser": "own_environment:Guesser"},
)

if __name__ == "__main__":
    run = agentrl.train(Path(__file__).with_suffix(".yaml"), overrides=sys.argv[1:])
    print(json.dumps(run.summary, indent=2))
