"""Descriptions of the metrics in `metrics.jsonl`, for docs/metrics.md and the viewer's charts."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

SECTIONS = ("Performance", "Learning", "Rewards", "Rollouts", "Time", "Resources", "Warnings")
"""Sections in the order of docs/metrics.md and the viewer."""

_UPDATE = "each step of reinforcement learning"
_TRAINING = "each training step"
_DATA = "each step of training on a data set"
_PAIRS = "each step of preference or reward model training"
_PLAYED = "each step of reinforcement learning and each evaluation"
_EVALUATION = "each evaluation"

_RESERVED = "audit|engine_check|env|learner|replay|resources|rollout|sampling|seconds|watch"
"""Metric prefixes that are not names of players."""
_PARTS = {
    "PLAY": f"(?:env/[^/]+|(?!(?:{_RESERVED})/)[^/]+(?:/(?:env|ring)/[^/]+)?)",
    "ENV": "[^/]+",
}
"""Patterns for placeholders in capitals; all other placeholders match anything."""


@dataclass(slots=True, kw_only=True, frozen=True)
class MetricDescription:
    """Description of a metric, or of several with the same meaning."""

    name: str
    """One or more names, separated by spaces. Words in capitals are placeholders."""
    section: str
    unit: str
    """Unit of the value; may be empty."""
    when: str
    """Steps at which the metric is logged."""
    meaning: str


def describe(metric: str) -> MetricDescription | None:
    """Return a metric's description; None if unknown, such as a metric of a user's sampler."""
    return next((one for one in METRICS if _pattern(one.name).fullmatch(metric)), None)


@cache
def _pattern(name: str) -> re.Pattern[str]:
    one_of = name.replace(" ", "|")
    return re.compile(re.sub("[A-Z]+", lambda word: _PARTS.get(word[0], ".+"), one_of))


def _metrics(section: str, when: str, *rows: tuple[str, str, str]) -> Iterator[MetricDescription]:
    for name, unit, meaning in rows:
        yield MetricDescription(name=name, section=section, unit=unit, when=when, meaning=meaning)


METRICS: tuple[MetricDescription, ...] = (
    *_metrics(
        "Learning", _TRAINING,
        ("learner/loss", "", "mean loss over the optimizer steps"),
        ("learner/grad_norm", "", "mean gradient norm before clipping, over the optimizer steps"),
        ("learner/lr", "", "mean learning rate over the optimizer steps"),
        ("learner/optimizer_steps", "count", "optimizer steps taken"),
        ("learner/skipped", "count", "optimizer steps, of any model, skipped because the loss or gradient was not finite"),
        ("learner/tokens", "count", "tokens that the loss covers"),
        ("learner/entropy", "nats per token", "mean entropy of the policy over these tokens"),
    ),
    *_metrics(
        "Learning", _UPDATE,
        ("learner/clip_share", "fraction", "tokens whose loss was clipped"),
        ("learner/approx_kl", "nats per token", "KL divergence from the engine's policy to the learner's during the update (k3)"),
        ("learner/mismatch_k1", "nats per token", "KL divergence from the engine's policy to the learner's before the update (k1); far from 0 if weights or prompts differ"),
        ("learner/mismatch_k3", "nats per token", "the same divergence, estimated with k3, which is never negative"),
        ("learner/mismatch_max", "nats", "largest difference between engine and learner in a token's log-probability"),
        ("learner/mismatch_tokens", "count", "tokens compared to measure the mismatch"),
        ("learner/kl", "nats per token", "KL divergence to the reference model (`algorithm.kl`)"),
        ("learner/kl_coefficient", "", "weight of the KL penalty"),
        ("learner/entropy_coefficient", "", "weight of the entropy bonus"),
        ("learner/correction", "", "mean importance weight (`algorithm.importance_correction`)"),
        ("learner/value_loss", "", "loss of the critic"),
        ("learner/value_grad_norm", "", "norm of the critic's gradient before clipping"),
        ("learner/value_error", "", "mean squared error of the critic's values"),
        ("learner/implicit_loss", "nats", "binary cross-entropy between the outcomes and the implicit reward's predictions (`prime`)"),
        ("learner/implicit_grad_norm", "", "norm of the implicit reward model's gradient"),
        ("learner/teacher_kl", "nats per token", "KL divergence from the policy to the teacher before the update (k1), on the policy's own tokens (`opd`)"),
        ("learner/zero_advantage_groups", "fraction", "groups in which all advantages are 0"),
        ("learner/nonzero_advantage_fraction", "fraction", "training samples with a nonzero advantage"),
        ("learner/stale", "fraction", "tokens excluded because they are older than `algorithm.max_staleness`"),
        ("learner/lag", "updates", "mean number of updates between the policy that sampled a token and the current policy"),
        ("learner/version", "count", "updates of the weights so far"),
        ("learner/tokens_computed", "count", "sampled tokens for which the model is computed in each epoch; samples with zero advantage may be skipped"),
    ),
    *_metrics(
        "Learning", _DATA,
        ("epoch", "", "passes over the data set so far"),
        ("learner/token_accuracy", "fraction", "target tokens that are the model's most probable token (fine-tuning)"),
    ),
    *_metrics(
        "Learning", _PAIRS,
        ("learner/accuracy", "fraction", "pairs in which the better answer has the higher reward, or labeled replies whose reward has the correct sign"),
        ("learner/margin", "", "mean reward of the better answer minus that of the worse answer"),
        ("learner/reward_chosen", "", "mean reward of the better answers; in preference training, the implicit reward"),
        ("learner/reward_rejected", "", "mean reward of the worse answers"),
        ("learner/logprob_chosen", "nats", "mean log-probability of the better answers"),
        ("learner/logprob_rejected", "nats", "mean log-probability of the worse answers"),
    ),
    *_metrics(
        "Learning", "each evaluation on a data set",
        ("sampled/loss", "", "loss on the held-out examples"),
        ("sampled/token_accuracy", "fraction", "target tokens of the held-out examples that are the model's most probable token"),
        ("sampled/count", "count", "tokens, pairs or replies that these means average over"),
        ("sampled/margin sampled/reward_chosen sampled/reward_rejected sampled/logprob_chosen sampled/logprob_rejected", "", "same as `learner/...`, on held-out pairs"),
    ),
    *_metrics(
        "Learning", "the start of the engines, and again after a resume (`rollout.engine_check`)",
        ("engine_check/logprob_mean", "nats", "mean difference of a sampled token's log-probability between engine and transformers"),
        ("engine_check/logprob_max", "nats", "largest difference of a sampled token's log-probability"),
        ("engine_check/tap_distance", "share of the screen", "median distance of the greedy taps. Logged only if replies tap"),
        ("engine_check/tokens", "count", "sampled tokens that were compared"),
    ),
    *_metrics(
        "Learning", "each step of the warm start",
        ("loss grad_norm lr token_accuracy entropy tokens skipped optimizer_steps seconds", "", "same as `learner/...`, for training on demonstrations"),
    ),
    *_metrics(
        "Rollouts", _UPDATE,
        ("rollout/void", "count", "void episodes, which failed because of the infrastructure"),
        ("rollout/void/CAUSE", "count", "void episodes with this cause"),
        ("rollout/void_share", "fraction", "episodes that are void"),
        ("rollout/void_share/CAUSE", "fraction", "episodes that are void with this cause"),
        ("rollout/missing", "count", "void episodes that were not replaced"),
        ("rollout/context_full", "fraction", "episodes truncated by `rollout.max_context`"),
        ("rollout/dropped_groups", "count", "groups without a learning signal that were replaced by new groups (dynamic sampling)"),
        ("rollout/left_out_groups", "count", "groups left out because their returns vary less than those of others (`algorithm.sampling.keep_varied`)"),
        ("rollout/horizon", "turns", "maximum length of the step's episodes, over all environments with `env.horizon`"),
        ("rollout/start_turns", "turns", "most turns that `env.start.player` makes at the start of the step's episodes, over all environments with `env.start`"),
        ("rollout/state_match_fraction", "fraction", "turns that share their state with another turn of the group; only with state keys (`env.state_key`)"),
        ("rollout/tokens_per_turn", "tokens", "mean reply length"),
        ("rollout/actions_per_turn", "actions", "mean number of executed actions; only with `env.max_actions_per_reply` above 1"),
        ("rollout/repetition", "fraction", "4-grams that occur earlier in the same reply"),
        ("rollout/workers", "count", "rollout workers available"),
        ("rollout/replaced_workers", "count", "rollout workers replaced so far"),
        ("env/ENV/groups", "count", "groups played in this environment of a mixture"),
    ),
    *_metrics(
        "Rollouts", "each step, by `sampling.name`",
        ("sampling/tasks_seen", "count", "tasks with a known success rate (`solve_rate`)"),
        ("sampling/solve_rate", "fraction", "mean success rate of these tasks"),
        ("sampling/effective_tasks", "count", "effective number of tasks in the sampling distribution: the number of equally likely tasks that would be as diverse"),
        ("replay/episodes", "count", "earlier successful episodes added to groups (`success_replay`)"),
        ("replay/age", "steps", "mean age of the successful episodes added to groups"),
        ("replay/size", "count", "episodes in the replay buffer"),
        ("replay/mb", "MB", "size of the replay buffer"),
    ),
    *_metrics(
        "Time", _UPDATE,
        ("rollout/turns_per_s rollout/tokens_per_s rollout/episodes_per_s", "1/s", "turns, sampled tokens and episodes per second during a step's rollouts"),
        ("seconds/rollout", "s", "time from the step's first request to the end of its last episode"),
        ("seconds/wait", "s", "time that training waited for the episodes; less than `seconds/rollout` if they were played in advance"),
        ("seconds/update", "s", "time to compute advantages and take the optimizer steps"),
        ("seconds/publish", "s", "time to transfer the weights to the engines"),
    ),
    *_metrics("Time", _TRAINING, ("learner/seconds", "s", "duration of the learner's update")),
    *_metrics(
        "Resources", _TRAINING,
        ("resources/cpu", "fraction", "mean utilization of all cores of the machine since the last step"),
        ("resources/memory_gb", "GiB", "memory used on the machine, or in its container if the container has a limit"),
        ("resources/gpu", "fraction", "current utilization of the machine's GPUs"),
        ("resources/gpu_memory_gb", "GiB", "memory used on all GPUs of the machine"),
        ("learner/peak_memory_gb", "GB", "peak GPU memory during the update"),
    ),
    *_metrics(
        "Rewards", f"{_UPDATE}, with `reward_audit`",
        ("audit/episodes", "count", "audited episodes in the window"),
        ("audit/agreement", "fraction", "episodes for which the reward agrees with the truth"),
        ("audit/false_accept", "fraction", "failed episodes that the reward accepts"),
        ("audit/false_reject", "fraction", "successful episodes that the reward rejects"),
        ("audit/agreement_low audit/false_accept_low audit/false_reject_low", "fraction", "lower end of the 95% interval"),
        ("audit/agreement_high audit/false_accept_high audit/false_reject_high", "fraction", "upper end of the 95% interval"),
    ),
    *_metrics(
        "Warnings", f"{_TRAINING}: 1 while the condition holds",
        ("watch/collapse", "", "the entropy has fallen to less than a tenth of its initial value, but the reward has not risen"),
        ("watch/repetition", "", "at least half of the replies' 4-grams occur earlier in the same reply, and this fraction has at least doubled"),
        ("watch/hacking", "", "the training reward has risen since the best evaluation, but the held-out reward fell in the last two evaluations"),
        ("watch/length", "", "replies are at least twice as long, or at most half as long, as at the start"),
        ("watch/format", "", "at least 90% of the rise in reward comes from format rewards, and success has not risen"),
        ("watch/mismatch", "", "the KL divergence between engine and learner has grown at least tenfold, to at least 0.001 nats per token"),
        ("watch/context_full", "", "more than 10% of the episodes of the last five steps were truncated by `rollout.max_context`"),
        ("watch/truncated_replies", "", "more than 5% of the replies of the last five steps were cut off at `rollout.max_new_tokens`"),
        ("watch/stuck", "", "more than 30% of the episodes of the last five steps failed after repeating an action without effect"),
        ("watch/false_completion", "", "in more than half of the episodes of the last five steps in which the agent says that the task is done, it is not"),
        ("watch/side_effects", "", "more than 0.1 side effects per episode in the last five steps"),
        ("watch/lone_states", "", "the algorithm compares turns at equal states, but fewer than 30% of the turns of the last five steps share their state with another turn"),
        ("watch/zero_advantage_groups", "", "in more than 90% of the groups of the last five steps, all advantages are 0"),
    ),
    *_metrics(
        "Performance", _PLAYED,
        ("PLAY/reward", "", "mean reward per episode (the weighted sum of all reward functions)"),
        ("PLAY/unscored", "fraction", "episodes whose reward function failed; they are excluded from all means. Logged only if there are any"),
        ("PLAY/success", "fraction", "successful episodes, in environments that report success"),
        ("PLAY/accuracy", "fraction", "correct rounds or answers, in environments that report accuracy"),
    ),
    *_metrics(
        "Rewards", f"{_PLAYED}, with several reward functions",
        ("PLAY/reward/NAME", "", "mean unweighted reward of this reward function"),
    ),
    *_metrics(
        "Rollouts", _PLAYED,
        ("PLAY/turns", "turns", "mean number of turns per episode"),
        ("PLAY/unreadable", "fraction", "turns whose reply contains no valid action"),
        ("PLAY/truncated_replies", "fraction", "replies cut off at `rollout.max_new_tokens`"),
        ("PLAY/stuck", "fraction", "episodes without success that repeat an action at least three times in a row on a screen that does not change"),
        ("PLAY/false_completion", "fraction", "episodes in which the agent says that the task is done, but the environment reports no success; of those in which it says so"),
        ("PLAY/side_effects", "count", 'mean number of side effects per episode, in environments that report them (`info["side_effects"]`)'),
    ),
    *_metrics(
        "Rollouts", _EVALUATION,
        ("PLAY/episodes", "count", "episodes that the means average over"),
        ("PLAY/void", "count", "void episodes that were not replaced"),
        ("PLAY/void/CAUSE", "count", "void episodes with this cause, replaced or not"),
        ("PLAY/context_full", "count", "episodes truncated by `rollout.max_context`"),
    ),
    *_metrics("Time", _EVALUATION, ("PLAY/seconds", "s", "duration of the evaluation")),
    *_metrics(
        "Performance", _PLAYED,
        ("PLAY/METRIC", "", 'mean over episodes of a metric that the environment reports in `info["metrics"]` of the last turn'),
    ),
)  # fmt: skip
"""Descriptions of all metrics; the first match applies. PLAY is `train` for the episodes of
training steps, `sampled` and `greedy` for evaluations of the model, the name of a scripted player
for its evaluation, `env/ENV` or `sampled/env/ENV` for one environment of a mixture, and
`sampled/ring/levels` or `sampled/ring/rules` for a ring of the evaluation (`eval.rings`)."""
