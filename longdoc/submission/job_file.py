"""The job file that a submitted run is given: every option that was chosen, by its name on the command line.

Owns writing TOML (https://toml.io/en/v1.0.0) as far as options need it; `longdoc.config.read_job_file` reads it.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from longdoc.errors import StartError
from longdoc.records import display

_ESCAPED = re.compile(r'[\x00-\x1f"\\\x7f]')


def job_file(options: Mapping[str, Any]) -> bytes:
    """The options as TOML, in their order; None is left out. Raises `StartError` for a text that is not UTF-8."""
    lines = [
        f"{name.replace('_', '-')} = {_value(name, value)}\n" for name, value in options.items() if value is not None
    ]
    return "".join(lines).encode("utf-8")


def _value(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return _text(name, value)
    if isinstance(value, Sequence):
        return "[" + ", ".join(_text(name, each) for each in value) + "]"
    raise TypeError(f"{name} is {type(value).__name__}, which no option is")


def _text(name: str, text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        cause = f"{name.replace('_', '-')} {display(text)} is not UTF-8, and job files are"
        raise StartError(f"{cause}. Name it otherwise, for example by a folder above it.") from None
    return '"' + _ESCAPED.sub(lambda found: f"\\u{ord(found.group()):04x}", text) + '"'
