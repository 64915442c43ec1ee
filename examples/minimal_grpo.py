"""GRPO from top to bottom: one file, one environment, one policy, a minute on a laptop CPU.

`python examples/minimal_grpo.py` trains a policy to cross FrozenLake. It is the loop of `agentrl
train` without engines, phones, records and checkpoints: play groups of episodes, compare each
episode with its siblings, update the policy, repeat. The policy is a small network over whole
replies, so that nothing has to be downloaded; a language model would sample its replies token by
token, and everything else would stay the same.
"""

import sys
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

import agentrl
from agentrl.algorithms.core.policy_loss import LossInputs
from agentrl.algorithms.core.statistics import per_group, standardize
from agentrl.algorithms.ppo import PPOLoss

ENV, NAMES = "FrozenLake-v1", ["left", "down", "right", "up"]
REPLIES = [*(f"<action>{name}</action>" for name in NAMES), "Let me think."]
"""Possible replies; the last is not an action and costs a turn."""
GROUPS, GROUP_SIZE, MAX_TURNS, EPOCHS = 8, 16, 20, 4


@dataclass(slots=True, kw_only=True)
class Sampled:
    """An episode: prompts, sampled replies and total reward."""

    group: int
    prompts: list[int] = field(default_factory=list)
    replies: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    reward: float = 0.0


class Policy(nn.Module):
    """Distribution over replies for each prompt."""

    def __init__(self, num_prompts: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(num_prompts, 64)
        self.head = nn.Linear(64, len(REPLIES))

    def forward(self, prompts: Tensor) -> Tensor:
        """Compute the log-probabilities of all replies.

        Args:
            prompts: int64[N].

        Returns:
            Log-probabilities, [N, num_replies].
        """
        return torch.log_softmax(self.head(torch.tanh(self.embed(prompts))), dim=-1)


@torch.no_grad()
def play(policy: Policy, seed: int, group: int) -> Sampled:
    """Play one episode: observation -> prompt -> reply -> action, until it ends."""
    env = agentrl.make(ENV, is_slippery=False)
    translator = agentrl.make_translator(ENV, {"names": NAMES})
    sampled = Sampled(group=group)
    observation, info = env.reset(seed=seed)
    for _ in range(MAX_TURNS):
        prompt = translator.to_message(translator.to_observation(observation, info)).text
        logprobs = policy(torch.tensor([int(prompt)]))[0]
        reply = int(torch.multinomial(logprobs.exp(), 1))
        sampled.prompts.append(int(prompt))
        sampled.replies.append(reply)
        sampled.logprobs.append(float(logprobs[reply]))
        try:
            action = translator.to_action(REPLIES[reply])
        except agentrl.ActionError:
            continue  # not an action: the turn is lost, but the episode continues
        observation, reward, terminated, truncated, info = env.step(action)
        sampled.reward += float(reward)
        if terminated or truncated:
            break
    env.close()
    return sampled


def advantages_of(episodes: list[Sampled]) -> Tensor:
    """Return how much better each episode is than its siblings, in standard deviations, [E]."""
    rewards = torch.tensor([episode.reward for episode in episodes])
    groups = torch.tensor([episode.group for episode in episodes])
    return per_group(standardize, rewards, groups, torch.ones_like(groups, dtype=torch.bool))


def update(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    episodes: list[Sampled],
    advantages: Tensor,
    policy_loss: PPOLoss,
) -> float:
    """Update the policy on all turns of all episodes; return the loss of the last pass."""
    lengths = torch.tensor([len(episode.replies) for episode in episodes])
    prompts = torch.tensor([prompt for episode in episodes for prompt in episode.prompts])
    replies = torch.tensor([reply for episode in episodes for reply in episode.replies])
    old_logprobs = torch.tensor([value for episode in episodes for value in episode.logprobs])
    per_turn = advantages.repeat_interleave(lengths)  # each turn gets its episode's advantage
    turn = torch.arange(len(replies))
    loss = torch.zeros(())
    for _ in range(EPOCHS):
        logprobs = policy(prompts).gather(1, replies[:, None])[:, 0]
        inputs = LossInputs(
            logprobs=logprobs, old_logprobs=old_logprobs, advantages=per_turn, turn=turn
        )
        loss = policy_loss(inputs).loss.mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
    return float(loss.detach())


def main(steps: int = 30) -> None:
    """Train, printing the success rate of every fifth step."""
    torch.manual_seed(0)
    policy_loss = PPOLoss(PPOLoss.Config(name="ppo", clip_high=0.28))
    policy = Policy(num_prompts=16)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=0.02)
    for step in range(1, steps + 1):
        episodes = [
            play(policy, seed=step * GROUPS + group, group=group)
            for group in range(GROUPS)
            for _ in range(GROUP_SIZE)
        ]
        advantages = advantages_of(episodes)
        loss = update(policy, optimizer, episodes, advantages, policy_loss)
        success = sum(episode.reward for episode in episodes) / len(episodes)
        if step == 1 or step % 5 == 0:
            print(f"step {step:3}  success {success:6.1%}  loss {loss:+.4f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
