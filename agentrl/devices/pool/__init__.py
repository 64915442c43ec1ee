"""A pool that leases phones to episodes, recovers failed ones, and rejects stale holders.

`lease_ledger` holds the state of leases and phones, `pool_manager` acts on it, `recovery` recovers
failed phones, `lease` defines the phone that an episode holds, and `device_pool` is the front end.
"""

from agentrl.devices.pool.device_pool import DevicePool
from agentrl.devices.pool.lease import Borrower

__all__ = ["Borrower", "DevicePool"]
