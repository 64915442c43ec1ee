"""The settings of a whole job and their defaults."""

from dataclasses import dataclass, field
from typing import Any, Literal

from agentrl.config.algorithm_settings import AlgorithmConfig


@dataclass(slots=True, kw_only=True)
class RunConfig:
    """Where a run lives."""

    dir: str = "runs"
    """The folder of all runs."""
    name: str | None = None
    """Folder below `dir`; None takes the configuration's name and the time."""
    frames: Literal["device", "model", "none"] = "device"
    """Recorded pictures: at the device's own resolution, as the model saw them, or none."""
    keep_gb: float | None = None
    """What recorded episodes may take with their frames, in units of 10^9 bytes: beyond it the
    oldest training episodes go, but for their scores; None keeps all. See docs/replay.md."""
    search_path: list[str] = field(default_factory=list)
    """Folders where modules are looked for; empty takes the configuration's own folder."""


@dataclass(slots=True, kw_only=True)
class LoraConfig:
    """Low-rank adapters, which alone are trained: `pip install 'agentrl[lora]'`."""

    rank: int = 0
    """Columns of each adapter; 0 trains the whole model."""
    alpha: int = 32
    """An adapter counts `alpha / rank` times."""
    targets: list[str] = field(default_factory=list)
    """Ends of the names of linear layers, such as `q_proj`; none takes all of the language
    model."""
    base: Literal["float", "nf4"] = "float"
    """What the layers below the adapters are kept in: `model.dtype`, or 4 bits (QLoRA, extra
    `qlora`), which takes a quarter of bfloat16's memory and rounds them: of a model that adapters
    were merged into, what these had learned may be lost."""
    serve: Literal["merged", "adapter"] = "merged"
    """What engines are given after each step: whole weights that the adapters are part of, or the
    adapters alone, which vLLM adds as it answers: far less to send, and answers take longer.
    `adapter` needs targets in the language model alone."""


@dataclass(slots=True, kw_only=True)
class ModelConfig:
    """The policy's weights."""

    path: str = "tiny"
    """`tiny` (built from the seed), a local folder, or a Hugging Face id, which is fetched."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the computation; see `train.master_dtype` for what the learner keeps."""
    attention: Literal["auto", "flash_attention_2", "sdpa", "eager"] = "auto"
    """`auto` takes flash-attn (extra `gpu`) where it is installed and a GPU is there, else SDPA."""
    freeze_vision: bool = False
    """Train the language model alone."""
    lora: LoraConfig = field(default_factory=LoraConfig)
    image_size: list[int] | None = None
    """[width, height] that every picture is scaled to; None keeps the picture's own shape and
    scales it below `max_pixels`."""
    max_pixels: int = 602112
    """Area of a picture, at most, where `image_size` is not given."""
    tiny: dict[str, Any] = field(default_factory=dict)
    """Sizes of the tiny model, where they differ from its defaults."""


@dataclass(slots=True, kw_only=True)
class WrapperConfig:
    """A Gymnasium wrapper around the environment."""

    wrapper: str = "???"
    """`module:Class` or `path/file.py:Class`."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    """For the wrapper, beside the environment."""


@dataclass(slots=True, kw_only=True)
class EnvConfig:
    """What is played."""

    id: str = "NumberGame-v0"
    """An id of agentrl or Gymnasium, `module:Name-v0` where a module registers it, the class itself
    (`module:Class`, `path/file.py:Class`), or `http://HOST:PORT` where `agentrl serve-env` runs."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    """For the environment's constructor. What its translator takes too, such as the number game's
    `mode`, is given to both; a scripted player gets what it takes."""
    translator: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the environment's translator. What the constructor takes too is given to
    both; two different values are an error."""
    words: str | None = None
    """`module:Class` or `path/file.py:Class` of a translator, in place of the environment's own."""
    players: dict[str, str] = field(default_factory=dict)
    """More scripted players: a name, and `module:Class` or `path/file.py:Class`."""
    player: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the scripted players, for each of them that takes them."""
    wrappers: list[WrapperConfig] = field(default_factory=list)
    """Put around the environment, the first one innermost."""
    processes: int = 0
    """That play the environments of each rollout actor, so that they compute side by side and one
    that crashes takes no other along; 0 plays them in threads. Not for phones."""
    state_key: Literal["info", "observation", "screen"] = "info"
    """What names a state, for comparing siblings: `info["state_key"]`; `observation`, what the
    model is shown, where equal ones are taken for the same state; or `screen`, the same without
    the status bar and whatever else is too small or too faint to be told apart at a glance."""
    max_turns: int = 40
    """An episode that is not over by then is truncated."""
    history: str = "concat"
    """`concat` (the whole conversation), `window:k` (the last k screens) or `compact:k` (the last k
    screens, and what the model has written between `<memory>` and `</memory>`)."""
    prompt: str | None = None
    """A Jinja2 template file for the instructions; None takes the translator's own words."""


