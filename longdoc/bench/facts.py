"""What ran: versions, processor, cores, load, commit. The lines without which a benchmark's numbers say nothing."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import longdoc
from longdoc.bench.report import Cell
from longdoc.machine import available_bytes, num_cores

_PACKAGES = ("torch", "transformers", "numpy")


def machine_facts() -> dict[str, Cell]:
    """Facts about this machine and this code, in the order in which they are printed."""
    return {
        "longdoc": f"{longdoc.__version__}{_commit()}",
        **{package: package_version(package) for package in _PACKAGES},
        "python": platform.python_version(),
        "processor": processor(),
        "cores": num_cores(),
        "free memory GiB": round(available_bytes() / 2**30, 1),
        # A machine that is busy with something else makes every ratio worthless; this is how a reader can tell.
        "load before": round(os.getloadavg()[0], 2),
    }


def package_version(package: str) -> str | None:
    """The installed version of a distribution, None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str:
    """The commit of the checkout this code stands in, and whether the code differs from it; nothing elsewhere."""
    root = Path(longdoc.__file__).parents[1]
    if not (root / ".git").exists():
        return ""
    try:
        commit = _git(root, "rev-parse", "--short=12", "HEAD")
        changed = _git(root, "status", "--porcelain", "--", "longdoc")
    except (OSError, subprocess.SubprocessError):
        return ""
    return f" at {commit}{' with changes' if changed else ''}"


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True, timeout=30)
    return done.stdout.strip()


def processor() -> str:
    """The processor's name: Linux tells it in /proc/cpuinfo, others through `platform`."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
