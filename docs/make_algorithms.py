"""Write the tables of docs/algorithms.md: worked examples of each part, and its tests.

Run: python docs/make_algorithms.py
"""

import dataclasses
from pathlib import Path

import torch
from torch import Tensor

from agentrl.algorithms.core.advantages import compute_advantages
from agentrl.algorithms.core.algorithm import Algorithm, load_algorithm
from agentrl.algorithms.core.importance_weights import importance_weights
from agentrl.algorithms.core.kl import ESTIMATES, MAX_K3
from agentrl.algorithms.core.loss_aggregation import token_weights
from agentrl.algorithms.core.policy_loss import LossInputs, PolicyLoss, load_loss
from agentrl.algorithms.core.trajectories import Trajectories
from agentrl.config import (
    ImportanceConfig,
    LossConfig,
    algorithm_config,
    algorithm_defaults,
)
from agentrl.extension_points import ALGORITHM, LOSS

PAGE = Path(__file__).resolve().parent / "algorithms.md"
MARK = "<!-- Below this line: python docs/make_algorithms.py -->\n"
CORRECTED_ELSEWHERE = {
    "token_truncate": "same as TRL and verl; TRL's default bound is 3",
    "token_mask": "same as TRL",
    "sequence_truncate": "TRL and verl: one W per row, even if it has several turns",
    "sequence_mask": "TRL and verl: one W per row, even if it has several turns",
}
DIVERGENCES_ELSEWHERE = {
    "k1": "verl does not bound d",
    "abs": "verl does not bound d",
    "k2": "verl does not bound d",
    "k3": "same as verl; TRL has no bound, and by default multiplies it by r",
    "k3+": "verl does not bound the d of the gradient",
}
AGGREGATES = {
    "token_mean": "sum l / n",
    "sequence_mean": "mean over episodes of (sum l / n_e)",
    "sequence_sum": "mean over episodes of sum l",
    "constant": "mean over episodes of (sum l / `aggregate_constant`)",
    "token_sum": "sum l",
}
AGGREGATED_ELSEWHERE = {
    "token_mean": "TRL: the same in `dapo`, per micro-batch in `bnpo`; verl: over each minibatch",
    "sequence_mean": "TRL's `grpo` and verl: a sequence is a row",
    "sequence_sum": "TRL's `luspo` and verl: a sequence is a row",
    "constant": "TRL's `dr_grpo` and verl: a sequence is a row; TRL's constant is the reply limit",
    "token_sum": "verl has it as `token-sum`, TRL does not",
}
CORRECTIONS = {
    "none": "1",
    "token_truncate": "min(w, high)",
    "token_mask": "w if within [low, high], else 0",
    "sequence_truncate": "min(W, high), where W is the product of w over the reply",
    "sequence_mask": "W if within [low, high], else 0",
}
KL_FORMULAS = {
    "k1": "d",
    "abs": "abs(d)",
    "k2": "d^2 / 2",
    "k3": f"exp(-d) + d - 1, at most {MAX_K3:g}",
    "k3+": "k3, with the gradient of k2",
}


def _comparing(*what: str) -> str:
    """The algorithms that compare one of these."""
    names = [one.name for one in ALGORITHM.extensions()]
    return ", ".join(f"`{n}`" for n in names if ALGORITHM.resolve(n).compares in what)


