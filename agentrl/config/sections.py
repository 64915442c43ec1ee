"""The sections of a configuration, with their defaults."""

from dataclasses import dataclass, field
from typing import Any, Literal

from agentrl.config.algorithm_settings import AlgorithmConfig


@dataclass(slots=True, kw_only=True)
class RunConfig:
    """Where a run is stored."""

    dir: str = "runs"
    """The folder of all runs."""
    name: str | None = None
    """Folder below `dir`; None derives it from the configuration's name and the time."""
    frames: Literal["device", "model", "none"] = "device"
    """Resolution of recorded frames: the device's, the model's input, or no frames at all."""
    keep_gb: float | None = None
    """Disk space for recorded episodes and their frames, in units of 10^9 bytes. Beyond it the
    oldest training episodes are removed, except for their scores; None keeps all. See
    docs/replay.md."""
    search_path: list[str] = field(default_factory=list)
    """Folders searched for modules; empty means the configuration's own folder."""


@dataclass(slots=True, kw_only=True)
class LoraConfig:
    """Low-rank adapters; with them, only the adapters are trained (extra `lora`)."""

    rank: int = 0
    """Rank of each adapter; 0 trains the whole model."""
    alpha: int = 32
    """The adapters' output is scaled by `alpha / rank`."""
    targets: list[str] = field(default_factory=list)
    """Suffixes of linear layers' names, such as `q_proj`; empty means all linear layers of the
    language model."""
    base: Literal["float", "nf4"] = "float"
    """Precision of the frozen layers below the adapters: `model.dtype`, or 4 bits (QLoRA, extra
    `qlora`), a quarter of bfloat16's memory. Rounding to 4 bits may erase what previously merged
    adapters had learned."""
    serve: Literal["merged", "adapter"] = "merged"
    """What engines receive after each step: the full weights with adapters merged, or only the
    adapters, which vLLM applies while it samples: far less to transfer, but slower sampling.
    `adapter` requires all targets to be in the language model."""


@dataclass(slots=True, kw_only=True)
class ModelConfig:
    """The policy's weights."""

    path: str = "tiny"
    """`tiny` (built from the seed), a local folder, or a Hugging Face id, which is downloaded."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Compute precision; see `train.master_dtype` for the learner's weights."""
    attention: Literal["auto", "flash_attention_2", "sdpa", "eager"] = "auto"
    """`auto` uses flash-attn (extra `gpu`) if it is installed and there is a GPU, else SDPA."""
    freeze_vision: bool = False
    """Train only the language model."""
    lora: LoraConfig = field(default_factory=LoraConfig)
    image_size: list[int] | None = None
    """[width, height] to which every image is scaled; None keeps the aspect ratio and scales the
    image down to `max_pixels`."""
    max_pixels: int = 602112
    """Largest area of an image if `image_size` is not given."""
    tiny: dict[str, Any] = field(default_factory=dict)
    """Sizes of the tiny model that differ from its defaults."""


@dataclass(slots=True, kw_only=True)
class WrapperConfig:
    """A Gymnasium wrapper around the environment."""

    wrapper: str = "???"
    """`module:Class` or `path/file.py:Class`."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the wrapper, besides the environment."""


@dataclass(slots=True, kw_only=True)
class EnvConfig:
    """The environment and how its observations become prompts."""

    id: str = "NumberGame-v0"
    """An id of agentrl or Gymnasium, `module:Name-v0` if a module registers it, the class itself
    (`module:Class`, `path/file.py:Class`), or the `http://HOST:PORT` of `agentrl serve-env`."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the environment's constructor. Those that its translator also accepts,
    such as the number game's `mode`, are passed to both; a scripted player gets those that it
    accepts."""
    translator_kwargs: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the environment's translator. Those that the constructor also accepts
    are passed to both; two different values are an error."""
    translator_class: str | None = None
    """`module:Class` or `path/file.py:Class` of a translator that replaces the environment's
    own."""
    players: dict[str, str] = field(default_factory=dict)
    """Additional scripted players: a name, and `module:Class` or `path/file.py:Class`."""
    player_kwargs: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the scripted players, passed to each that accepts them."""
    wrappers: list[WrapperConfig] = field(default_factory=list)
    """Applied to the environment in this order, the first one innermost."""
    processes: int = 0
    """Processes that run the environments of each rollout actor, in parallel and isolated from each
    other's crashes; 0 runs them in threads. Not for phones."""
    state_key: Literal["info", "observation", "screen"] = "info"
    """What identifies a state when siblings are compared: `info["state_key"]`; `observation`, where
    equal observations are the same state; or `screen`, which ignores the status bar and differences
    that are too small or too faint to see at a glance."""
    max_turns: int = 40
    """An episode is truncated after this many turns."""
    history: str = "concat"
    """What a prompt contains: `concat` (the whole conversation), `window:k` (the last k screens) or
    `compact:k` (the last k screens, and what the model wrote between `<memory>` and
    `</memory>`)."""
    prompt: str | None = None
    """A Jinja2 template file for the instructions; None uses the translator's own."""