@dataclass(slots=True, kw_only=True)
class DeadlinesConfig:
    """Seconds that a phone may take."""

    connect_s: float = 10.0
    """To connect, and to connect again after a failure."""
    command_s: float = 5.0
    """For one command."""
    frame_s: float = 5.0
    """For one picture."""
    settle_s: float = 3.0
    """For the screen to come to rest after an action."""
    launch_s: float = 15.0
    """For an app to be in front."""
    start_s: float = 30.0
    """For all virtual phones to come up."""


@dataclass(slots=True, kw_only=True)
class DevicesConfig:
    """The phones; not used by environments without one."""

    source: Any = "virtual:8"
    """`virtual:N`, a list of serials, or `connected`: all that adb lists as ready, also later."""
    driver: Literal["adbutils", "ppadb"] = "adbutils"
    """What speaks ADB; `ppadb` is pure-python-adb, an extra."""
    capture: Literal["auto", "raw", "png", "framebuffer", "stream"] = "auto"
    """How pictures are taken; `auto` takes the fastest that is right on that phone."""
    input: Literal["auto", "input", "shell"] = "auto"
    """A shell for each command, or one that is kept; `auto` takes the faster one."""
    app: Literal["auto", "installed", "page"] = "auto"
    """How phones have the game's app: `installed`, as virtual phones always have it; as a `page` in
    their browser, with nothing installed; `auto` takes the page where the app is not installed."""
    public_addresses: list[str] = field(default_factory=list)
    """`HOST:PORT` of phones that are used though anybody on the internet can reach them."""
    allow: list[str] = field(default_factory=list)
    """Packages that may be in front, beside the game's own app."""
    mask: list[list[float]] = field(default_factory=list)
    """Regions `[left, top, right, bottom]` in [0, 1] that are black in every recorded picture. The
    policy sees them: what is trained again from a record has not all that the policy saw."""
    size: list[int] = field(default_factory=lambda: [720, 1280])
    """[width, height] of virtual phones."""
    effect_delay_ms: list[int] = field(default_factory=lambda: [50, 300])
    """How late virtual phones show the effect of a touch."""
    quarantine_after: int = 3
    """Failed episodes in a row that put a phone into quarantine, though it answers."""
    quarantine_s: float = 30.0
    """Seconds before a phone in quarantine is tried again; twice as long each time."""
    patience_s: float = 300.0
    """Seconds that all phones may be in quarantine at once; then the job ends."""
    reboot: bool = False
    """Start a phone again where nothing else helps. One that adb reaches by `adb tcpip` does not
    come back by itself."""
    lease_s: float = 15.0
    """Seconds after which a phone is taken from a rollout actor that has died or hangs, where
    several share the phones."""
    deadlines: DeadlinesConfig = field(default_factory=DeadlinesConfig)


