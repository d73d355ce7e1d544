"""The partners of hazard programs: worker 1, which pushes known values when worker 0 lets it."""

import numpy as np
import tensorkv as mx

LONGEST = 60  # seconds for one step


def partner_value(key, round):
    """Return the value that worker 1 pushes, the same for all elements."""
    return float(7 * key + 11 * (round % 50) + 100)


class NoPartner:
    """A store whose worker is alone: nothing is ever held."""

    holds = False

    def add(self, key, name, count):
        """Begin a key."""


class ThreadPartner:
    """Worker 1 is a store of this process."""

    holds = True

    def __init__(self, kv):
        self.kv = kv

    def add(self, key, name, count):
        """Begin a key."""
        self.kv.init(name, mx.nd.zeros((count,)))

    def rounds(self, rounds, count):
        """Push rounds of keys, each (key, name, round), and return their sums; they may end in any order."""
        outs = [np.zeros(count, np.float32) for _ in rounds]
        tickets = []
        for out, (key, name, round) in zip(outs, rounds, strict=True):
            value = mx.nd.full((count,), partner_value(key, round))
            tickets.append(self.kv.pushpull(name, value, out=out, async_op=True))
        for ticket in tickets:
            ticket.wait(LONGEST)
        return outs


class PipePartner:
    """Worker 1 is another process, which runs `serve_partner`."""

    holds = True

    def __init__(self, pipe):
        self.pipe = pipe

    def add(self, key, name, count):
        """Begin a key."""
        self._ask("add", key, name, count)

    def rounds(self, rounds, count):
        """Push rounds of keys and return their sums."""
        return self._ask("rounds", rounds, count)

    def _ask(self, *question):
        self.pipe.send(question)
        answer = self.pipe.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer


def serve_partner(kv, pipe):
    """Carry out the requests of a PipePartner until it closes the pipe."""
    partner = ThreadPartner(kv)
    while True:
        try:
            verb, *arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(getattr(partner, verb)(*arguments))
        except Exception as error:
            pipe.send(RuntimeError(f"the partner: {error}"))
