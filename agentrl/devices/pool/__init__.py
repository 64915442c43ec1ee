"""A pool that leases phones to episodes, recovers failed ones, and rejects stale holders.

`lease_ledger` holds the state of leases and phones, `pool_manager` acts on it and is the front end,
`recovery` recovers failed phones, and `lease` defines the phone that an episode holds.
"""

from agentrl.devices.pool.lease import Borrower
from agentrl.devices.pool.pool_manager import DevicePool

__all__ = ["Borrower", "DevicePool"]
