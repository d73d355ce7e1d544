"""Tickets: waits for an operation from threads and event loops, and cancellation."""

import asyncio
import gc
import logging
import math
import signal
import threading
import time

import numpy as np
import pytest
import tensorkv as mx

TWO = (2,)


@pytest.fixture
def job():
    with mx.testing.cluster(workers=2, patience=60) as cluster:
        threads = [threading.Thread(target=lambda kv=kv: kv.init(["w", "v"], [mx.nd.zeros(TWO)] * 2)) for kv in cluster]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        yield cluster


def waiting(kv):
    """Return the ticket of a pushpull that waits for the other worker."""
    return kv.pushpull("w", mx.nd.ones(TWO), out=mx.nd.zeros(TWO), async_op=True)


def executor_threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(("asyncio", "ThreadPool"))]


def test_a_ticket_is_awaited_without_a_thread(job):
    a, b = job

    async def main():
        tickets = [waiting(a)]
        tasks = [asyncio.create_task(ticket) for ticket in tickets * 3]
        await asyncio.sleep(0)
        assert not tickets[0].done()
        b.pushpull("w", mx.nd.ones(TWO))
        assert await asyncio.gather(*tasks) == [None] * 3
        assert executor_threads() == []
        return await a.pull("w", async_op=True)

    assert asyncio.run(main()).asnumpy().tolist() == [2.0, 2.0]


def test_wait_for_ends_at_once_and_cancels_the_operation(job):
    ticket = waiting(job.store(0))

    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(ticket, 0.05)
        assert await asyncio.to_thread(lambda: 1) == 1

    begin = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - begin < 5
    assert ticket.done() and ticket.cancelled()
    with pytest.raises(mx.errors.CancelledError):
        ticket.wait()


@pytest.mark.parametrize("after_start", [True, False])
def test_a_task_that_is_cancelled_cancels_its_ticket(job, after_start):
    ticket = waiting(job.store(0))

    async def main():
        task = asyncio.create_task(ticket)
        if after_start:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert ticket.cancelled()


def test_shield_keeps_the_operation(job):
    a, b = job
    ticket = waiting(a)

    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(ticket), 0.05)
        assert not ticket.done()
        b.pushpull("w", mx.nd.ones(TWO))
        await ticket

    asyncio.run(main())


def test_ctrl_c_ends_an_await_at_once(job):
    ticket = waiting(job.store(0))

    async def main():
        asyncio.get_running_loop().call_later(0.05, signal.raise_signal, signal.SIGINT)
        await ticket

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs behind it
    begin = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(main())
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - begin < 5
    assert ticket.cancelled()


def test_a_failure_reaches_who_awaits(job):
    ticket = waiting(job.store(0))

    async def main():
        task = asyncio.create_task(ticket)
        await asyncio.sleep(0)
        ticket.cancel()
        with pytest.raises(mx.errors.CancelledError):
            await task

    asyncio.run(main())


def test_repr_names_verb_key_and_state(job):
    ticket = waiting(job.store(0))
    assert repr(ticket) == "<Ticket pushpull 'w': under way>"
    assert ticket.cancel() and not ticket.cancel()
    assert repr(ticket).startswith("<Ticket pushpull 'w': Cancelled: ")
    with mx.kv.create("local") as kv:
        kv.init([1, 2], [mx.nd.ones(TWO)] * 2)
        assert repr(kv.pull([1, 2], async_op=True)) == "<Ticket pull of 2 keys, the first is 1: done>"


def test_callbacks_are_called_once_by_a_thread_or_by_the_loop(job):
    a, b = job
    called = threading.Semaphore(0)
    threads = []

    def note(ticket):
        threads.append((threading.current_thread(), ticket.done()))
        called.release()

    ticket = waiting(a)
    ticket.add_done_callback(note)
    b.pushpull("w", mx.nd.ones(TWO))
    assert called.acquire(timeout=30)
    ticket.add_done_callback(note)
    assert called.acquire(timeout=30)
    assert len(threads) == 2 and threads[0] == threads[1]
    assert threads[0][0] is not threading.current_thread() and threads[0][1]

    async def main():
        ticket.add_done_callback(note)
        assert len(threads) == 2, "never from inside the call"
        while len(threads) < 3:
            await asyncio.sleep(0)

    asyncio.run(main())
    assert threads[2] == (threading.current_thread(), True)


