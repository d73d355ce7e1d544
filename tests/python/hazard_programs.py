"""Random programs of array and store operations, compared with the same program run one step after the other in NumPy.

A program is a list of steps; a step is a name and whole numbers, from which its operands follow, so that a program with
steps left out is a program. Its arrays are NDArrays, views of them, arrays of NumPy and PyTorch. Each array has a
mirror, the content that it has to hold according to NumPy.

Worker 1 of the job (the partner) pushes a known value in each round, and only when the program permits it. Until then
worker 0's pushes and pulls stay under way. A warden releases the partner when worker 0 waits, so no program hangs. A
write that should have waited and did not has done its damage by then.
"""

import contextlib
import os
import random
import threading
import traceback

import numpy as np
import tensorkv as mx
from hazard_arrays import ALL_WRITERS, READERS, Slot, framework, make_slots
from hazard_partners import LONGEST, partner_value
from tensorkv.errors import CancelledError, DeadlineExceededError

KEYS = 3
STUCK = 0.003  # seconds after which the warden takes a call for one that waits
LATE_PATIENCE = 0.4  # of the stores of programs in which calls fail
SIZES = (7, 1000, 1000, 3000, 3000, 3000, 150_000)

STEPS = (
    ["write"] * 8
    + ["write_raw"] * 3
    + ["read"] * 3
    + ["assign_slot", "copy_slot", "add_slot"]
    + ["push"] * 4
    + ["push_async", "push_list", "push_keys", "push_keys"]
    + ["pull", "pull", "pull_async", "pull_async", "pull_async", "pull_list", "pull_fresh"]
    + ["pushpull", "pushpull_async", "pushpull_async", "pushpull_in_place", "pushpull_keys_async"]
    + ["wait", "wait_all", "let", "push_jax"]
)
LATE_STEPS = ["late_pull", "late_pushpull", "late_pushpull_queued", "late_ticket", "cancelled"]