@dataclass(slots=True, kw_only=True)
class DeadlinesConfig:
    """How many seconds a phone may take."""

    connect_s: float = 10.0
    """To connect, or to reconnect after a failure."""
    command_s: float = 5.0
    """For one command."""
    frame_s: float = 5.0
    """For one screenshot."""
    settle_s: float = 3.0
    """For the screen to settle after an action."""
    launch_s: float = 15.0
    """For an app to come to the foreground."""
    start_s: float = 30.0
    """For all virtual phones to start."""


@dataclass(slots=True, kw_only=True)
class DevicesConfig:
    """The phones; unused by environments that need none."""

    source: Any = "virtual:8"
    """`virtual:N`, a list of serials, or `connected`: every phone that adb lists as ready,
    including those that appear later."""
    driver: Literal["adbutils", "ppadb"] = "adbutils"
    """The ADB client library; `ppadb` is pure-python-adb, an extra."""
    capture: Literal["auto", "raw", "png", "framebuffer", "stream"] = "auto"
    """How screenshots are taken; `auto` picks the fastest method that is correct on that phone."""
    input: Literal["auto", "input", "shell"] = "auto"
    """Whether each command opens a shell (`input`) or all share one (`shell`); `auto` picks the
    faster."""
    app: Literal["auto", "installed", "page"] = "auto"
    """How the game runs on the phone: as an `installed` app, as on every virtual phone; or as a
    `page` in the phone's browser, with nothing to install. `auto` uses the page if the app is not
    installed."""
    public_addresses: list[str] = field(default_factory=list)
    """`HOST:PORT` of phones to use although they are reachable from the internet, unencrypted."""
    allow: list[str] = field(default_factory=list)
    """Packages that may be in the foreground, besides the game's own app."""
    mask: list[list[float]] = field(default_factory=list)
    """Regions `[left, top, right, bottom]` in [0, 1] that are blacked out in recorded frames. The
    policy still sees them, so training on recorded episodes sees less than the policy did."""
    size: list[int] = field(default_factory=lambda: [720, 1280])
    """[width, height] of virtual phones, in pixels."""
    effect_delay_ms: list[int] = field(default_factory=lambda: [50, 300])
    """[least, most] delay until a virtual phone shows the effect of a touch."""
    quarantine_after: int = 3
    """Consecutive failed episodes after which a phone is quarantined, even if it responds."""
    quarantine_s: float = 30.0
    """Seconds before a quarantined phone is tried again; doubled each time."""
    patience_s: float = 300.0
    """The job ends after all phones have been in quarantine for this many seconds."""
    reboot: bool = False
    """Reboot a phone if nothing else recovers it. A phone connected by `adb tcpip` does not come
    back on its own."""
    lease_s: float = 15.0
    """Seconds after which a phone is reclaimed from a rollout actor that died or hangs, if several
    actors share the phones."""
    deadlines: DeadlinesConfig = field(default_factory=DeadlinesConfig)


@dataclass(slots=True, kw_only=True)
class RewardConfig:
    """One reward function and its weight."""

    function: str = "???"
    """`module:name` or `path/file.py:name`."""
    weight: float = 1.0
    """Its factor in the sum of rewards."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the function, besides the episode."""
    kind: Literal["auto", "episode", "batch", "answer"] = "auto"
    """What the function receives: an episode; a list of inputs, one per episode (`batch`); or the
    last reply and the ground truth (`answer`). `auto` decides by the first parameter's name:
    `reward_inputs` for `batch`, `data_source` for `answer`."""


@dataclass(slots=True, kw_only=True)
class EndpointConfig:
    """A chat completions server whose model plays, for `rollout.engine=remote`."""

    url: str = "http://127.0.0.1:8000/v1"
    """Base URL of `/models` and `/chat/completions`: `vllm serve`, SGLang, OpenAI or any compatible
    server."""
    model: str | None = None
    """The model's name on the server; None uses the only one it serves."""
    api_key_env: str | None = None
    """The environment variable that holds the API key, such as `OPENAI_API_KEY`; None sends no key.
    The key itself never appears in a configuration, log or record."""
    headers: dict[str, str] = field(default_factory=dict)
    """Sent with every request; not for secrets."""
    extra_body: dict[str, Any] = field(default_factory=dict)
    """Extra fields of every request, such as `{top_p: 0.9}`; null removes a field that would be
    sent, such as `{seed: null}`."""


