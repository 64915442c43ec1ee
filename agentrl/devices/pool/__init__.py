"""Phones that are lent: kept, mended when they fail, and refused to all but their holder.

`ledger` is the books, `keeper` acts on them, `ladder` mends, `lease` is what an episode holds, and
`borrowing` is how it gets one; `lending` is what keepers and borrowers tell each other.
"""

from agentrl.devices.pool.device_pool import Borrower, DevicePool

__all__ = ["Borrower", "DevicePool"]
