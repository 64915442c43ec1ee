"""The package's symbolic links `envs`, `rewards` and `configs`: docs/decisions/001-links.md."""

from pathlib import Path

from agentrl.errors import ConfigError

_PACKAGE = Path(__file__).resolve().parent
_LINKED = ("envs", "rewards", "configs")


def refuse_bare_name(name: str) -> None:
    """Reject an import of `envs` or `rewards` by bare name, which would create a second registry.

    Args:
        name: the `__name__` of the module being imported.

    Raises:
        ImportError: the module is imported by its folder's bare name.
    """
    top = name.partition(".")[0]
    if top in _LINKED:
        raise ImportError(
            f"{name!r} was imported by its folder's name; import 'agentrl.{name}' instead, "
            "so that nothing is registered twice"
        )


def check_links(package: Path = _PACKAGE) -> None:
    """Check that the links of a checkout are intact.

    Args:
        package: the folder of the package.

    Raises:
        ConfigError: a link is missing, or is a text file.
    """
    broken = [name for name in _LINKED if not (package / name).is_dir()]
    if broken:
        raise ConfigError(
            f"{package}: {', '.join(broken)} must be symbolic links to the folders of the same "
            "name at the top of the checkout (some ZIP extractors, and Windows without symlinks, "
            "write text files instead). Clone with 'git clone -c core.symlinks=true', or "
            f"replace each: 'ln -sfn ../{broken[0]} {package / broken[0]}'"
        )
