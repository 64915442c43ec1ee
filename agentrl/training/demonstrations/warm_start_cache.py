"""The cache of warm starts, and the record of warm starts in a model's folder."""

import hashlib
import itertools
import json
import logging
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentrl import env_registry, user_code
from agentrl._version import __version__
from agentrl.config import (
    DevicesConfig,
    ModelConfig,
    WarmStartConfig,
)
from agentrl.errors import AgentRLError
from agentrl.extension_points import DIALECT
from agentrl.policies.models.model_record import extend_record, model_record
from agentrl.policies.models.model_source import local_folder
from agentrl.rollout.environments.load_translator_and_players import open_translator
from agentrl.rollout.environments.prompt_messages import instructions_for
from agentrl.rollout.environments.resolved_env import ResolvedEnv
from agentrl.training.demonstrations.demonstration_filter import (
    SelectedEpisode,
    demonstrations_digest,
)

if TYPE_CHECKING:
    from agentrl.training.learner.learner_group import AnyLearner

_LARGE = 10_000_000
_KEY = "warm_starts"
"""Key in a model's record for the warm starts of its weights, by environment."""

log = logging.getLogger(__name__)


def cache_folder(
    warm: WarmStartConfig,
    model: ModelConfig,
    environments: Sequence[ResolvedEnv],
    mixture: Mapping[str, float],
    devices: DevicesConfig,
    run_seed: int,
    recorded: Sequence[SelectedEpisode] = (),
) -> Path | None:
    """Return the cache folder for this warm start's result; None if it is not cached.

    The folder's name is a digest of everything that determines the result: settings, data, the
    user's files and agentrl's version. A model with 4-bit base weights is not cached, because its
    adapters make changes smaller than a 4-bit step, which quantizing the merged weights would lose.
    """
    if warm.cache is None or (model.lora.rank and model.lora.base == "nf4"):
        return None
    parts = {
        "seed": run_seed,
        "model": asdict(model),
        "env": [asdict(one.settings) for one in environments],
        "mixture": mixture,
        "warm_start": asdict(warm),
        "version": __version__,  # represents our own code
        "devices": [devices.tempo, devices.effect_delay_ms, devices.size],
        "files": [_files_digest(one, model, warm) for one in environments],
        "instructions": [
            instructions_for(one.settings, open_translator(one)) for one in environments
        ],
        "recorded": demonstrations_digest(recorded),
    }
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()
    return Path(warm.cache).expanduser() / "warm" / digest[:16]


def _files_digest(env: ResolvedEnv, model: ModelConfig, warm: WarmStartConfig) -> str:
    """Return a digest of the user's files that the warm start depends on.

    These are files named in the environment's arguments (such as a data set), files of a local
    model folder, and folders of modules outside the package, whose code the package's version does
    not identify.
    """
    players = [] if warm.player is None else env.players.values()  # one may play through another
    named = [env.registration.translator, *players, env.app]
    modules = {reference.rpartition(":")[0] for reference in named if reference}
    modules.add(env.entry_point.__module__)
    if env.settings.dialect is not None:
        modules.add(DIALECT.resolve(env.settings.dialect).__module__)
    # Skip our own modules, which change only with the package's version.
    foreign = {one for one in modules if not one.startswith("agentrl.")}
    files = {user_code.import_module(one).__file__ for one in foreign}
    folders = {Path(file).parent for file in files if file}
    folders.add(local_folder(model))
    digest = hashlib.sha256()
    beside = sorted(f for folder in folders for f in folder.glob("*") if f.is_file())
    for file in (*beside, *_named_files(env.settings.kwargs)):
        # Identify large files (weights) by size and time, because reading gigabytes would take too
        # long.
        large = file.stat().st_size > _LARGE
        digest.update(str(file.stat()[-4:]).encode() if large else file.read_bytes())
    return digest.hexdigest()


def _named_files(value: Any) -> Iterator[Path]:
    """Return the files named in an environment's arguments, here or in `sys.path`."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _named_files(item)
    elif isinstance(value, str) and value:
        places = (Path(folder, value) for folder in ("", *sys.path))
        yield from itertools.islice(filter(_is_file, places), 1)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a string that cannot be a path
        return False


def save_to_cache(
    folder: Path, warm: WarmStartConfig, env_ids: Iterable[str], learner: "AnyLearner"
) -> bool:
    """Put the trained model into the cache atomically; a failure only logs a warning.

    Returns:
        True if the model is in the cache.
    """
    # Runs that start together may train the same warm start, so each writes to its own folder.
    partial = folder.with_name(f"{folder.name}.{os.getpid()}")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        learner.export(partial)
        write_marker(partial, warm, env_ids)
        partial.rename(folder)
    except (OSError, AgentRLError) as error:
        if not folder.is_dir():  # another run may have cached it in the meantime
            log.warning("the warm start could not be cached in %s: %s", folder, error)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder.is_dir()


def has_warm_start(folder: Path, warm: WarmStartConfig, env_id: str) -> bool:
    """Return whether a job skips its warm start because the model in this folder already had it.

    Raises:
        ConfigError: the folder's record is damaged.
    """
    return not warm.repeat and _registered_id(env_id) in model_record(folder).get(_KEY, {})


def write_marker(folder: Path, warm: WarmStartConfig, env_ids: Iterable[str]) -> None:
    """Record a warm start for these environments in the folder of the resulting model."""
    record: dict[str, Any] = {"player": warm.player, "episodes": warm.episodes, "steps": warm.steps}
    if warm.recorded:
        record["recorded"] = warm.recorded
    ids = [one for one in env_ids if not has_warm_start(folder, warm, one)]
    if ids:
        own = {_registered_id(one): record for one in ids}
        extend_record(folder, {_KEY: model_record(folder).get(_KEY, {}) | own})


def _registered_id(env_id: str) -> str:
    """Return the environment's registered id, whichever way the configuration refers to it."""
    return env_registry.find_env(env_id).id