EPISODES, TURNS = _comparing("episodes"), _comparing("turns", "states")
TESTS = [
    ("1", "every algorithm",
     "algorithms/test_advantages.py::"
     "test_every_algorithm_satisfies_the_invariants"),
    ("1", "every loss, every aggregation",
     "training/learner/test_micro_batches.py::"
     "test_one_sample_per_turn_has_the_loss_of_the_whole_conversation"),
    ("2", "every loss, aggregation, correction and KL estimator",
     "training/learner/test_micro_batches.py::"
     "test_splitting_a_batch_changes_neither_loss_nor_gradient"),
    ("2", "every algorithm, and so every loss",
     "training/trainer/test_training_samples.py::"
     "test_micro_batches_and_shared_prefixes_do_not_change_the_update"),
    ("2", "algorithms `grpo`, `gspo`, `cispo`, `sapo`; `grpo` with LoRA",
     "training/learner/test_ranks.py::test_two_ranks_learn_what_one_does"),
    ("2",
     "algorithms `dapo`, `ppo`, `turn_ppo`, `prime`, `opd`; `grpo` with QLoRA, in bfloat16 (slow)",
     "training/learner/test_ranks.py::test_two_ranks_learn_what_one_does_with_every_other_loss"),
    ("2", "algorithms `grpo`, `dapo`, `ppo`, `gspo`, `prime`",
     "training/learner/test_sequence_parallel.py::"
     "test_sequence_parallel_ranks_learn_what_one_does"),
    ("1, 2", "every aggregation, in minibatches of whole conversations or of turns",
     "training/learner/test_minibatches.py::"
     "test_a_token_weighs_the_same_in_every_layout_and_minibatch"),
    ("3", "every algorithm",
     "algorithms/test_advantages.py::test_every_algorithm_satisfies_the_invariants"),
    ("3", "every loss: it receives only sampled tokens",
     "training/batching/test_collate.py::test_turns_that_extend_each_other_become_one_sample"),
    ("4", EPISODES,
     "algorithms/test_advantages.py::test_shifting_all_rewards_of_a_group_changes_no_advantage"),
    ("4", f"{TURNS}, discount 1",
     "algorithms/test_advantages.py::"
     "test_shifting_all_rewards_of_a_group_changes_no_turn_without_a_discount"),
    ("4", "`state_grpo`, `gigpo`, discount below 1",
     "algorithms/test_advantages.py::"
     "test_shifting_all_rewards_of_a_group_changes_no_turn_as_far_from_the_end"),
    ("4", f"{TURNS}, discount 0",
     "algorithms/test_advantages.py::test_shifting_the_reward_of_every_turn_changes_no_advantage"),
    ("4", f"{TURNS}: when it does not hold",
     "algorithms/test_advantages.py::"
     "test_a_shift_that_is_discounted_differently_changes_advantages"),
    ("5", "every algorithm",
     "algorithms/test_advantages.py::test_every_algorithm_satisfies_the_invariants"),
    ("5", "every loss",
     "algorithms/test_losses.py::test_losses_do_not_depend_on_the_order_of_tokens"),
    ("6", "a whole run on virtual phones",
     "training/trainer/test_phone_run.py::test_what_was_sampled_is_what_is_trained"),
    ("6", "every batch",
     "training/batching/test_collate.py::"
     "test_a_batch_is_padded_on_the_right_and_holds_every_image_once"),
    ("void episodes", "every algorithm",
     "algorithms/test_advantages.py::test_every_algorithm_satisfies_the_invariants"),
    ("no siblings", "every algorithm",
     "algorithms/test_advantages.py::test_advantages_of_a_single_episode_in_a_group"),
    ("by hand", "`dapo`, `gspo`, `cispo`, `sapo`: the advantages of `grpo`",
     "algorithms/test_worked_examples.py::"
     "test_algorithms_that_change_the_loss_have_the_advantages_of_grpo"),
    ("by hand", "`grpo`",
     "algorithms/test_worked_examples.py::test_grpo_normalizes_among_siblings"),
    ("by hand", "`dr_grpo`, `rloo`",
     "algorithms/test_worked_examples.py::test_dr_grpo_does_not_divide_and_rloo_leaves_one_out"),
    ("by hand", "`gdpo`",
     "algorithms/test_worked_examples.py::"
     "test_gdpo_normalizes_each_function_before_they_are_added"),
    ("by hand", "`turn_grpo`",
     "algorithms/test_worked_examples.py::test_turn_grpo_compares_every_turn_of_a_group"),
    ("by hand", "`state_grpo`",
     "algorithms/test_advantages.py::"
     "test_state_grpo_falls_back_to_episodes_unless_every_turn_has_a_state_key"),
    ("by hand", "`gigpo`",
     "algorithms/test_worked_examples.py::test_gigpo_adds_episode_and_state_advantages"),
    ("by hand", "`reinforce_pp`",
     "algorithms/test_worked_examples.py::test_reinforce_pp_includes_rewards_of_later_turns"),
    ("by hand", "`reinforce_pp_baseline`",
     "algorithms/test_worked_examples.py::test_reinforce_pp_baseline_is_whitened_over_the_batch"),
    ("by hand", "`remax`",
     "algorithms/test_worked_examples.py::test_remax_subtracts_the_greedy_return_from_every_token"),
    ("by hand", "`ppo`",
     "algorithms/test_worked_examples.py::"
     "test_gae_carries_value_and_advantage_across_tokens_that_were_not_sampled"),
    ("by hand", "`turn_ppo`",
     "algorithms/test_worked_examples.py::test_turn_gae_of_a_worked_example"),
    ("by hand", "`prime`",
     "algorithms/test_worked_examples.py::test_prime_leaves_one_out_for_outcome_and_process"),
    ("by hand", "loss `ppo`", "algorithms/test_losses.py::test_ppo_of_worked_examples"),
    ("by hand", "loss `gspo`", "algorithms/test_losses.py::test_gspo_has_one_ratio_per_reply"),
    ("by hand", "loss `cispo`",
     "algorithms/test_losses.py::test_cispo_clips_the_ratio_and_keeps_the_gradient"),
    ("by hand", "loss `sapo`", "algorithms/test_losses.py::test_sapo_of_worked_examples"),
    ("by hand", "every aggregation",
     "algorithms/test_losses.py::test_aggregation_of_worked_examples"),
    ("by hand", "every correction",
     "algorithms/test_losses.py::test_corrections_of_worked_examples"),
    ("by hand", "every KL estimator",
     "algorithms/test_losses.py::test_divergences_of_a_worked_example"),
    ("by hand", "`opd`",
     "algorithms/test_worked_examples.py::"
     "test_opd_adds_the_teachers_log_ratio_of_each_token_to_grpo"),
    ("exact", "`opd`",
     "algorithms/test_advantages.py::"
     "test_opd_has_the_gradient_of_the_reverse_kl_to_the_teacher"),
    ("exact", "every KL estimator, in the reward",
     "algorithms/test_advantages.py::test_only_k1_in_the_reward_has_the_gradient_of_the_kl"),
    ("by hand", "`pf_ppo`: its advantages",
     "algorithms/test_worked_examples.py::test_gae_bootstraps_truncated_episodes"),
    ("by hand", "`pf_ppo`: resampling",
     "training/trainer/test_training_samples.py::"
     "test_episodes_are_resampled_by_the_size_of_their_return"),
]  # fmt: skip
"""Invariant, or what else is tested; what it covers; test."""