@dataclass(slots=True, kw_only=True)
class RolloutConfig:
    """How episodes are played."""

    engine: Literal["vllm", "hf", "remote"] = "vllm"
    """What samples the replies. `hf` (transformers) is slower but reproducible bit for bit.
    `remote` queries the server of `rollout.endpoint`, for `agentrl eval` and `play` only: its
    weights cannot be trained."""
    launcher: Literal["ray", "local"] = "ray"
    """Run rollouts and learner in Ray actors, or all in this process."""
    actors: int = 1
    """Rollout processes, with `launcher: ray`. Each has its own engine; all share the same
    phones."""
    groups: int = 4
    """Groups per training step."""
    group_size: int = 8
    """Episodes per group, which are compared with each other."""
    seed_per: Literal["group", "episode"] = "group"
    """`group`: all episodes of a group share a seed and so start in the same state. `episode`: each
    has its own, for environments that always start in the same state and have random transitions,
    such as FrozenLake: a shared seed would also fix the transitions, and an action that is right
    under one seed's transitions may be wrong under another's."""
    concurrency: int = 32
    """Most episodes in flight; a phone plays one at a time."""
    temperature: float = 1.0
    """Sampling temperature."""
    max_new_tokens: int = 64
    """Longest reply, in tokens."""
    max_context: int = 4096
    """Most tokens of prompt and reply together; an episode that would exceed it is truncated. A
    `remote` engine has its own limit."""
    deadline_s: float = 600.0
    """For one episode, from reset to the last turn."""
    start_deadline_s: float = 600.0
    """For phones and engine to start."""
    reward_deadline_s: float = 60.0
    """For the reward functions of one episode."""
    reward_failure: Literal["void", "error"] = "void"
    """If a reward function fails: discard the episode (`void`), or end the job (`error`)."""
    max_refills: int = 8
    """Most failed episodes that each actor replaces, per step or evaluation."""
    engine_kwargs: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the engine, such as vLLM's `gpu_memory_utilization`."""
    endpoint: EndpointConfig = field(default_factory=EndpointConfig)
    sleep: bool | None = None
    """Whether vLLM releases its GPU memory to the learner between a step's last reply and the next
    weights. None: yes if `train.weight_transfer` is `ipc` and `train.mode` is `sync`."""


@dataclass(slots=True, kw_only=True)
class RecordedFilterConfig:
    """Filter of the recorded episodes to train on, as in `agentrl export`."""

    split: str | None = None
    """`train`, `eval` or `demo`."""
    label: str | None = None
    """Played under this label, such as `human`, `expert` or `after-sampled`."""
    outcome: str | None = None
    """`terminated` or `truncated`."""
    step: int | None = None
    """From this training step."""
    seed: int | None = None
    """With this seed."""
    group: str | None = None
    """From the group with this id."""
    device: str | None = None
    """Played on this phone, by its short name."""
    id: str | None = None
    """Only the episode with this id."""
    won: bool | None = None
    """Only won or only lost episodes."""
    least: float | None = None
    """With at least this reward."""
    most: float | None = None
    """With at most this reward."""


@dataclass(slots=True, kw_only=True)
class WarmStartConfig:
    """Behavior cloning of a scripted player or recorded episodes, before the training steps."""

    player: str | None = "mediocre"
    """A scripted player of the environment; None trains on `recorded` episodes only."""
    recorded: list[str] = field(default_factory=list)
    """Run folders of `agentrl play`, `eval` or `train` whose recorded episodes are trained on, in
    addition to the player's."""
    recorded_filter: RecordedFilterConfig = field(default_factory=RecordedFilterConfig)
    """Selects among the recorded episodes."""
    episodes: int = 300
    """Episodes the player demonstrates, on seeds reserved for demonstrations."""
    steps: int = 1200
    """Optimizer steps."""
    batch: int = 32
    """Turns per optimizer step; a whole conversation counts as all of its turns."""
    lr: float = 1e-3
    """Peak learning rate."""
    weight_decay: float = 0.0
    """Of AdamW."""
    betas: list[float] = field(default_factory=lambda: [0.9, 0.95])
    """Of AdamW."""
    lr_warmup_steps: int = 50
    """Optimizer steps of linear learning-rate warmup."""
    lr_final_ratio: float = 0.1
    """The cosine schedule ends at this fraction of `lr`."""
    grad_clip: float = 1.0
    """Largest gradient norm."""
    relabel: bool = True
    """Query the player again each time a screen is visited, so that its random mistakes are not
    memorized. Applies only to recorded episodes that this player played."""
    phase_weights: dict[str, float] = field(default_factory=dict)
    """How often a turn is sampled, by the `phase` in its info; 1 if not listed."""
    cache: str | None = "~/.cache/agentrl"
    """Folder that caches the cloned model; None always trains it. `model.lora.base=nf4` is never
    cached."""
    repeat: bool = False
    """Repeat the warm start for a model that already had one for this environment, according to the
    `agentrl.json` in its folder; otherwise it is skipped."""