class OwnEnd(BaseException):
    """A BaseException that is no Exception."""


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt, GeneratorExit, OwnEnd, ValueError])
@pytest.mark.parametrize("handler_raises", [False, True])
def test_no_callback_ends_the_thread_of_callbacks(monkeypatch, end, handler_raises):
    logged, called = [], threading.Event()

    class Handler(logging.Handler):
        def emit(self, record):
            logged.append(record.exc_info and record.exc_info[0])
            if handler_raises:
                raise end

    def fail(ticket):
        raise end

    logger = logging.getLogger("tensorkv")
    monkeypatch.setattr(logger, "handlers", [Handler()])
    monkeypatch.setattr(logger, "propagate", False)
    with mx.kv.create("local") as kv:
        kv.init(1, mx.nd.ones(TWO))
        ticket = kv.pull(1, async_op=True)
        ticket.add_done_callback(fail)
        ticket.add_done_callback(lambda ticket: called.set())
        assert called.wait(30) and logged == [end]


def test_a_loop_that_is_closed_meanwhile_and_a_dropped_ticket_do_no_harm(job):
    a, b = job
    loop = asyncio.new_event_loop()
    task = loop.create_task(waiting(a))
    loop.run_until_complete(asyncio.sleep(0))
    task._log_destroy_pending = False
    loop.close()
    del task, loop
    gc.collect()
    b.pushpull("w", mx.nd.ones(TWO))
    assert a.pull("w").asnumpy().tolist() == [2.0, 2.0]


def test_many_tickets_at_once(job):
    a, b = job

    async def main():
        # The other worker starts first: a call with a foreign array waits a moment for its round before it copies.
        other = asyncio.get_running_loop().run_in_executor(
            None, lambda: [b.pushpull("v", mx.nd.ones(TWO)) for _ in range(200)]
        )
        outs = [np.zeros(2, np.float32) for _ in range(200)]
        tickets = [a.pushpull("v", np.full(2, n, np.float32), out=outs[n], async_op=True) for n in range(200)]
        await asyncio.gather(other, *tickets)
        assert [out.tolist() for out in outs] == [[n + 1.0, n + 1.0] for n in range(200)]

    asyncio.run(main())


def test_the_other_verbs_have_forms_to_await(job):
    a, b = job

    async def life(kv):
        await kv.init("x", mx.nd.ones(TWO), async_op=True)
        await kv.barrier(async_op=True)
        return (await kv.pull("x", async_op=True)).asnumpy().tolist()

    async def main():
        return await asyncio.gather(life(a), life(b))

    assert asyncio.run(main()) == [[1.0, 1.0]] * 2

    async def whole_life():
        async with await mx.kv.create_async("dist_sync", bootstrap="self") as kv:
            await kv.init("w", mx.nd.ones(TWO), async_op=True)
        return repr(kv)

    assert asyncio.run(whole_life()) == "<KVStore 'dist_sync' closed>"


def test_a_barrier_that_is_cancelled_ends_at_once(job):
    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(job.store(0).barrier(async_op=True), 0.05)

    begin = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - begin < 5


def test_every_duration_saturates(job):
    ticket = waiting(job.store(0))
    for never in (math.inf, 1e300, 1e10):
        waiter = threading.Thread(target=lambda t=never: pytest.raises(mx.errors.CancelledError, ticket.wait, t))
        waiter.start()
        waiter.join(0.2)
        assert waiter.is_alive(), never
    ticket.cancel()
    for wrong in (math.nan, -1, -math.inf):
        with pytest.raises(mx.errors.InvalidArgumentError, match="timeout"):
            ticket.wait(timeout=wrong)


@pytest.mark.parametrize("forever", [math.inf, 1e10, 1e300])
def test_options_in_seconds_saturate(forever):
    with mx.kv.create("dist_sync", bootstrap="self", patience=forever, server_patience=forever) as kv:
        kv.init("w", mx.nd.ones(TWO))
        kv.push("w", mx.nd.ones(TWO))
        assert kv.pull("w").asnumpy().tolist() == [1.0, 1.0]
    for wrong in (math.nan, -1):
        with pytest.raises(mx.errors.InvalidArgumentError, match="patience"):
            mx.kv.create("local", patience=wrong)