@dataclass(slots=True, kw_only=True)
class RewardConfig:
    """One reward function and its weight."""

    function: str = "???"
    """`module:name` or `path/file.py:name`."""
    weight: float = 1.0
    """Its share in the sum."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    """For the function, beside the episode."""
    kind: Literal["auto", "episode", "batch", "answer"] = "auto"
    """What the function takes: an episode; a list of inputs, one for each episode (`batch`); or the
    last reply and the ground truth (`answer`). `auto` goes by its first parameter, which is called
    `reward_inputs` in batch functions and `data_source` in those of an answer."""


@dataclass(slots=True, kw_only=True)
class EndpointConfig:
    """A server of chat completions whose model plays, where `rollout.engine` is `remote`."""

    url: str = "http://127.0.0.1:8000/v1"
    """What `/models` and `/chat/completions` are put behind: of `vllm serve`, SGLang, OpenAI or any
    other that speaks as they do."""
    model: str | None = None
    """As the server calls it; None takes the only one that it has."""
    api_key_env: str | None = None
    """The environment variable that holds the key, such as `OPENAI_API_KEY`; None sends none. The
    key itself stands in no configuration, log or record."""
    headers: dict[str, str] = field(default_factory=dict)
    """Sent with every request; not for secrets."""
    extra_body: dict[str, Any] = field(default_factory=dict)
    """Further fields of every request, such as `{top_p: 0.9}`; null leaves out one that is sent
    otherwise, such as `{seed: null}`."""


@dataclass(slots=True, kw_only=True)
class RolloutConfig:
    """How episodes are played."""

    engine: Literal["vllm", "hf", "remote"] = "vllm"
    """What samples the replies; `hf` is slower and repeats bit for bit. `remote` asks the server of
    `rollout.endpoint`, for `agentrl eval` and `play`: it cannot be trained."""
    launcher: Literal["ray", "local"] = "ray"
    """In actors of their own, or all in this process."""
    actors: int = 1
    """Processes that play, with `launcher: ray`; each has an engine of its own, and all borrow from
    the same phones."""
    groups: int = 4
    """Groups per training step."""
    group_size: int = 8
    """Episodes that are compared with each other."""
    seed_per: Literal["group", "episode"] = "group"
    """A `group` shares its seed, so that its members begin alike; or each `episode` has its own:
    for games that all begin alike and go on by chance, such as FrozenLake. A seed decides its
    chances too, and what is right by those of one seed is not right by others."""
    concurrency: int = 32
    """Episodes in flight, at most; a phone plays one of them."""
    temperature: float = 1.0
    """Of sampling."""
    max_new_tokens: int = 64
    """Of one reply."""
    max_context: int = 4096
    """Tokens of prompt and reply; an episode that would grow beyond is truncated. A `remote` engine
    has a bound of its own."""
    deadline_s: float = 600.0
    """For one episode, from reset to its last turn."""
    start_deadline_s: float = 600.0
    """For phones and engine to come up."""
    reward_deadline_s: float = 60.0
    """For the reward functions of one episode."""
    reward_failure: Literal["void", "error"] = "void"
    """A reward function that fails voids the episode, or ends the job."""
    max_refills: int = 8
    """Void episodes that each actor plays again, per step or evaluation."""
    engine_kwargs: dict[str, Any] = field(default_factory=dict)
    """Passed on to the engine, such as vLLM's `gpu_memory_utilization`."""
    endpoint: EndpointConfig = field(default_factory=EndpointConfig)
    sleep: bool | None = None
    """Whether vLLM leaves its GPU's memory to the learner from the last answer of a step until new
    weights come; None: where these come by `ipc` (`train.transfer`) and both take turns
    (`train.mode=sync`)."""


@dataclass(slots=True, kw_only=True)
class RecordedWhereConfig:
    """Which recorded episodes are taught, in the words of `agentrl export` and of the pages."""

    split: str | None = None
    """`train`, `eval` or `demo`."""
    label: str | None = None
    """Of this play, such as `human`, `expert` or `after-sampled`."""
    outcome: str | None = None
    """`terminated` or `truncated`."""
    step: int | None = None
    """Of this training step."""
    seed: int | None = None
    """Of this seed."""
    group: str | None = None
    """Of this group, by its id."""
    device: str | None = None
    """Played on this phone, by its short name."""
    id: str | None = None
    """This one alone."""
    won: bool | None = None
    """Those that were won, or were not."""
    least: float | None = None
    """With at least this reward."""
    most: float | None = None
    """With at most this reward."""


@dataclass(slots=True, kw_only=True)
class WarmStartConfig:
    """Behaviour cloning on a scripted player or on recorded episodes, before reinforcement."""

    player: str | None = "mediocre"
    """A scripted player of the environment; None teaches what is `recorded` alone."""
    recorded: list[str] = field(default_factory=list)
    """Folders of runs whose episodes are taught, beside the player's games: what `agentrl play`,
    `eval` or `train` recorded, by whomever it was played."""
    recorded_where: RecordedWhereConfig = field(default_factory=RecordedWhereConfig)
    """Which of them."""
    episodes: int = 300
    """Games that the player plays, on seeds that are for demonstrations alone."""
    steps: int = 1200
    """Optimizer steps."""
    batch: int = 32
    """Turns per step; whole conversations count all of theirs."""
    lr: float = 1e-3
    """The highest learning rate."""
    weight_decay: float = 0.0
    """AdamW's."""
    betas: list[float] = field(default_factory=lambda: [0.9, 0.95])
    """AdamW's."""
    lr_warmup_steps: int = 50
    """Steps of the linear rise at the beginning."""
    lr_final_ratio: float = 0.1
    """The cosine schedule ends at this share of `lr`."""
    grad_clip: float = 1.0
    """The largest norm of a gradient."""
    relabel: bool = True
    """Ask the player anew at each visit of a screen, so that its mistakes are not memorised. Of
    recorded episodes, those alone that this player played."""
    weights: dict[str, float] = field(default_factory=dict)
    """How often turns are visited by the `phase` in their info; 1 where none is given."""
    cache: str | None = "~/.cache/agentrl"
    """Keeps the cloned model; None trains it each time, as `model.lora.base=nf4` does in any
    case."""
    again: bool = False
    """Also a model that has had a warm start for this environment, as `agentrl.json` in its folder
    says, is given this one; else it goes without."""


