"""Signals that wait for the end of a block, or are not heard in it."""

import os
import signal
import time

import pytest

from longdoc.cluster.signals import signals_held, signals_ignored


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("fails", [False, True])
def test_a_signal_takes_effect_at_the_end_also_of_a_block_that_fails(number, fails):
    before, done = signal.getsignal(number), []

    def block():
        with signals_held():
            os.kill(os.getpid(), number)
            time.sleep(0.01)
            done.append(True)
            if fails:
                raise OSError("no space")

    with pytest.raises(KeyboardInterrupt):
        block()
    assert done
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_does_not_stop_the_stopping(number):
    before = signal.getsignal(number)
    with signals_ignored():
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before
