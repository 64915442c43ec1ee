"""Run scripts in Android's real shell and with its real programs: mksh, toybox, one-true-awk."""

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.virtual_phone.shell_runner import probe_phone, run_later

FOLDER = "/data/local/tmp/scratch"
FILES = {
    "a.txt": b"banana 3\napple 1\ncherry 2\napple 10\n",
    "n.txt": b"10\n9\n2\n33\n1\n",
    "c.csv": b"id,name,v\n1,foo,2.5\n2,bar,3.5\n",
    "d/e.txt": b"deep\n",
    "raw": b"\xff\xfe\n\x80a\n",
}
Result = tuple[str, int]
"""Standard output and exit code."""
needs_mksh = pytest.mark.skipif(
    shutil.which("mksh") is None or shutil.which("toybox") is None,
    reason="needs the real shell: apt-get install mksh toybox original-awk",
)


def folder_of_programs(folder: Path) -> Path:
    """Return a folder with toybox under each of its names, and programs missing in Debian's."""
    toybox = shutil.which("toybox")
    assert toybox is not None
    listed = subprocess.run([toybox], capture_output=True, text=True, check=True).stdout.split()
    for name in listed:
        (folder / name).symlink_to(toybox)
    # Android's awk is the one-true-awk. Its toybox has the other programs; Debian's does not.
    others = {"awk": "original-awk", "tr": "tr", "expr": "expr", "diff": "diff"}
    others["sh"] = "mksh"
    for name, program in others.items():
        found = shutil.which(program)
        if found is not None and not (folder / name).exists():
            (folder / name).symlink_to(found)
    return folder


def run_real(script: str, programs: Path, scratch: Path) -> Result:
    """Run a script in mksh, in a new folder with the files."""
    scratch.mkdir(parents=True)
    for name, content in FILES.items():
        (scratch / name).parent.mkdir(exist_ok=True)
        (scratch / name).write_bytes(content)
    environment = {"PATH": str(programs), "HOME": "/", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    mksh = shutil.which("mksh")
    assert mksh is not None
    done = subprocess.run(
        [mksh, "-c", script], cwd=scratch, env=environment, stdin=subprocess.DEVNULL,
        capture_output=True, timeout=30, check=False, preexec_fn=os.setsid,
    )  # fmt: skip
    code = done.returncode if done.returncode >= 0 else 128 - done.returncode
    return done.stdout.decode("utf-8", "surrogateescape"), code


async def run_virtual(script: str) -> Result:
    """Run a script on a new virtual phone, in a folder with the files."""
    phone = probe_phone()
    phone.files.make_folders(f"{FOLDER}/d")
    for name, content in FILES.items():
        phone.files.write(f"{FOLDER}/{name}", content)
    done = await run_later(f"cd {FOLDER}\n{script}", phone)
    return done.out, done.code


def both(script: str, programs: Path, scratch: Path) -> tuple[Result, Result]:
    """Return the results of the virtual phone and of the real shell."""
    return asyncio.run(run_virtual(script)), run_real(script, programs, scratch)
