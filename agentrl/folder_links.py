"""The links `agentrl/envs`, `agentrl/rewards` and `agentrl/configs`, and the guards around them.

Why there are links at all: docs/decisions/001-links.md.
"""

from pathlib import Path

from agentrl.errors import ConfigError

_PACKAGE = Path(__file__).resolve().parent
_LINKED = ("envs", "rewards", "configs")


def refuse_bare_name(name: str) -> None:
    """Refuse a second copy of `envs` or `rewards`, which would be a second registry.

    Args:
        name: the `__name__` of the module that is being imported.

    Raises:
        ImportError: it is imported by its folder's bare name.
    """
    top = name.partition(".")[0]
    if top in _LINKED:
        raise ImportError(
            f"{name!r} was imported by its folder's name; import 'agentrl.{name}' instead, "
            "so that nothing is registered twice"
        )


def check_links(package: Path = _PACKAGE) -> None:
    """Notice a checkout whose links became text files, or were left out.

    Args:
        package: the folder of the package.

    Raises:
        ConfigError: one of the links does not lead to a folder.
    """
    broken = [name for name in _LINKED if not (package / name).is_dir()]
    if broken:
        raise ConfigError(
            f"{package}: {', '.join(broken)} should be links to the folders of the same name at "
            "the top of the checkout, but they are not (some ZIP extractors and Windows without "
            "symlinks write text files instead). Clone with 'git clone -c core.symlinks=true', or "
            f"replace each: 'ln -sfn ../{broken[0]} {package / broken[0]}'"
        )