SETTINGS = {
    "discount": 0.5, "token_discount": 1.0, "gae_lambda": 0.5, "turn_gae_lambda": 1.0,
    "episode_weight": 1.0, "state_weight": 1.0, "reward_weight": 1.0,
}  # fmt: skip
"""Of the worked example, as far as an algorithm has them."""


def worked(name: str) -> Algorithm:
    """An algorithm with these settings."""
    config = algorithm_defaults(name)
    for key, value in SETTINGS.items():
        if hasattr(config, key):
            setattr(config, key, value)
    config.whiten = False
    return load_algorithm(config)


def case() -> Trajectories:
    """Three siblings of two turns, with two tokens and one; two share their second state."""
    rewards = torch.tensor([[0, 1, 2], [0, 1, 0], [0, 0, 1]], dtype=torch.float64)
    yes = torch.ones(3, 3, dtype=torch.bool)
    return Trajectories(
        group=torch.zeros(3, dtype=torch.long),
        valid=yes[0],
        turn_mask=yes[:, :2],
        turn_rewards=torch.tensor([[1, 2], [1, 0], [0, 1]], dtype=torch.float64),
        states=torch.tensor([[0, 1], [0, 1], [0, 2]]),
        token_mask=yes,
        turn_index=torch.tensor([[0, 0, 1]] * 3),
        rewards=rewards,
        values=torch.tensor([[1.0, 0.5, 0.5]] * 3, dtype=torch.float64),
        last_values=torch.tensor([0.0, 0.0, 0.5], dtype=torch.float64),
        implicit=torch.tensor([[0.1, 0.2, 0.3], [0.0, 0.0, 0.0], [0.2, 0.1, 0.0]]).double(),
        teacher=torch.tensor([[0.5, 0.0, -1.0], [0.0, 0.5, 0.5], [1.0, -0.5, 0.0]]).double(),
        greedy=torch.full((3,), 1.0, dtype=torch.float64),
        function_rewards=torch.tensor([[1, 2], [1, 0], [0, 1]], dtype=torch.float64),
        function_weights=torch.ones(3, 2, dtype=torch.float64),
    )


