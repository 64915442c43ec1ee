"""Serve a game with OpenEnv's own server: python openenv_server.py PORT. Runs without agentrl."""

import random
import sys

import uvicorn
from openenv.core.env_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, ConcurrencyConfig, Observation, State
from pydantic import Field


class Guess(Action):
    number: int = Field(ge=0, le=9)
    certain: bool = False
    words: str = ""
    more: list[str] = Field(default_factory=list)


class Hint(Observation):
    hint: str


class Guessing(Environment):
    """Guess a number; the action `break` raises an error."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, hint="guess", **kwargs):
        self.secret, self.turns = random.Random(seed).randrange(10), 0
        return Hint(hint=f"{hint} 0 to 9")

    def step(self, action, timeout_s=None, **kwargs):
        if action.words == "break":
            raise RuntimeError("the game broke")
        self.turns += 1
        hit = action.number == self.secret
        hint = "yes" if hit else "higher" if action.number < self.secret else "lower"
        reward = (2.0 if action.certain else 1.0) if hit else None
        return Hint(hint=hint, reward=reward, done=hit, metadata={"turns": self.turns})

    @property
    def state(self):
        return State(step_count=self.turns)


app = create_fastapi_app(
    Guessing, Guess, Hint, concurrency_config=ConcurrencyConfig(max_concurrent_envs=3)
)
if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), log_level="warning")
