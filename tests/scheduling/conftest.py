"""Fixtures of the schedule's tests."""

import os

import pytest
from schedule_fakes import FakeClock, Machine


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch):
    """Hundreds of small records: waiting for the disk to have each would take most of the time."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def machine():
    """One machine, at the start of time."""
    return Machine("one", FakeClock())