@dataclass(slots=True, kw_only=True)
class OptimConfig:
    """The AdamW optimizer."""

    lr: float = 1e-6
    """Peak learning rate."""
    weight_decay: float = 0.0
    """Of AdamW."""
    betas: list[float] = field(default_factory=lambda: [0.9, 0.99])
    """Of AdamW."""
    grad_clip: float = 1.0
    """Largest gradient norm."""
    lr_warmup_steps: int = 0
    """Optimizer steps of linear learning-rate warmup."""
    lr_schedule: Literal["linear", "cosine"] = "linear"
    """How the learning rate decays over the training steps: linearly, or along half a cosine, which
    stays high longer and flattens at the end."""
    lr_final_ratio: float = 1.0
    """The fraction of `lr` reached at the last step; 1 keeps it constant."""


@dataclass(slots=True, kw_only=True)
class TrainConfig:
    """The learner."""

    steps: int = 40
    """Training steps; each collects episodes, updates the model and publishes its weights once."""
    mode: Literal["sync", "async"] = "sync"
    """`async` collects episodes while it trains: running episodes continue with new weights as soon
    as they arrive, and every token records the version that sampled it. A resumed run is then no
    longer identical bit for bit."""
    lag: int = 1
    """In mode `async`, how many updates behind the weights may be when collecting a step begins;
    `algorithm.max_staleness` drops older tokens, `algorithm.importance_correction` reweights
    them."""
    ranks: int = 1
    """Learner processes, under FSDP2."""
    sequence_parallel: int = 1
    """Ranks that share each row's tokens, for episodes too long for one GPU: each keeps its part of
    the activations. Must divide `ranks` and the model's attention heads; `micro_batch_tokens` is
    their total."""
    micro_batch_tokens: int = 16384
    """Most tokens of one forward pass, padding included."""
    share_prefixes: bool = True
    """Compute prefixes shared by several samples once if that is cheaper; the result is exact."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass instead of keeping them."""
    master_dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of trained weights and optimizer state. `bfloat16` takes half the memory but rounds
    small updates away: below `lr` 1e-5 little is learned. Frozen weights are kept in
    `model.dtype`."""
    offload: bool = False
    """Keep weights and optimizer state in CPU memory and copy them to the GPU when used: slower,
    but a larger model fits."""
    compare_engine: bool = True
    """Compare the engine's log-probabilities with the learner's in every step (`mismatch_*`), on up
    to 32 samples; costs one more forward pass over them."""
    check_weights: bool = False
    """Publish weights with a checksum that engines verify; for debugging, takes some time each
    step."""
    weight_transfer: Literal["file", "shared", "ipc", "nccl", "auto"] = "file"
    """How new weights reach the engines: as a `file` in shared memory; or by vLLM's own weight
    transfer, in chunks through `shared` memory, by CUDA `ipc` on a GPU that both share, or by
    `nccl` between GPUs. `auto`: `ipc` or `nccl` if vLLM runs on a GPU, else `file`."""
    deadline_s: float = 1800.0
    """For one call to the learner, such as an update."""


@dataclass(slots=True, kw_only=True)
class EvalConfig:
    """Evaluation on held-out seeds, which are never trained on."""

    every: int = 10
    """Steps between evaluations during training, which determine the best checkpoint; the last step
    is always evaluated. 0 for none."""
    episodes: int = 100
    """Episodes of each evaluation before and after training, which run both sampled and greedy."""
    episodes_during: int = 20
    """Episodes of an evaluation during training."""
    first_seed: int = 1_000_000
    """The first held-out seed."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    """Overrides of `env.kwargs` for evaluation: another split of the data, or a harder level."""
    baselines: list[str] | None = None
    """Scripted players evaluated for comparison; None means `random` and `expert`, if the
    environment has them."""


@dataclass(slots=True, kw_only=True)
class CheckpointConfig:
    """When checkpoints are saved and how many are kept."""

    every: int = 10
    """Steps between checkpoints."""
    keep: int = 2
    """How many of the latest are kept, besides the best."""


@dataclass(slots=True, kw_only=True)
class Config:
    """The whole configuration of a job."""

    seed: int = 0
    """Seed of everything random."""
    run: RunConfig = field(default_factory=RunConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    env: EnvConfig = field(default_factory=EnvConfig)
    devices: DevicesConfig = field(default_factory=DevicesConfig)
    rewards: list[RewardConfig] = field(default_factory=list)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    warm_start: WarmStartConfig | None = None
    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    logging: list[str] = field(default_factory=lambda: ["console", "file"])
    """Where metrics are logged: console, file, tensorboard, wandb, swanlab, mlflow. All but the
    first two are extras of the same name and must be installed; with a question mark
    (`"tensorboard?"`, quoted) a logger is used only if it is installed."""
