"""Multi-agent games with PettingZoo's interface, played by one policy (`pettingzoo:...`)."""

from functools import partial
from typing import Any

import gymnasium
import pettingzoo
from pettingzoo import ParallelEnv
from pettingzoo.utils import parallel_to_aec

from agentrl import user_code
from agentrl.errors import ConfigError, boundary
from agentrl.text.name_suggestions import known_names

ALL = "all"


class PettingZooGame(gymnasium.Env[Any, Any]):
    """A game from one agent's view; the other agents are part of the environment.

    Args:
        agentrl_target: a PettingZoo id, or `module:name` of a factory of AEC or parallel games. In
            a parallel game, agents choose in turn without seeing each other's choices.
        agent: the agent that the policy plays; None for the first. For cooperative games, `all`
            gives the policy the turns of all agents and the sum of their rewards.
        others: `module:name` of a function (observation, action_space, agent, rng) that returns the
            other agents' actions; None for random actions, which are legal if the game has a mask.
        render_mode, **kwargs: arguments of the game.

    Raises:
        ConfigError: the agent does not exist, or with `all`, agents have different actions.
    """

    metadata = {"render_modes": ["human", "ansi", "rgb_array"]}  # noqa: RUF012 - until it is made

    def __init__(
        self,
        agentrl_target: str,
        agent: str | None = None,
        others: str | None = None,
        render_mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        kind = "parallel" if agentrl_target in pettingzoo.parallel_registry else "aec"
        named = partial(pettingzoo.make, kind, agentrl_target)
        make = user_code.load(agentrl_target) if ":" in agentrl_target else named
        with boundary(ConfigError, f"env.id=pettingzoo:{agentrl_target} cannot be constructed"):
            game = make(render_mode=render_mode, **kwargs)
        self._game = parallel_to_aec(game) if isinstance(game, ParallelEnv) else game
        agents = list(self._game.possible_agents)
        if agent not in (None, ALL, *agents):
            hint = known_names(str(agent), [*agents, ALL])
            raise ConfigError(f"env.kwargs.agent={agent}: the game has no such agent{hint}")
        self._own = agents if agent == ALL else [agent or agents[0]]
        self._others = None if others is None else user_code.load(others)
        self.action_space = self._game.action_space(self._own[0])
        self.observation_space = self._game.observation_space(self._own[0])
        if any(self._game.action_space(one) != self.action_space for one in self._own):
            raise ConfigError(
                f"env.kwargs.agent={ALL}: the agents have different action spaces; choose one agent"
            )
        self.render_mode, self.metadata = render_mode, dict(self._game.metadata)
        self.render, self.close = self._game.render, self._game.close  # type: ignore[method-assign]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """See gymnasium.Env.reset; the other agents move until it is the policy's turn."""
        super().reset(seed=seed)
        self._game.reset(seed=seed, options=options)
        observation, _, _, _, info = self._until_own_turn()
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """See gymnasium.Env.step; rewards are summed until the policy's next turn."""
        self._game.step(action)
        return self._until_own_turn()

    def _until_own_turn(self) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        total, ends, seen, known = 0.0, (False, False), None, dict[str, Any]()
        while self._game.agents:
            agent = self._game.agent_selection
            observation, reward, terminated, truncated, info = self._game.last()
            is_out, mask = terminated or truncated, info.get("action_mask")
            # Most games put the mask of legal actions in the observation, some in the info.
            if isinstance(observation, dict) and observation.get("action_mask") is not None:
                mask = observation["action_mask"]
            if agent in self._own:
                total, ends, seen = total + float(reward), (terminated, truncated), observation
                known = {**info, "agent": agent, **({} if mask is None else {"action_mask": mask})}
                if not is_out:
                    break
            space = self._game.action_space(agent)
            if is_out:
                action = None
            elif self._others is None:
                space.seed(int(self.np_random.integers(2**31)))
                action = space.sample(mask=mask)
            else:
                action = self._others(observation, space, agent, self.np_random)
            self._game.step(action)
        return seen, total, *ends, known
