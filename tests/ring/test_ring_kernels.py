"""Kernels and the merge of their results, against float64 definitions."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ring_oracles import HEAD_DIM, attention_by_definition, random_qkv, relative_error
from scipy.special import logsumexp  # type: ignore[import-untyped]

from longdoc.errors import StartError
from longdoc.ring.kernels import choose_kernel
from longdoc.ring.merge import Accumulator, merge_

NAMES = ["torch", "reference"]
SCALE = HEAD_DIM**-0.5