def tables() -> str:
    """All tables, with what a reader needs to recompute each row."""
    parts = [
        _given(), _algorithms(), _losses(), _aggregates(), _corrections(), _divergences(),
        _resampling(), _tests(),
    ]  # fmt: skip
    return "\n" + "\n\n".join(parts) + "\n"


def _table(*rows: tuple[str, ...]) -> str:
    head, *body = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([head, "|---" * len(rows[0]) + "|", *body])


def _numbers(values: Tensor, form: str) -> str:
    return " ".join(format(value, form) for value in values.tolist())


def _settings(values: dict[str, float | None]) -> str:
    shown = {n: "null" if value is None else f"{value:g}" for n, value in values.items()}
    return ", ".join(f"`{name}` {value}" for name, value in shown.items())


def _given() -> str:
    given = case()
    states = [" ".join("abc"[state] for state in row) for row in given.states.tolist()]
    rows = [
        ("reward of each turn", *(_numbers(row, "g") for row in given.turn_rewards)),
        ("R: their sum", *(f"{value:g}" for value in given.returns.tolist())),
        (
            "R_f: R of two functions, `weight` 1",
            *(_numbers(row, "g") for row in given.function_rewards),
        ),
        ("state at the start of each turn", *states),
        ("V: the critic's value before each token", *(_numbers(row, "g") for row in given.values)),
        ("V after the last token", *(f"{value:g}" for value in given.last_values.tolist())),
        ("r: the implicit reward of each token", *(_numbers(row, "g") for row in given.implicit)),
        (
            "t: log pi_teacher - log pi of each token",
            *(_numbers(row, "g") for row in given.teacher),
        ),
        ("R of the greedy policy", *(f"{value:g}" for value in given.greedy.tolist())),
    ]
    words = (
        f"Settings: {_settings(dict(SETTINGS))}. A turn's reward is assigned to its last token. "
        "std has ddof 1, and white(x) is (x - mean) / (std + 1e-6) over all tokens. n is the "
        "number of siblings. gamma is `discount` at the end of a turn and `token_discount` within "
        "it; lambda is `gae_lambda`, or `turn_gae_lambda` in `turn_ppo`'s pass over turns; delta "
        "is reward + gamma V' - V, where V' and A' belong to the next sampled token or turn. "
        "`whiten` is off. The last column is based on the sources of TRL 1.16.0, verl 0.9.1, "
        "SkyRL, EasyR1, VAGEN, PRIME's recipe and forks of verl-agent, as of November 2026."
    )
    return _table(("input", "first sibling", "second", "third"), *rows) + "\n\n" + words


