"""Processes for which the kernel refuses to rename, as some mounted buckets do."""

import ctypes
import errno
import platform
import struct
import sys

import pytest

_SYSCALLS = {"x86_64": (82, 264, 316), "aarch64": (38, 276)}
"""rename, renameat, renameat2, as far as the architecture has them."""
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 38, 22, 2
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000


def forbid_rename() -> None:
    """Let every rename of this process and its children fail with ENOSYS (seccomp, Linux)."""
    numbers = _SYSCALLS.get(platform.machine(), ())
    program = [(_LOAD, 0, 0, 0)]
    for place, number in enumerate(numbers):
        program.append((_JUMP_IF_EQUAL, len(numbers) - place, 0, number))
    program += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in program))
    about = ctypes.create_string_buffer(
        struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
    )
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(_PR_SET_SECCOMP, _FILTER, about):
        raise OSError(ctypes.get_errno(), "seccomp")


needs_seccomp = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in _SYSCALLS,
    reason="a filter of system calls is needed",
)
