"""An oracle in double precision throughout, where transformers itself rounds to float32 inside of a float64 model.

Norms, softmaxes and routers of transformers cast to float32 whatever the model's dtype is. Two passes that differ by
1e-16 can then differ by 1e-7 after one norm, which would hide everything smaller. Under `AllDouble` those casts, where
code of transformers makes them, leave doubles as they are, in the unsharded pass and on the ring alike; code of longdoc
is left alone.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear
from torch.overrides import TorchFunctionMode


class AllDouble(TorchFunctionMode):
    """Within the block, in this thread, transformers' casts of float64 tensors to float32 do nothing."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        given = args[0] if args else kwargs.get("input")
        is_double = isinstance(given, Tensor) and given.dtype == torch.float64
        if is_double and _asks_for_float32(func, args, kwargs) and _caller().startswith("transformers."):
            if func in (Tensor.to, Tensor.float, Tensor.type):
                return given
            kwargs = kwargs | {"dtype": torch.float64}
        if func is linear and any(isinstance(arg, Tensor) and arg.dtype == torch.float64 for arg in args):
            # Some routers keep their weights in float32 in a model of any dtype.
            args = tuple(arg.double() if isinstance(arg, Tensor) else arg for arg in args)
        return func(*args, **kwargs)


def _asks_for_float32(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return func is Tensor.float or torch.float32 in (*args[1:], kwargs.get("dtype"))


def _caller() -> str:
    """The module of the code outside of torch that made the call."""
    frame: FrameType | None = sys._getframe(2)
    while frame and str(frame.f_globals.get("__name__")).split(".")[0] == "torch":
        frame = frame.f_back
    return str(frame.f_globals.get("__name__")) if frame else ""