def make_program(rng, is_late=False):
    """Return a program."""
    names = [rng.choice(STEPS) for _ in range(rng.randrange(8, 30))]
    if is_late:
        names[len(names) // 2] = rng.choice(LATE_STEPS)
    return [(name, *(rng.randrange(1 << 30) for _ in range(4))) for name in names]


class Wrong(AssertionError):
    """The result of a program differs from NumPy's."""


class Run:
    """A run of a program on one store."""

    def __init__(self, kv, partner, seed, name):
        self.kv, self.partner, self.name = kv, partner, name
        rng = random.Random(seed)
        self.count = rng.choice(SIZES)
        self.slots = make_slots(rng, self.count)
        self.values = [np.zeros(self.count, np.float32) for _ in range(KEYS)]
        self.expected = [[] for _ in range(KEYS)]  # the sum of each round
        self.let_rounds = [0] * KEYS
        self.tickets = []  # with the slots that they write to
        self.lock = threading.Lock()
        for key in range(KEYS):
            # Both have to begin it, and neither before the other has.
            thread = threading.Thread(target=self._add, args=(key,))
            thread.start()
            kv.init(self.key(key), mx.nd.zeros((self.count,)))
            thread.join()

    def _add(self, key):
        self.partner.add(key, self.key(key), self.count)

    def key(self, number):
        """Return the key's name."""
        return f"{self.name}.{number}"

    # ---- the other worker

    def let(self):
        """Let the partner push all rounds that worker 0 has begun."""
        if not self.partner.holds:
            return
        with self.lock:
            rounds = []
            for key in range(KEYS):
                begun = range(self.let_rounds[key] + 1, len(self.expected[key]) + 1)
                rounds += [(key, self.key(key), round) for round in begun]
                self.let_rounds[key] = begun.stop - 1
            if not rounds:
                return
            sums = self.partner.rounds(rounds, self.count)
            for (key, name, round), got in zip(rounds, sums, strict=True):
                self.same(got, self.expected[key][round - 1], f"the sum of {name}, round {round}")

    @contextlib.contextmanager
    def warden(self):
        """Release the partner if the block takes long."""
        if not self.partner.holds:
            yield
            return
        is_over = threading.Event()
        failure = []

        def watch():
            try:
                while not is_over.wait(STUCK):
                    self.let()
            except BaseException as error:
                failure.append(error)

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
        if failure:
            raise failure[0]

    # ---- what is right

    def same(self, got, wanted, what):
        """Compare elements."""
        got = np.asarray(got)
        if got.shape == wanted.shape and (got == wanted).all():
            return
        if got.shape != wanted.shape or got.dtype.kind not in "fib":
            raise Wrong(f"{what}: {got}, not {wanted}")
        at = int(np.flatnonzero(got != wanted)[0])
        raise Wrong(
            f"{what}: {int((got != wanted).sum())} of {got.size} are wrong, [{at}] is {got[at]}, not {wanted[at]}"
        )

    def slot(self, number, is_raw=False):
        """Return a slot that may be touched; wait before for operations that its framework cannot know of, as docs
        require.
        """
        slot = self.slots[number % len(self.slots)]
        if is_raw or not slot.is_ours:
            self.settle(slot)
        return slot

    def settle(self, slot):
        """Wait for the tickets that write to a slot's memory."""
        for ticket, outs in list(self.tickets):
            if any(np.shares_memory(slot.mirror, out.mirror) for out in outs):
                ticket.wait(LONGEST)
                self.tickets.remove((ticket, outs))

    def pushed(self, key, slots):
        """Note a round."""
        total = slots[0].mirror.copy()
        for slot in slots[1:]:
            total += slot.mirror
        round = len(self.expected[key]) + 1
        if self.partner.holds:
            total += np.float32(partner_value(key, round))
        self.values[key] = total
        self.expected[key].append(total)

    def pulled(self, key, slots):
        """Note values that arrive."""
        for slot in slots:
            slot.mirror[:] = self.values[key]

    # ---- steps

    def do(self, step):
        """Do one step."""
        name, *numbers = step
        with contextlib.nullcontext() if name in LATE_STEPS else self.warden():
            getattr(self, "do_" + name)(*numbers)

    def do_write(self, a, how, x, i):
        """Change an array through the library, or by its own framework."""
        slot = self.slot(a)
        x, i = x % 1000, i % (self.count // 3)
        if slot.is_ours:
            ALL_WRITERS[how % len(ALL_WRITERS)](slot.obj, slot.mirror, x, i)
        elif slot.kind == "torch":
            slot.obj.fill_(x)
            slot.mirror[:] = x
        else:
            slot.obj[i:] = x
            slot.mirror[i:] = x

    def do_write_raw(self, a, how, x, i):
        """Change an array through a view that was made before."""
        slots = [slot for slot in self.slots if slot.raw is not None]
        slot = slots[a % len(slots)]
        self.settle(slot)
        slot.raw[i % self.count :] = x % 1000
        slot.mirror[i % self.count :] = x % 1000

    def do_read(self, a, how, *_):
        """Look at an array."""
        slot = self.slot(a)
        if not slot.is_ours:
            return self.same(slot.read(), slot.mirror, f"slot {a % len(self.slots)} ({slot.kind})")
        name = list(READERS)[how % len(READERS)]
        self.same(READERS[name](slot.obj), slot.mirror, f"slot {a % len(self.slots)} ({slot.kind}) by {name}")

    def do_assign_slot(self, a, b, *_):
        """Assign one array to another one."""
        a, b = self.slot(a), self.slot(b)
        if a.is_ours:
            a.obj[:] = b.obj
            a.mirror[:] = b.mirror.copy()

    def do_copy_slot(self, a, b, *_):
        """Copy one array into another one."""
        a, b = self.slot(a), self.slot(b)
        if a.is_ours and b.is_ours:
            a.obj.copyto(b.obj)
            b.mirror[:] = a.mirror.copy()

    def do_add_slot(self, a, b, *_):
        """Subtract one array from another one and give it back."""
        a, b = self.slot(a), self.slot(b)
        if a.is_ours and b.is_ours and not np.shares_memory(a.mirror, b.mirror):
            a.obj -= b.obj
            a.mirror -= b.mirror
            a.obj += b.obj
            a.mirror += b.mirror

    def do_push(self, key, a, *_):
        """Push one array."""
        key, slot = key % KEYS, self.slot(a)
        self.pushed(key, [slot])
        self.kv.push(self.key(key), slot.obj)

    def do_push_async(self, key, a, *_):
        """Push one array, with a ticket."""
        key, slot = key % KEYS, self.slot(a)
        self.pushed(key, [slot])
        self.tickets.append((self.kv.push(self.key(key), slot.obj, async_op=True), []))

    def do_push_jax(self, key, x, *_):
        """Push a JAX array, where there is JAX and the array is small."""
        jax = framework("jax")
        if jax is None:
            return
        slot = Slot("jax", jax.numpy.full(self.count, x % 1000, "float32"), np.full(self.count, x % 1000, np.float32))
        self.pushed(key % KEYS, [slot])
        self.kv.push(self.key(key % KEYS), slot.obj)

    def do_push_list(self, key, a, b, priority):
        """Push the sum of two arrays, with a priority."""
        key, slots = key % KEYS, [self.slot(a), self.slot(b)]
        self.pushed(key, slots)
        self.kv.push(self.key(key), [slot.obj for slot in slots], priority=priority % 5)

    def do_push_keys(self, first, a, b, c):
        """Push several keys at once."""
        slots = [self.slot(n) for n in (a, b, c)]
        for key in range(KEYS):
            self.pushed(key, [slots[key]])
        self.kv.push([self.key(key) for key in range(KEYS)], [slot.obj for slot in slots])

    def do_pull(self, key, a, *_):
        """Pull into one array."""
        key, slot = key % KEYS, self.slot(a)
        self.kv.pull(self.key(key), out=slot.obj)
        self.pulled(key, [slot])

    def do_pull_list(self, key, a, b, *_):
        """Pull into two arrays."""
        key, slots = key % KEYS, [self.slot(a), self.slot(b)]
        self.kv.pull(self.key(key), out=[slot.obj for slot in slots])
        self.pulled(key, slots)

    def do_pull_async(self, key, a, *_):
        """Pull into one array, with a ticket."""
        key, slot = key % KEYS, self.slot(a)
        ticket = self.kv.pull(self.key(key), out=slot.obj, async_op=True)
        self.pulled(key, [slot])
        self.tickets.append((ticket, [slot]))

    def do_pull_fresh(self, key, how, *_):
        """Pull values as new arrays."""
        key = key % KEYS
        if how % 2:
            got = self.kv.pull(self.key(key), async_op=True).wait(LONGEST)
        else:
            got = self.kv.pull(self.key(key))
        self.same(got.asnumpy(), self.values[key], f"a new array of {self.key(key)}")

    def do_pushpull(self, key, a, b, *_):
        """Push one array and pull into another one."""
        key, a, b = key % KEYS, self.slot(a), self.slot(b)
        self.pushed(key, [a])
        self.kv.pushpull(self.key(key), a.obj, out=b.obj)
        self.pulled(key, [b])

    def do_pushpull_in_place(self, key, a, how, *_):
        """Push an array that takes the result."""
        key, slot = key % KEYS, self.slot(a)
        self.pushed(key, [slot])
        if how % 2:
            self.kv.pushpull(self.key(key), slot.obj)
        else:
            self.tickets.append((self.kv.pushpull(self.key(key), slot.obj, async_op=True), [slot]))
        self.pulled(key, [slot])

    def do_pushpull_async(self, key, a, b, *_):
        """Push one array and pull into another one, with a ticket."""
        key, a, b = key % KEYS, self.slot(a), self.slot(b)
        self.pushed(key, [a])
        self.tickets.append((self.kv.pushpull(self.key(key), a.obj, out=b.obj, async_op=True), [b]))
        self.pulled(key, [b])

    def do_pushpull_keys_async(self, a, b, c, d):
        """Push and pull two keys at once, with a ticket."""
        a, b, c, d = (self.slot(n) for n in (a, b, c, d))
        self.pushed(0, [a])
        self.pushed(1, [b])
        keys = [self.key(0), self.key(1)]
        ticket = self.kv.pushpull(keys, [a.obj, b.obj], out=[c.obj, d.obj], async_op=True)
        self.pulled(0, [c])
        self.pulled(1, [d])
        self.tickets.append((ticket, [c, d]))

    def do_wait(self, which, *_):
        """Wait for one ticket."""
        if self.tickets:
            self.tickets.pop(which % len(self.tickets))[0].wait(LONGEST)

    def do_wait_all(self, *_):
        """Wait for everything; then no ticket is left that writes."""
        mx.nd.waitall()
        for ticket, outs in self.tickets:
            if outs and not ticket.done():
                raise Wrong("waitall has returned while a pull is under way")

    def do_let(self, *_):
        """Release the partner."""
        self.let()

    # ---- calls that fail: their arrays are the program's again at once

    def _begin_late(self, key):
        """Leave one round of a key open, and nothing else under way; the key's number, or None where nothing is held."""
        if not self.partner.holds:
            return None
        self.wait_for_tickets()
        self.let()
        return key % KEYS

    def _fails(self, action, sources, outs, key):
        """Run a call that fails by deadline or cancel; change its arrays, release the partner, and check them again."""
        try:
            action()
            raise Wrong("a call whose round is open has not failed")
        except (DeadlineExceededError, CancelledError):
            pass
        # A push that had left before the failure counts; a push that was still waiting to leave does not.
        if self.kv.round(self.key(key)) > len(self.expected[key]):
            self.pushed(key, sources)
        for slot in outs:
            slot.mirror[:] = -1
            slot.obj[:] = -1
        for slot in sources:
            slot.mirror[:] = -2
            slot.obj[:] = -2
        self.let()
        for slot in [*outs, *sources]:
            self.same(slot.read(), slot.mirror, f"a {slot.kind} array after a call that has failed")

    def _leave_open(self, key, slot):
        self.pushed(key, [slot])
        self.kv.push(self.key(key), slot.obj)

    def do_late_pull(self, key, a, b, *_):
        """Pull a round that does not come."""
        if (key := self._begin_late(key)) is not None:
            self._leave_open(key, self.slots[0])
            out = self.slot(b)
            self._fails(lambda: self.kv.pull(self.key(key), out=out.obj), [], [out], key)

    def do_late_pushpull(self, key, a, b, *_):
        """Pushpull a round that the partner does not push: it has left."""
        if (key := self._begin_late(key)) is not None:
            a, b = self.slot(a), self.slot(b)
            self._fails(lambda: self.kv.pushpull(self.key(key), a.obj, out=b.obj), [a], [b], key)

    def do_late_pushpull_queued(self, key, a, b, *_):
        """Pushpull a round that cannot leave."""
        if (key := self._begin_late(key)) is not None:
            self._leave_open(key, self.slots[0])
            a, b = self.slot(a), self.slot(b)
            self._fails(lambda: self.kv.pushpull(self.key(key), a.obj, out=b.obj), [a], [b], key)

    def do_late_ticket(self, key, a, b, *_):
        """Pushpull with a ticket that fails."""
        if (key := self._begin_late(key)) is not None:
            a, b = self.slot(a), self.slot(b)
            self._fails(
                lambda: self.kv.pushpull(self.key(key), a.obj, out=b.obj, async_op=True).wait(LONGEST), [a], [b], key
            )

    def do_cancelled(self, key, a, b, *_):
        """Pushpull with a ticket that is cancelled."""
        if (key := self._begin_late(key)) is not None:
            a, b = self.slot(a), self.slot(b)

            def cancel():
                ticket = self.kv.pushpull(self.key(key), a.obj, out=b.obj, async_op=True)
                ticket.cancel()
                ticket.wait(LONGEST)

            self._fails(cancel, [a], [b], key)

    # ---- the end

    def wait_for_tickets(self):
        """Wait for all tickets."""
        self.let()
        for ticket, _ in self.tickets:
            ticket.wait(LONGEST)
        self.tickets.clear()

    def finish(self):
        """Look at everything once nothing is under way."""
        with self.warden():
            for number, slot in enumerate(self.slots):
                if slot.is_ours:  # while tickets are still open
                    self.same(slot.read(), slot.mirror, f"slot {number} ({slot.kind}) at the end")
        self.wait_for_tickets()
        for number, slot in enumerate(self.slots):
            self.same(slot.read(), slot.mirror, f"slot {number} ({slot.kind}) after the end")
        for key in range(KEYS):
            self.same(self.kv.pull(self.key(key)).asnumpy(), self.values[key], f"{self.key(key)} at the end")


_names = iter(range(1 << 60))


def fails(program, seed, kv, partner):
    """Run a program; return the problem, or None."""
    step = None
    run = None
    try:
        run = Run(kv, partner, seed, f"p{os.getpid()}.{next(_names)}")
        for step in program:
            run.do(step)
        step = "the end"
        run.finish()
        return None
    except Exception as error:
        text = f"{type(error).__name__}: {error}" if isinstance(error, Wrong) else traceback.format_exc()
        with contextlib.suppress(Exception):
            run.let()
        return f"{step}: {text}"


def shortest(program, seed, kv, partner, tries=60):
    """Leave steps out as long as the program still fails."""
    size = len(program) // 2
    while size >= 1 and tries > 0:
        at = 0
        while at < len(program) and tries > 0:
            less = program[:at] + program[at + size :]
            tries -= 1
            if less and fails(less, seed, kv, partner):
                program = less
            else:
                at += size
        size //= 2
    return program


def check_programs(seeds, kv, partner, is_late=False):
    """Run the programs of the seeds; raise Wrong with the shortest form of the first that fails."""
    for seed in seeds:
        program = make_program(random.Random(seed), is_late)
        why = fails(program, seed, kv, partner)
        for _ in range(3):  # a machine that is busy elsewhere lets calls fail that need not
            if is_late and why and "DeadlineExceededError" in why:
                why = fails(program, seed, kv, partner)
        if why is None:
            continue
        short = shortest(program, seed, kv, partner)
        lines = "\n".join(f"    {step!r}," for step in short)
        again = fails(short, seed, kv, partner)
        raise Wrong(f"seed {seed}: {why}\nthe shortest program that fails ({again}):\n{lines}\n")