@dataclass(slots=True, kw_only=True)
class OptimConfig:
    """AdamW."""

    lr: float = 1e-6
    """The highest learning rate."""
    weight_decay: float = 0.0
    """AdamW's."""
    betas: list[float] = field(default_factory=lambda: [0.9, 0.99])
    """AdamW's."""
    grad_clip: float = 1.0
    """The largest norm of a gradient."""
    lr_warmup_steps: int = 0
    """Optimizer steps of a linear rise at the beginning."""
    lr_schedule: Literal["linear", "cosine"] = "linear"
    """How the rate falls, with the training steps: by a line, or by half a cosine, which stays high
    for longer and ends gently."""
    lr_final_ratio: float = 1.0
    """The share that it falls to at the last step; 1 leaves it as it is."""


@dataclass(slots=True, kw_only=True)
class TrainConfig:
    """The learner."""

    steps: int = 40
    """Each plays, learns and publishes once."""
    mode: Literal["sync", "async"] = "sync"
    """`async` plays while it learns: episodes go on with new weights when these come, and each
    token knows which sampled it. A run that is resumed is then no longer the same to the bit."""
    lag: int = 1
    """Updates that may be missing, in the mode `async`, when a step begins to be played;
    `algorithm.max_staleness` leaves out older tokens, `algorithm.correction` weighs them."""
    ranks: int = 1
    """Processes that train together under FSDP2."""
    sequence_parallel: int = 1
    """Ranks that share the tokens of each row, for episodes too long for one GPU: what is kept of a
    row is divided by them. Divides `ranks` and the model's attention heads; `micro_batch_tokens`
    are theirs together."""
    micro_batch_tokens: int = 16384
    """Padded tokens of one forward pass, at most."""
    share_prefixes: bool = True
    """What samples begin with is computed once, where that is cheaper; never an approximation."""
    gradient_checkpointing: bool = False
    """Compute activations twice instead of keeping them."""
    master_dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the weights that are trained, and of their optimizer. `bfloat16` takes half the memory and
    loses small steps: below `lr` 1e-5 little is learned. Weights that are not trained are kept in
    `model.dtype`."""
    offload: bool = False
    """Keep weights and optimizer in the memory of the CPU, and move them to the GPU as they are
    used: slower, and a larger model fits."""
    compare_engine: bool = True
    """Compare the engine's log-probabilities with the learner's in every step (`mismatch_*`), for
    32 samples at most; one more forward pass over them."""
    check_weights: bool = False
    """Publish weights with a checksum, and have engines compare it with what they have: for those
    who doubt, at some time for every step."""
    transfer: Literal["file", "shared", "ipc", "nccl", "auto"] = "file"
    """How new weights reach the engines: as a `file` in shared memory; or by vLLM's own weight
    transfer, in chunks through `shared` memory, by `ipc` within a GPU that both share, or by `nccl`
    between GPUs. `auto`: `ipc` or `nccl` where vLLM has a GPU, else `file`."""
    deadline_s: float = 1800.0
    """For one call to the learner, such as an update."""


@dataclass(slots=True, kw_only=True)
class EvalConfig:
    """Games on seeds that are never trained on."""

    every: int = 10
    """Steps between evaluations during training, which choose the best checkpoint; the last step
    has one in any case. 0 for none."""
    episodes: int = 100
    """Before and after training, and each of sampled and greedy."""
    episodes_during: int = 20
    """For an evaluation during training."""
    seeds: int = 1_000_000
    """The first held-out seed."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    """For the environment's constructor, over `env.kwargs`, on held-out seeds: another part of the
    data, or a harder level."""
    baselines: list[str] | None = None
    """Scripted players that play the held-out seeds, to stand beside the model; None takes `random`
    and `expert` where the environment has them."""


@dataclass(slots=True, kw_only=True)
class CheckpointConfig:
    """What is kept on disk."""

    every: int = 10
    """Steps between checkpoints."""
    keep: int = 2
    """How many of the latest stay, beside the best."""


@dataclass(slots=True, kw_only=True)
class Config:
    """The whole tree."""

    seed: int = 0
    """Of everything that is drawn."""
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
    """Where numbers go: console, file, tensorboard, wandb, swanlab, mlflow. All but the first two
    are extras of the same name, as `pip install 'agentrl[wandb]'`, and must be installed; one with
    a question mark (`"tensorboard?"`, quoted) is used only where it is."""
