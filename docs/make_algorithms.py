"""Write the table of docs/algorithms.md: what each estimator and loss gives on one fixed case.

Run: python docs/make_algorithms.py
"""

import dataclasses
from pathlib import Path

import torch

from agentrl.config import AlgorithmConfig
from agentrl.training.credit import credit
from agentrl.training.divergence import ESTIMATES
from agentrl.training.losses import LOSSES
from agentrl.training.trajectories import Trajectories

PAGE = Path(__file__).resolve().parent / "algorithms.md"
MARK = "<!-- Below this line: python docs/make_algorithms.py -->\n"

ESTIMATORS = {
    "grpo": ("(R - mean) / (std + 1e-6)", "of a group of one: R, an error, or 0, as here"),
    "dr_grpo": ("R - mean", ""),
    "rloo": ("n / (n - 1) (R - mean)", ""),
    "turn_grpo": ("GRPO over all turns of the group, by G", "ours"),
    "state_grpo": ("GRPO over the turns from one state, by G", "ours: GiGPO's second term"),
    "gigpo": ("GRPO of R + GRPO of G at one state", "of exact pixels, which a clock changes"),
    "reinforce_pp": ("white(G)", "two reset G at tokens that were not sampled"),
    "reinforce_pp_baseline": ("white(R - mean)", ""),
    "remax": ("G - R of the greedy policy", ""),
    "gae": ("delta + gamma lambda A', over what was not sampled", ""),
    "turn_gae": ("GAE over turns, then within each", ""),
    "prime": ("RLOO of R + sum of (r - mean of the others' r)", ""),
}  # fmt: skip
LOSSES_TOLD = {
    "ppo": ("max(-A r, -A clip(r)); at most -3 A where A < 0", ""),
    "gspo": (
        "the same with the geometric mean of r over the reply",
        "one s for a whole row",
    ),
    "cispo": ("-sg[clip(r)] A logp", "one clamps above only, and absolutely"),
    "sapo": ("-A (4 / tau) sigmoid(tau (r - 1))", ""),
}
KL_TOLD = {
    "k1": "d",
    "abs": "abs(d)",
    "k2": "d^2 / 2",
    "k3": "exp(-d) + d - 1",
    "k3+": "k3, with the gradient of k2",
}


def case() -> Trajectories:
    """Three siblings of two turns, of two tokens and one; the second turns meet at two states."""
    rewards = torch.tensor([[0, 1, 2], [0, 1, 0], [0, 0, 1]], dtype=torch.float64)
    yes = torch.ones(3, 3, dtype=torch.bool)
    return Trajectories(
        group=torch.zeros(3, dtype=torch.long),
        valid=yes[0],
        turns=yes[:, :2],
        turn_rewards=torch.tensor([[1, 2], [1, 0], [0, 1]], dtype=torch.float64),
        states=torch.tensor([[0, 1], [0, 1], [0, 2]]),
        tokens=yes,
        turn=torch.tensor([[0, 0, 1]] * 3),
        rewards=rewards,
        values=torch.tensor([[1.0, 0.5, 0.5]] * 3, dtype=torch.float64),
        last_values=torch.tensor([0.0, 0.0, 0.5], dtype=torch.float64),
        implicit=torch.tensor([[0.1, 0.2, 0.3], [0.0, 0.0, 0.0], [0.2, 0.1, 0.0]]).double(),
        greedy=torch.full((3,), 1.0, dtype=torch.float64),
    )


def tables() -> str:
    """All three."""
    return "\n" + "\n\n".join([_estimators(), _losses(), _divergences()]) + "\n"


def _table(*rows: tuple[str, ...]) -> str:
    head, *body = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([head, "|---" * len(rows[0]) + "|", *body])


def _estimators() -> str:
    config = AlgorithmConfig(discount=0.5, gae_lambda=0.5, turn_gae_lambda=1.0)
    rows = []
    for name, (formula, others) in ESTIMATORS.items():
        found = credit(case(), dataclasses.replace(config, estimator=name)).advantages
        siblings = (" ".join(f"{v:.3f}" for v in row) for row in found.tolist())
        rows.append((f"`{name}`", formula, *siblings, others))
    head = ("estimator", "formula", "first sibling", "second", "third", "how others differ")
    return _table(head, *rows)


def _losses() -> str:
    ratio, advantage = torch.tensor([0.5, 1.5, 1.5, 4.0]), torch.tensor([1.0, 1.0, -1.0, -1.0])
    rows = []
    for name, (formula, others) in LOSSES_TOLD.items():
        preset = AlgorithmConfig(name={"ppo": "dapo"}.get(name, name))
        loss = LOSSES[name](ratio.log(), torch.zeros(4), advantage, torch.arange(4), preset).loss
        rows.append((f"`{name}`", formula, *(f"{v:.4f}" for v in loss.tolist()), others))
    cases = (f"r = {r:g}, A = {a:g}" for r, a in zip(ratio, advantage, strict=True))
    return _table(("loss", "formula", *cases, "how others differ"), *rows)


def _divergences() -> str:
    rows = []
    for name, formula in KL_TOLD.items():
        found = ESTIMATES[name](torch.tensor([-0.5, 0.5]), torch.zeros(2))
        rows.append((f"`{name}`", formula, *(f"{v:.4f}" for v in found.tolist())))
    return _table(("divergence", "formula", "d = -0.5", "d = 0.5"), *rows)


def page() -> str:
    """The whole page: its words as they are, and the tables anew."""
    words, mark, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    assert mark, f"{PAGE} has no line {MARK!r}"
    return words + MARK + tables()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
