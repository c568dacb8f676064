"""Running the command as a user does, in a process of its own."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_SECONDS = 240


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "longdoc", *map(str, arguments)]


def longdoc(*arguments: object, cwd: Path | None = None, **environment: str) -> Ended:
    """Run `longdoc` to its end in a process of its own."""
    done = subprocess.run(
        command(*arguments),
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    return Ended(code=done.returncode, out=done.stdout, err=done.stderr)


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    done = subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()