def _algorithms() -> str:
    rows = []
    for extension in ALGORITHM.extensions():
        algorithm = worked(extension.name)
        found = compute_advantages(case(), algorithm).advantages
        siblings = (_numbers(row, ".3f") for row in found)
        about, differs = f"{algorithm.about} ({algorithm.source})", algorithm.differs
        if not vars(type(algorithm)).get("formula"):  # it has another loss, sampling, or both
            differs = f"see the loss `{algorithm.config.loss.name}`"
        formula = algorithm.formula
        rows.append((f"`{extension.name}`", about, formula, *siblings, differs))
    head = ("algorithm", "what it does", "advantage", "first sibling", "second", "third",
            "how others differ")  # fmt: skip
    return _table(head, *rows)


def _losses() -> str:
    ratios = torch.tensor([[0.5, 1.5], [1.2, 1.5], [0.5, 4.0]], dtype=torch.float64)
    advantages = torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64)
    old = torch.full((6,), -2.0, dtype=torch.float64)
    rows = []
    for extension in LOSS.extensions():
        loss = load_loss(_loss_settings(extension.name))
        logprobs = (ratios.log().flatten() + old).requires_grad_()
        inputs = LossInputs(
            logprobs=logprobs,
            old_logprobs=old,
            advantages=advantages.repeat_interleave(2),
            turn=torch.arange(3).repeat_interleave(2),
        )
        result = loss(inputs).loss
        (slope,) = torch.autograd.grad(result.sum(), logprobs)
        values, slopes = (
            [_numbers(row, ".4f").replace("-0.0000", "0.0000") for row in found.view(3, 2)]
            for found in (result.detach(), slope)
        )
        used = _settings({k: v for k, v in vars_of(loss).items() if k != "name"})
        about = f"{loss.about} ({loss.source})"
        rows.append((f"`{extension.name}`", about, loss.formula, used, *values, loss.differs))
        rows.append(("its gradient", "", "with respect to logp", "", *slopes, ""))
    cases = (f"r = {_numbers(r, 'g')}, A = {a:g}" for r, a in zip(ratios, advantages, strict=True))
    words = (
        "Three replies of two tokens each, sampled with logp_old = -2, so logp = -2 + log r. "
        "The settings are the losses' defaults (for `ppo`, those of `dapo`). clip(r) limits r to "
        "[1 - `clip_low`, 1 + `clip_high`], c is `clip_dual`, sg is stop-gradient, and tau is "
        "`tau_positive` if A > 0, else `tau_negative`. The numbers are the losses of the two "
        "tokens."
    )
    head = ("loss", "what it does", "formula", "settings", *cases, "how others differ")
    return words + "\n\n" + _table(head, *rows)


def _loss_settings(name: str) -> LossConfig:
    return algorithm_defaults("dapo", name).loss


def vars_of(loss: PolicyLoss) -> dict[str, float | None]:
    """The settings of a loss, by name."""
    return dataclasses.asdict(loss.config)


def _aggregates() -> str:
    losses = [torch.tensor([1.0, 2.0, 3.0]), torch.tensor([5.0])]
    constant = 8.0
    rows = []
    for name, formula in AGGREGATES.items():
        weights = token_weights([len(own) for own in losses], [0, 1], name, constant)
        loss = sum(w * own.sum().item() for w, own in zip(weights, losses, strict=True))
        shown = (*(f"{w:.4f}" for w in weights), f"{loss:.4f}")
        rows.append((f"`{name}`", formula, *shown, AGGREGATED_ELSEWHERE[name]))
    words = (
        f"Two episodes whose tokens have the losses l = {_numbers(losses[0], 'g')} and "
        f"{_numbers(losses[1], 'g')}. n is the number of tokens of the whole step, n_e that of an "
        f"episode; `aggregate_constant` is {constant:g}."
    )
    head = ("aggregation", "formula", "weight per token, first", "second", "loss",
            "how others differ")  # fmt: skip
    return words + "\n\n" + _table(head, *rows)


