"""All kinds of extensions that users can provide, and the settings that select them by name.

A name refers to a built-in or to an installed package's entry point, or gives the location of the
object: `module:name` or `path/file.py:name`. Nothing is imported before it is selected.
"""

import pkgutil
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from agentrl.errors import ConfigError
from agentrl.text.name_suggestions import known_names
from agentrl.user_code import NOT_FOUND, find_file, import_module, load

_PACKAGE = Path(__file__).resolve().parent


@dataclass(slots=True, kw_only=True, frozen=True)
class Extension:
    """A name that can be used in the configuration, and its target."""

    name: str
    target: str
    """`module:name` of the object; just `module` for the only class of a built-in module."""
    origin: str
    """`agentrl`, or the installed distribution that provides it."""


@dataclass(slots=True, kw_only=True, frozen=True)
class ExtensionPoint:
    """A kind of extension that users can provide, such as algorithms."""

    kind: str
    """Name of the kind in `agentrl list` and `agentrl check`."""
    setting: str
    """The setting that selects an extension, for messages."""
    builtin: str | Mapping[str, str]
    """Built-in extensions: a package of agentrl in which every module provides one extension under
    the module's name; a mapping of names to targets; or `module:function`, which returns one."""
    base: str | None = None
    """`module:Class` of the required base class; mandatory if `builtin` is a package."""
    from_yaml: str | None = None
    """`module:function` that makes an extension from a YAML file (a `Path`), if supported."""

    @property
    def group(self) -> str:
        """The entry-point group to which installed packages add names."""
        return f"agentrl.{self.kind}"

    def extensions(self) -> list[Extension]:
        """Return all usable names, sorted; built-in names take precedence over others."""
        found = self._builtins()
        for one in _installed_extensions(self.group, tuple(sys.path)):
            found.setdefault(_key(one.name), one)
        return sorted(found.values(), key=lambda one: one.name)

    def names(self) -> list[str]:
        """Return the names of `extensions`."""
        return [one.name for one in self.extensions()]

    def resolve(self, name: str) -> Any:
        """Import the object selected by a name.

        Args:
            name: a name of `extensions`, in which `-`, `.` and `_` are equal; or `module:name`,
                `path/file.py:name` or, if there is `from_yaml`, `path/file.yaml`.

        Raises:
            ConfigError: the object does not exist, cannot be imported, or is of a different kind.
        """
        try:
            is_target = ":" in name or self.is_yaml(name)
            found = self._load_target(name) if is_target else self._load_named(name)
        except ConfigError as error:
            raise ConfigError(f"{self.setting}={name}: {error}") from error
        self._check_base(name, found)
        return found

    def target(self, name: str) -> str:
        """Return the target of a name, `module:name` or a built-in's module, without importing it.

        Raises:
            ConfigError: the name does not exist.
        """
        if ":" in name or self.is_yaml(name):
            return name
        try:
            return self._find(name).target
        except ConfigError as error:
            raise ConfigError(f"{self.setting}={name}: {error}") from error

    def check_name(self, name: str) -> None:
        """Check that a name exists, without importing its target; see `resolve`.

        Raises:
            ConfigError: the name does not exist. `module:name` is not checked.
        """
        self.target(name)

    def is_yaml(self, name: str) -> bool:
        """Return whether a name refers to a YAML file that `from_yaml` can read."""
        return self.from_yaml is not None and name.endswith((".yaml", ".yml"))

    def _load_target(self, target: str) -> Any:
        if not self.is_yaml(target):
            return load(target)
        path = find_file(target)
        if path is None:
            raise ConfigError(f"no such file{NOT_FOUND}")
        return load(str(self.from_yaml))(path)

    def _builtins(self) -> dict[str, Extension]:
        if not isinstance(self.builtin, str):
            targets = dict(self.builtin)
        elif ":" in self.builtin:
            targets = load(self.builtin)()
        else:
            folder = _PACKAGE.joinpath(*self.builtin.split(".")[1:])  # nothing is imported yet
            modules = [m for m in pkgutil.iter_modules([str(folder)]) if not m.ispkg]
            targets = {module.name: f"{self.builtin}.{module.name}" for module in modules}
        return {
            _key(name): Extension(name=name, target=target, origin="agentrl")
            for name, target in targets.items()
        }

    def _find(self, name: str) -> Extension:
        builtins = self._builtins()
        if (found := builtins.get(_key(name))) is not None:
            return found  # skip the search through all installed packages
        known = self.extensions()
        if (one := next((one for one in known if _key(one.name) == _key(name)), None)) is not None:
            return one
        names = [extension.name for extension in known]
        forms = "module:Class" if self.from_yaml is None else "path/file.yaml, module:Class"
        raise ConfigError(
            f"there is no such {self.kind}"
            f"{known_names(name, names, command=f'agentrl list {self.kind}')}; give your own as "
            f"{forms} or path/file.py:Class"
        )

    def _load_named(self, name: str) -> Any:
        target = self._find(name).target
        is_module = ":" not in target and not self.is_yaml(target)
        return self._only_class(target) if is_module else self._load_target(target)

    def _only_class(self, target: str) -> Any:
        """Return the only class of its kind in a module, ignoring names that begin with `_`."""
        module, base = import_module(target), load(str(self.base))
        found = [
            member
            for name, member in vars(module).items()
            if isinstance(member, type)
            and issubclass(member, base)
            and member.__module__ == module.__name__
            and not name.startswith("_")
        ]
        if len(found) != 1:
            names = ", ".join(member.__name__ for member in found) or "none"
            raise ConfigError(
                f"{target} must contain exactly one subclass of {base.__name__}, but contains "
                f"{names}"
            )
        return found[0]

    def _check_base(self, name: str, found: Any) -> None:
        if self.base is None:
            return
        base = load(self.base)
        if not (isinstance(found, type) and issubclass(found, base)):
            raise ConfigError(
                f"{self.setting}={name}: is not a subclass of {base.__module__}.{base.__name__}"
            )


