"""The errors of virtual phones, a package of its own, as those of agentrl."""

import contextlib
from collections.abc import Iterator

from agentrl.errors import ConfigError, DeviceError, DeviceTimeout
from virtual_phone.errors import SettingError, StartError, StartTimeout


@contextlib.contextmanager
def phone_errors() -> Iterator[None]:
    """Raise errors of virtual phones as ConfigError, DeviceTimeout or DeviceError."""
    try:
        yield
    except SettingError as error:
        raise ConfigError(str(error)) from error
    except StartTimeout as error:
        raise DeviceTimeout(str(error)) from error
    except StartError as error:
        raise DeviceError(str(error)) from error
