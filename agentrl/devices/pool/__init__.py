"""A pool that leases phones to episodes, recovers failed ones, and rejects stale holders.

`lease_ledger` holds the state of leases and phones, `pool_manager` acts on it, `recovery` recovers
failed phones, `lease` is what an episode holds, and `device_pool` is how it gets one.
"""

from agentrl.devices.pool.device_pool import Borrower, DevicePool

__all__ = ["Borrower", "DevicePool"]
