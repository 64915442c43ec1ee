import subprocess
import sys
from pathlib import Path

FUZZ = Path(__file__).parents[3] / "benchmarks" / "fuzz.py"


def test_the_phone_survives_thousands_of_malicious_packets() -> None:
    done = subprocess.run(
        [sys.executable, FUZZ, "--packets", "5000", "--seed", "1"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=FUZZ.parents[1],
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "BUG" not in done.stdout