def _corrections() -> str:
    ratios = torch.tensor([[0.4, 1.5], [3.0, 1.2]], dtype=torch.float64)
    turn = torch.arange(2).repeat_interleave(2)
    old = ratios.log().flatten()
    rows = []
    for name, formula in CORRECTIONS.items():
        config = ImportanceConfig(kind=name)
        found = importance_weights(old, torch.zeros_like(old), turn, config).view(2, 2)
        others = CORRECTED_ELSEWHERE.get(name, "")
        rows.append((f"`{name}`", formula, *(_numbers(row, ".3f") for row in found), others))
    words = (
        "Factors of the token losses of two replies, where w = pi_old / pi_rollout, low is "
        f"`importance_correction.low` ({config.low:g}) and high is `importance_correction.high` "
        f"({config.high:g})."
    )
    cases = (f"w = {_numbers(row, 'g')}" for row in ratios)
    return words + "\n\n" + _table(("correction", "formula", *cases, "how others differ"), *rows)


def _divergences() -> str:
    rows = []
    for name, formula in KL_FORMULAS.items():
        logprobs = torch.tensor([-0.5, 0.5], dtype=torch.float64, requires_grad=True)
        found = ESTIMATES[name](logprobs, torch.zeros(2).double())
        (slope,) = torch.autograd.grad(found.sum(), logprobs)
        values = (f"{v:.4f}" for pair in zip(found, slope, strict=True) for v in pair)
        rows.append((f"`{name}`", formula, *values, DIVERGENCES_ELSEWHERE[name]))
    head = ("KL estimator", "formula", "d = -0.5", "its gradient", "d = 0.5", "its gradient",
            "how others differ")  # fmt: skip
    return (
        "d = logp - logp_ref, within [-20, 20], beyond which "
        "there is no gradient; gradients are with respect to logp. `kl.add_to: reward` takes `k1` "
        "and refuses the others: a reward is a constant in the policy gradient, which is that of "
        "the KL only if the reward is d. `k2`, `k3` and `k3+` are of order d^2, nearly the same "
        "for tokens that the policy prefers and for those that the reference prefers, and have "
        "almost no policy gradient near the reference. In the loss, where the default is `k3`, "
        "`k1` has none on average.\n\n" + _table(head, *rows)
    )


def _resampling() -> str:
    returns, times = [3.0, -1.0, 0.0], 10_000
    rows = []
    for power in (1.0, 2.0):
        algorithm = load_algorithm(algorithm_config("pf_ppo", resample_power=power))
        drawn = algorithm.resample(returns * times, [True] * len(returns) * times, 0)
        assert drawn is not None
        counts = torch.bincount(torch.tensor(drawn) % len(returns), minlength=len(returns))
        shares = (counts / len(drawn)).tolist()
        rows.append((f"{power:g}", *(f"{share:.2f}" for share in shares)))
    words = (
        "`pf_ppo` draws as many of a step's valid episodes, with replacement, in proportion to "
        f"abs(R)^`resample_power`. The numbers are the shares of {len(returns) * times:,} draws "
        f"from {times:,} copies of these three episodes."
    )
    cases = (f"R = {value:g}" for value in returns)
    return words + "\n\n" + _table(("power", *cases), *rows)


def _tests() -> str:
    rows = ((invariant, covers, f"`{test}`") for invariant, covers, test in TESTS)
    words = (
        "The tests of each invariant, below `tests/`; `by hand` marks examples computed by hand, "
        "`exact` sums over all replies of a small policy."
    )
    return words + "\n\n" + _table(("invariant", "covers", "test"), *rows)


def page() -> str:
    """The whole page: the text unchanged, the tables regenerated."""
    words, mark, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    assert mark, f"{PAGE} has no line {MARK!r}"
    return words + MARK + tables()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
