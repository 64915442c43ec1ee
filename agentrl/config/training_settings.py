"""Settings of the learner, its optimizer and its warm start."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Ge, Le

from agentrl.config.bounds import (
    BatchSize,
    EpisodeCount,
    Fraction,
    LearningRate,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ProcessCount,
    Seconds,
    StepCount,
    TokenCount,
    check_betas,
)
from agentrl.errors import ConfigError
from agentrl.files import path_of

_LARGEST_BETA = 0.995
"""Above this, the decay of a bfloat16 moment in one step can be less than half its last bit, so
rounding undoes it."""


@dataclass(slots=True, kw_only=True)
class RecordedFilterConfig:
    """Filters for the recorded episodes to train on, as in `agentrl export`."""

    split: str | None = None
    """Filter: `train`, `eval` or `demo`."""
    label: str | None = None
    """Filter: only episodes with this label, such as `human`, `expert` or `after-sampled`."""
    outcome: str | None = None
    """Filter: `terminated` or `truncated`."""
    step: int | None = None
    """Filter: only episodes of this training step."""
    seed: int | None = None
    """Filter: only episodes of this seed."""
    group: str | None = None
    """Filter: only episodes of the group with this id."""
    device: str | None = None
    """Filter: only episodes played on this phone, by its short name."""
    id: str | None = None
    """Filter: only the episode with this id."""
    success: bool | None = None
    """Filter: only successful episodes (true), or only unsuccessful episodes (false)."""
    min_reward: float | None = None
    """Filter: only episodes with at least this reward."""
    max_reward: float | None = None
    """Filter: only episodes with at most this reward."""


@dataclass(slots=True, kw_only=True)
class WarmStartConfig:
    """Behavior cloning of a scripted player or of recorded episodes, before the training steps."""

    player: str | None = "mediocre"
    """A scripted player of the environment, or of all environments in `mixture`; None trains only
    on `recorded` episodes."""
    recorded: list[str] = field(default_factory=list)
    """Run folders of `agentrl play`, `eval` or `train` whose recorded episodes to train on, in
    addition to the player's."""
    recorded_filter: RecordedFilterConfig = field(default_factory=RecordedFilterConfig)
    """Filters for the recorded episodes."""
    episodes: EpisodeCount = 300
    """Episodes that the player demonstrates, on seeds reserved for demonstrations."""
    steps: StepCount = 1200
    """Number of optimizer steps."""
    batch: BatchSize = 32
    """Turns per optimizer step; a whole conversation counts as all of its turns."""
    lr: LearningRate = 1e-3
    """Peak learning rate."""
    weight_decay: Annotated[float, Ge(0), Le(100)] = 0.0
    """AdamW's weight decay, on weights of two and more dimensions: not on norms and biases."""
    betas: list[float] = field(default_factory=lambda: [0.9, 0.95])
    """AdamW's decay rates of the two moments."""
    lr_warmup_steps: NonNegativeInt = 50
    """Number of optimizer steps of linear learning-rate warmup."""
    lr_final_ratio: Fraction = 0.1
    """Fraction of `lr` at which the cosine schedule ends."""
    grad_clip: PositiveFloat = 1.0
    """Maximum gradient norm; larger gradients are scaled down to it."""
    relabel: bool | str = True
    """Query the player again each time a screen is sampled, so that its random mistakes are not
    memorized. With another player's name, that one replies: from `expert`, a model learns what
    to do after a mistake of `noisy`, but not the mistake (as in DART). Recorded episodes are
    relabeled only if `player` played them. Only single turns can be relabeled, by players that need
    nothing but the info, because observations are not recorded."""
    phase_weights: dict[str, NonNegativeFloat] = field(default_factory=dict)
    """How often turns are sampled: a weight for each value of `phase` in their info. Phases that
    are not listed have weight 1."""
    cache: str | None = "~/.cache/agentrl"
    """Folder that caches warm-started models; None always trains. Models with `model.lora.base=nf4`
    are never cached. On the command line, this setting alone adds no warm start to a job."""
    repeat: bool = False
    """Repeat the warm start even if `agentrl.json` in the model's folder says that the model
    already had one for this environment. If false, it is skipped in this case."""

    @property
    def labeler(self) -> str | None:
        """The player that is queried for each sampled screen; None to use what was played."""
        if isinstance(self.relabel, str):
            return self.relabel
        return self.player if self.relabel else None

    def validate(self) -> None:
        """Raise `ConfigError` at the first invalid value."""
        check_betas("warm_start.betas", self.betas)
        if self.player is None and isinstance(self.relabel, str):
            raise ConfigError(
                f"warm_start.relabel={self.relabel}: only demonstrations of warm_start.player can "
                "be relabeled, but it is null"
            )
        if self.cache is not None:
            path_of(self.cache, "warm_start.cache")
        for run in self.recorded:
            path_of(run, "warm_start.recorded")
        if self.recorded:
            return
        if self.player is None:
            raise ConfigError(
                "warm_start.player=null: there are no demonstrations; list runs in "
                "warm_start.recorded, or skip the warm start with warm_start=null"
            )
        if self.recorded_filter != RecordedFilterConfig():
            raise ConfigError(
                "warm_start.recorded_filter: there are no runs to filter; list some in "
                "warm_start.recorded"
            )


