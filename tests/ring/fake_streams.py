"""A stand-in for torch.cuda's streams and events: work is enqueued, and run later in any order that events allow."""

import contextlib
import random


class Stream:
    def __init__(self, cuda):
        self.cuda, self.queue = cuda, []
        cuda.streams.append(self)

    def enqueue(self, action, ready=lambda: True):
        self.queue.append((ready, action))

    def record_event(self):
        event = Event(self.cuda)
        self.enqueue(event.happen)
        return event

    def wait_event(self, event):
        self.enqueue(lambda: None, ready=lambda: event.happened)

    def wait_stream(self, other):
        self.wait_event(other.record_event())


class Event:
    def __init__(self, cuda):
        self.cuda, self.happened = cuda, False

    def happen(self):
        self.happened = True

    def query(self):
        return self.happened


class Work:
    """NCCL's work: it runs on a stream of its own that waited for the current one; `wait` orders the current one."""

    def __init__(self, cuda, action, ready=lambda: True):
        self.cuda, stream = cuda, cuda.nccl
        stream.wait_stream(cuda.current_stream())
        stream.enqueue(action, ready)
        self.done = stream.record_event()

    def wait(self):
        self.cuda.current_stream().wait_event(self.done)


class FakeCuda:
    """One device. `run` executes what streams hold, one piece at a time, the stream drawn at random."""

    def __init__(self, seed):
        self.random, self.streams = random.Random(seed), []
        self.compute, self.nccl = Stream(self), Stream(self)
        self.current = self.compute

    def Stream(self, device=None):  # noqa: N802 (torch's name)
        return Stream(self)

    def current_stream(self, device=None):
        return self.current

    @contextlib.contextmanager
    def stream(self, stream):
        before, self.current = self.current, stream
        yield
        self.current = before

    def run(self, num_pieces=10**9):
        while num_pieces:
            able = [stream for stream in self.streams if stream.queue and stream.queue[0][0]()]
            if not able:
                return
            _, action = self.random.choice(able).queue.pop(0)
            action()
            num_pieces -= 1
