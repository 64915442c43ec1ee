"""A pool that leases phones to episodes, recovers failed ones, and rejects stale holders.

`ledger` holds the state of leases and phones, `keeper` acts on it, `ladder` recovers failed
phones, `lease` is what an episode holds, `borrowing` is how it gets one, and `lending` is the
protocol between the two sides.
"""

from agentrl.devices.pool.device_pool import Borrower, DevicePool

__all__ = ["Borrower", "DevicePool"]