@dataclass(slots=True, kw_only=True)
class OptimConfig:
    """The AdamW optimizer."""

    lr: Annotated[float, Ge(0), Le(100)] = 1e-6
    """Peak learning rate; with 0, the job only records episodes."""
    weight_decay: Annotated[float, Ge(0), Le(100)] = 0.0
    """AdamW's weight decay, on weights of two and more dimensions: not on norms and biases."""
    betas: list[float] = field(default_factory=lambda: [0.9, 0.99])
    """AdamW's decay rates of the two moments."""
    grad_clip: PositiveFloat = 1.0
    """Maximum gradient norm; larger gradients are scaled down to it."""
    lr_warmup_steps: NonNegativeInt = 0
    """Number of optimizer steps of linear learning-rate warmup; skipped steps (`learner/skipped`)
    do not count."""
    lr_schedule: Literal["linear", "cosine"] = "linear"
    """How the learning rate decays over the training steps: linearly, or along half a cosine,
    which stays high longer and flattens at the end. A training step does not count if all its
    optimizer steps were skipped."""
    lr_final_ratio: Fraction = 1.0
    """Fraction of `lr` reached at the last step; 1 keeps the learning rate constant."""
    moments: Literal["float32", "bfloat16", "8bit"] = "float32"
    """Precision of AdamW's two moments, for every trained model: 8, 4 or about 2 bytes per weight.
    `8bit` quantizes them in blocks (bitsandbytes, extra `qlora`); `bfloat16` only rounds, so
    `betas` must not exceed 0.995."""
    offload_moments: bool = False
    """Keep the moments in CPU memory and copy them to the GPU and back in every optimizer step; no
    effect without a GPU. See `train.offload` to offload the weights as well."""

    def validate(self) -> None:
        """Raise `ConfigError` at the first invalid value."""
        check_betas("optim.betas", self.betas)
        self.check_moments("optim.betas", self.betas)

    def check_moments(self, key: str, betas: Sequence[float]) -> None:
        """Raise `ConfigError` if moments of this precision cannot decay at these rates."""
        if self.moments == "bfloat16" and betas[1] > _LARGEST_BETA:
            raise ConfigError(
                f"{key}={betas}: the second must be at most {_LARGEST_BETA} with "
                "optim.moments=bfloat16, where rounding would undo a slower decay; "
                "optim.moments=8bit has no such limit"
            )


