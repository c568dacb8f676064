"""Session-wide pieces of the tests behind the rings."""

import pytest
import torch
from loopback_path import Answer, Case, make_case, make_engine, plain_answer

from longdoc.cluster.compute import Engine


@pytest.fixture(scope="session")
def case(tiny_model) -> Case:
    return make_case(tiny_model)


@pytest.fixture(scope="session")
def engine(tiny_model) -> Engine:
    return make_engine(tiny_model, torch.float64)


@pytest.fixture(scope="session")
def answer(tiny_model, case) -> Answer:
    return plain_answer(tiny_model, case, torch.float64)
