"""Write gpu.txt again: the versions of the GPU stack for each Python, from PyPI.

    pip install uv && python requirements/resolve_gpu.py

Pins that still fit stay; delete gpu.txt first for the newest versions.
"""

import subprocess
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent
PINS = FOLDER / "gpu.txt"
PYTHONS = ("3.11", "3.12", "3.13")
HEADER = f"""\
# The GPU stack: everything that agentrl-screens[gpu,ppadb] brings along, for Linux on x86_64,
# CUDA 13 and Python {", ".join(PYTHONS)}. Written by requirements/resolve_gpu.py;
# resolved only; torch, transformers, vLLM and Ray have run on an H100 (docs/results.md).
# flash-attn is optional; PyPI has only its source, whose build imports torch, so it comes last:
#   pip install -r requirements/gpu.txt && pip install --no-build-isolation flash-attn==2.8.3.post2
"""


def resolve(python: str) -> list[str]:
    """The pins for one version of Python, as lines `name==version`."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "pins.txt"
        if PINS.exists():  # uv keeps what the output file pins, where it can
            output.write_text("".join(f"{pin}\n" for pin in known(python)))
        command = ["uv", "pip", "compile", "pyproject.toml", "--extra=gpu", "--extra=ppadb"]
        command += ["--quiet", "--no-annotate", "--no-header"]
        command += ["--python-platform=x86_64-manylinux_2_28"]
        command += [f"--python-version={python}", f"--output-file={output}"]
        subprocess.run(command, cwd=FOLDER.parent, check=True)
        return output.read_text().split()


def known(python: str) -> list[str]:
    """The pins of gpu.txt for one version of Python."""
    lines = [line.partition(" ; ") for line in PINS.read_text().splitlines() if line[0] != "#"]
    return [pin for pin, _, marker in lines if not marker or marker == marker_of(python)]


def marker_of(python: str) -> str:
    """The marker of pins that one version of Python needs in another version, or not at all."""
    return f"python_version == '{python}'"


def main() -> None:
    """Resolve for each Python; pins that differ get a marker."""
    found = {python: resolve(python) for python in PYTHONS}
    lines = []
    pins = {pin for resolved in found.values() for pin in resolved}
    for pin in sorted(pins, key=lambda pin: pin.split("==")):
        users = [python for python in PYTHONS if pin in found[python]]
        if users == [*PYTHONS]:
            lines.append(pin)
        else:
            lines += [f"{pin} ; {marker_of(python)}" for python in users]
    PINS.write_text(HEADER + "".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main()