@dataclass(slots=True, kw_only=True)
class TrainConfig:
    """The learner."""

    steps: Annotated[int, Ge(0), Le(1_000_000_000)] = 40
    """Number of training steps; each collects episodes, updates the model and publishes its weights
    once."""
    mode: Literal["sync", "async"] = "sync"
    """`async` collects episodes while training: running episodes continue with new weights as soon
    as they arrive, and every token records the version that sampled it. A resumed run is then no
    longer identical bit for bit."""
    lag: PositiveInt = 1
    """In mode `async`, the number of updates by which the weights may lag when a step's episodes
    start; `algorithm.max_staleness` drops older tokens, and `algorithm.importance_correction`
    reweights them."""
    ranks: ProcessCount | Literal["auto"] = "auto"
    """Number of learner processes, with FSDP2 and one GPU each. `auto`: as many as fit on the GPUs,
    or one without GPUs."""
    sequence_parallel: ProcessCount = 1
    """Number of ranks that share each row's tokens, for episodes too long for one GPU: each rank
    keeps its part of the activations. Must divide `ranks` and the model's attention heads;
    `micro_batch_tokens` is the total over these ranks."""
    tensor_parallel: ProcessCount = 1
    """Number of neighboring ranks that share the matrices of each decoder layer and work on the
    same rows, for models whose layers are too large for one GPU; on GPUs, they must be on the same
    node. Must divide `ranks` and the model's attention heads, including key-value heads."""
    expert_parallel: ProcessCount = 1
    """Number of neighboring ranks that share the experts of a mixture-of-experts model: each rank
    has some of the experts, and tokens are sent to the ranks of their experts. A multiple of
    `tensor_parallel`; must divide the ranks of a replica and the model's experts."""
    replicas: ProcessCount = 1
    """Number of copies of the weights, each sharded over neighboring ranks (HSDP). With one copy
    per node, only summed gradients are sent between nodes. Must divide `ranks`."""
    micro_batch_tokens: TokenCount = 16384
    """Maximum number of tokens per forward pass, including padding."""
    share_prefixes: bool = True
    """Compute prefixes shared by several samples only once if that is cheaper; does not change the
    results."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass instead of keeping them."""
    activation_offload: bool = False
    """Keep the layer inputs from which `gradient_checkpointing` recomputes activations in CPU
    memory until the backward pass; no effect without a GPU."""
    master_dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of trained weights and their gradients. `bfloat16` requires `model.dtype=bfloat16`;
    the optimizer then keeps the low 16 bits of each weight separately, so updates are as exact as
    with `float32`, and gradients take half the memory. Frozen weights are kept in `model.dtype`.
    See `optim.moments` for the optimizer's moments."""
    offload: bool = False
    """Keep weights and optimizer state in CPU memory and copy them to the GPU when used: slower,
    but larger models fit."""
    compile: bool = False
    """Compile the decoder's layers (`torch.compile`), once for all layers and row lengths; this
    takes minutes in the first passes of a job. Requires a C++ compiler on the CPU or a C compiler
    on a GPU; cannot be combined with `sequence_parallel`, `tensor_parallel`, `expert_parallel` or
    `model.lora.base=nf4`."""
    compare_engine: bool = True
    """Compare the engine's log-probabilities with the learner's in every step (`mismatch_*`), on up
    to 32 samples; costs an additional forward pass over these samples. Before the first step,
    `rollout.engine_check` compares the engine with transformers."""
    check_weights: bool = True
    """Publish weights with a checksum that engines verify, so that no engine samples with wrong
    weights. The checksum is computed on the CPU, to which GPU weights are copied."""
    weight_transfer: str = "auto"
    """How new weights reach the engines: as a `file` in shared memory; through vLLM's own weight
    transfer, in chunks via `shared` memory, via CUDA `ipc` on a shared GPU, or via `nccl` between
    GPUs; or through your own transport as `module:Class` or `path/file.py:Class`. `auto` uses a
    transport between GPUs if the engine has a suitable one, else `file`."""
    deadline_s: Seconds = 1800.0
    """Deadline in seconds for a call to the learner, such as an update."""

    def validate(self) -> None:
        """Raise `ConfigError` at the first invalid value."""
        for key in ("sequence_parallel", "tensor_parallel", "expert_parallel"):
            if self.compile and getattr(self, key) > 1:
                raise ConfigError(
                    f"train.compile=true: with train.{key}={getattr(self, key)}, layers "
                    "communicate with other ranks and cannot be compiled; set train.compile=false"
                )
        if self.activation_offload and not self.gradient_checkpointing:
            raise ConfigError(
                "train.activation_offload=true: requires train.gradient_checkpointing=true, "
                "because it offloads the layer inputs that checkpointing keeps"
            )
        self._check_parallelism()

    def _check_parallelism(self) -> None:
        shared = max(self.tensor_parallel, self.expert_parallel)
        if self.sequence_parallel > 1 and shared > 1:
            key = "tensor" if self.tensor_parallel > 1 else "expert"
            raise ConfigError(
                f"train.sequence_parallel={self.sequence_parallel}: cannot be combined with "
                f"train.{key}_parallel={shared}; set one of them to 1"
            )
        if self.expert_parallel > 1 and self.expert_parallel % self.tensor_parallel:
            raise ConfigError(
                f"train.expert_parallel={self.expert_parallel}: must be a multiple of "
                f"train.tensor_parallel={self.tensor_parallel}"
            )
        if isinstance(self.ranks, int):
            self.check_ranks(self.ranks)

    @property
    def ranks_multiple(self) -> int:
        """Number that must divide the number of ranks."""
        shared = max(self.sequence_parallel, self.tensor_parallel, self.expert_parallel)
        return shared * self.replicas

    def check_ranks(self, ranks: int) -> None:
        """Raise `ConfigError` if this number of ranks cannot be split as configured."""
        for key, count, what in (
            ("sequence_parallel", self.sequence_parallel, "share each row"),
            ("tensor_parallel", self.tensor_parallel, "share each layer"),
            ("expert_parallel", self.expert_parallel, "share the experts"),
        ):
            if ranks % count:
                raise ConfigError(
                    f"train.{key}={count}: must divide train.ranks={ranks}, because it is the "
                    f"number of ranks that {what}"
                )
        if ranks % self.ranks_multiple:
            raise ConfigError(
                f"train.replicas={self.replicas}: train.ranks={ranks} must be a multiple of "
                f"{self.ranks_multiple}, because each replica needs a multiple of "
                f"{self.ranks_multiple // self.replicas} ranks"
            )