@cache
def _installed_extensions(group: str, search_path: tuple[str, ...]) -> tuple[Extension, ...]:
    """Read the extensions that installed packages add to a group; cached, because it is slow.

    Args:
        group: entry-point group.
        search_path: `sys.path`, where packages are installed.
    """
    import importlib.metadata

    return tuple(
        Extension(
            name=point.name,
            target=point.value.partition("[")[0].strip(),  # the package lacks extras that it needs
            origin=point.dist.name if point.dist is not None else "unknown",
        )
        for point in importlib.metadata.entry_points(group=group)
    )


def _key(name: str) -> str:
    """Normalize a name, so that different spellings are equal."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower())


ALGORITHM = ExtensionPoint(
    kind="algorithm",
    setting="algorithm.name",
    builtin="agentrl.algorithms",
    base="agentrl.algorithms.core.algorithm:Algorithm",
)

LOSS = ExtensionPoint(
    kind="loss",
    setting="algorithm.loss.name",
    builtin={
        "cispo": "agentrl.algorithms.cispo:CISPOLoss",
        "gspo": "agentrl.algorithms.gspo:GSPOLoss",
        "ppo": "agentrl.algorithms.ppo:PPOLoss",
        "sapo": "agentrl.algorithms.sapo:SAPOLoss",
    },
    base="agentrl.algorithms.core.policy_loss:PolicyLoss",
)

DIALECT = ExtensionPoint(
    kind="dialect",
    setting="env.dialect",
    builtin="agentrl.actions.dialects",
    base="agentrl.actions.dialect:Dialect",
)

LOGGER = ExtensionPoint(
    kind="logger",
    setting="logging",
    builtin="agentrl.training.monitoring.loggers",
    base="agentrl.training.monitoring.logger:Logger",
)

DRIVER = ExtensionPoint(
    kind="driver",
    setting="devices.driver",
    builtin="agentrl.devices.adb.drivers",
    base="agentrl.devices.adb.adb_socket:AdbSocket",
)

CAPTURE = ExtensionPoint(
    kind="capture",
    setting="devices.capture",
    builtin={
        "raw": "agentrl.devices.capture.screencap:RawCapture",
        "png": "agentrl.devices.capture.screencap:PngCapture",
        "framebuffer": "agentrl.devices.capture.framebuffer:FramebufferCapture",
        "stream": "agentrl.devices.capture.h264_stream:StreamCapture",
    },
    base="agentrl.devices.capture:Capture",
)

ENV = ExtensionPoint(kind="env", setting="env.id", builtin="agentrl.env_registry:env_targets")

TRANSLATOR = ExtensionPoint(
    kind="translator",
    setting="env.translator_class",
    builtin="agentrl.env_registry:translator_targets",
)

PLAYER = ExtensionPoint(
    kind="player", setting="env.players", builtin="agentrl.env_registry:player_targets"
)

REWARD = ExtensionPoint(
    kind="reward",
    setting="rewards",
    builtin="agentrl.rollout.rewards.reward_names:reward_targets",
)

SAMPLER = ExtensionPoint(
    kind="sampler",
    setting="sampling.name",
    builtin="agentrl.training.sampling.samplers",
    base="agentrl.training.sampling.task_sampler:TaskSampler",
)

SUITE = ExtensionPoint(
    kind="suite",
    setting="eval.suite",
    builtin="agentrl.training.evaluation.suite_files:packaged_suites",
    base="agentrl.training.evaluation.suite:EvaluationSuite",
    from_yaml="agentrl.training.evaluation.suite_files:read_suite",
)

MODEL = ExtensionPoint(
    kind="model",
    setting="model.adapter",
    builtin="agentrl.policies.models.families",
    base="agentrl.policies.models.model_adapter:ModelAdapter",
)

CHAT = ExtensionPoint(
    kind="chat",
    setting="model.chat",
    builtin="agentrl.policies.chat.formats",
    base="agentrl.policies.chat.chat_format:ChatFormat",
)

ENGINE = ExtensionPoint(
    kind="engine",
    setting="rollout.engine",
    builtin={
        "hf": "agentrl.policies.engines.hf_engine:HFEngine",
        "remote": "agentrl.policies.engines.remote_engine:RemoteEngine",
        "sglang": "agentrl.policies.engines.sglang_engine:SGLangEngine",
        "vllm": "agentrl.policies.engines.vllm_engine:VLLMEngine",
    },
    base="agentrl.policies.engines.engine:Engine",
)

TRANSPORT = ExtensionPoint(
    kind="transport",
    setting="train.weight_transfer",
    builtin={
        "file": "agentrl.weight_sync.file_transport:FileTransport",
        "shared": "agentrl.weight_sync.vllm_transport:SharedMemoryTransport",
        "ipc": "agentrl.weight_sync.vllm_transport:IpcTransport",
        "nccl": "agentrl.weight_sync.vllm_transport:NcclTransport",
    },
    base="agentrl.weight_sync.weight_transport:WeightTransport",
)
