"""What the processes of contestants run in these tests; apart, so that a spawned process can import it."""

import os
from collections.abc import Callable
from typing import Any

from longdoc.errors import StartError


def build_adder(exchange: Any, first: int) -> Callable[..., Any]:
    def handle(command: str, number: int = 0) -> Any:
        if command == "refuse":
            raise StartError(f"{first} is refused")
        if command == "stumble":
            raise ValueError("no such number. Visit a web page.\nand more")
        if command == "die":
            os._exit(7)
        return (exchange.rank if exchange else None, first + number)

    return handle


def build_nothing(exchange: Any) -> Callable[..., Any]:
    raise StartError("not installed: pip install nothing")
