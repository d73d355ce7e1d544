"""A store as its users see it: keys and their rounds, counters, and the state of the job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from .. import _core
from .._part import part_of
from ..errors import InvalidArgumentError

if TYPE_CHECKING:
    from .._types import Key


@part_of("KVStore")
class KVStoreView(_core.Store):
    """The part of KVStore that reports and changes nothing."""

    def round(self, key: Key) -> int:
        """Return how often this worker has pushed the key, whether or not the rounds are complete.

        In a ``dist_sync`` store the nth push of each worker is its part of round n, so this is the round of its last
        push. In ``dist_async``, and in one process, each push is an update by itself. A call counts once for a key,
        however many values it gives. The call counts as soon as it is made, unless its arguments are refused.

        A restarted worker continues from the round that its earlier incarnation had reached. For asynchronous keys it
        counts only its own pushes, from 0: `docs/failures.md` says how such a worker knows where it is.

        Example:
            >>> kv = tkv.kv.create('local')
            >>> kv.init(3, tkv.nd.ones((2,)))
            >>> kv.push(3, tkv.nd.ones((2,)))
            >>> kv.round(3)
            1
        """
        return self._round(key)

    def stats(self) -> dict[str, Any]:
        """Return counters of the store's work and waits since it was made, as a new dict.

        For this store:
            age_seconds: since it was made.
            verbs: for each of init, push, pull, pushpull, broadcast, barrier, delete, set_updater and set_optimizer
                its ``calls``, and how many of them ``failed``: the call itself, or its ticket. A verb that is made of
                others counts as itself only.
            bytes: of the arrays that calls were given, each as large as its key's value: ``init_bytes``,
                ``pushed_bytes``, ``pulled_bytes``.
            rounds: the sum of the rounds of all keys, deleted ones too.
            key_count: how many keys there are.
            keys: for the 100 keys with the most bytes, the largest first, ``rounds`` (as `round`), ``init_bytes``,
                ``pushed_bytes``, ``pulled_bytes``.

        For this process, whose stores share the connections of one worker; zeros and no peers in a store without any:
            operations_under_way: operations (of one key each) that have begun and not ended.
            traffic: ``wire_out_bytes`` and ``wire_in_bytes`` through sockets, with the heads of messages;
                ``shared_out_bytes`` and ``shared_in_bytes`` through shared memory; ``encrypted_out_bytes`` and
                ``encrypted_in_bytes``: those through the socket that TLS has encrypted.
            resends: messages that were sent again after a connection was lost.
            reconnects: connections made again.
            peers: for ``'head'`` and each ``'server N'`` the bytes of `traffic`; ``state`` of the connection (idle,
                dialing, hello, open, dead); ``connections`` that have been open; ``resends``; ``queued_messages`` that
                have not left and the ``queued_bytes`` of their values; ``unanswered_messages``; ``unaccepted_bytes``
                that have left and that the server does not hold yet; ``last_word_seconds`` since it was heard last,
                or None.
            workers, servers: the state of each rank as the head has reported it: awaited, alive, dead or left.

        For both:
            waits: for each cause the ``count`` of waits and the ``wait_seconds`` of those that have ended.
                Calls: ``key`` (another thread uses it), ``array`` (an asynchronous operation uses it), ``accepted``
                (until servers hold a pushed array of another framework), ``answer`` (for its operations to end).
                Operations: ``round`` (the round before a push is not known to be complete), ``pull`` (an earlier pull
                of the key is unanswered), ``order`` (others come first).
                Messages queued for a server: ``link`` (there is no connection), ``credit`` (bytes that it has not
                accepted), ``window`` (operations that it has not answered), ``pull_bytes`` (bytes asked for).

        Idle stores count nothing, and reading the counters changes none.

        Example:
            >>> kv = tkv.kv.create('local')
            >>> kv.init('w', tkv.nd.ones((2,)))
            >>> kv.push('w', tkv.nd.ones((2,)))
            >>> kv.stats()['verbs']['push'], kv.stats()['bytes']['pushed_bytes']
            ({'calls': 1, 'failed': 0}, 8)
        """
        return self._stats()

    def status(self) -> dict[str, Any]:
        """Return the present state of the job, as its head and its servers report it, as a new dict; for observers and
        workers.

        url, job, on_death: its address, its name, and what a round does without a worker that has died.
        epoch: a number that grows with each change of the membership.
        head_is_open: whether this process reaches the head now.
        wrong: problems for an operator: the head is out of reach, a server does not live or does not answer, a worker
            is awaited or dead. Empty: all is well.
        workers: for each rank its ``state`` (awaited, alive, dead, left, lost) and the number of its incarnation
            (``life``), with that incarnation's ``pushes`` (of chunks) to the servers and their ``pushed_bytes``.
        servers: for each ``state``, ``life``, ``address``, ``error`` (why it has not answered; empty: it has), ``chunks``,
            ``value_bytes``, and ``other_bytes`` (optimizers' states, sums of open rounds, kept versions).
        observers: how many processes look at the job.
        keys: for each ``key`` its ``store`` (a number, in the order of `create`), ``shape`` (of one row if it is kept by
            rows), ``dtype``, ``by_rows``, ``row_count``, ``async``, ``chunks`` and ``bytes``. Its ``round`` is the one that all
            chunks have reached, ``newest`` the newest of a chunk, and ``waiting`` counts pulls that wait.
        rounds: that some workers have pushed and others have not, the one that has been open longest first: ``store``,
            ``key`` (as errors show it), ``round``, ``seconds``, ``waits_for`` (ranks, at most 16), ``waits_for_count``.
        slowest: the rank that most of them wait for, or None; with ``slowest_rounds`` and ``slowest_seconds``.

        Raises:
            FailedPreconditionError: a store of one process.

        Example:
            >>> with tkv.testing.cluster(workers=2) as job:
            ...     with job.observer() as eye:
            ...         status = eye.status()
            >>> len(status['workers']), status['rounds'], status['slowest']
            (2, [], None)
        """
        import json

        return cast("dict[str, Any]", json.loads(self._status()))

    @property
    def url(self) -> str:
        """The address of the job, for `connect` and ``tkv status``; empty if other processes cannot reach the job."""
        return self._url

    def describe(self, key: Key) -> tuple[tuple[int, ...], str]:
        """Return shape and dtype of a key; of a table, those of one row.

        Raises:
            KeyNotFoundError: no such key.

        Example:
            >>> kv = tkv.kv.create('local')
            >>> kv.init('w', tkv.nd.ones((2, 3)))
            >>> kv.describe('w')
            ((2, 3), 'float32')
        """
        return self._describe("describe", key)

    def keys(self) -> list[int | str]:
        """Return the keys in the order of their init; for an observer the present keys, sorted, numbers first."""
        return self._keys()

    def __len__(self) -> int:
        """Return the number of keys."""
        return self._size()

    def __bool__(self) -> bool:
        """Return True, without keys too: ``if kv`` asks whether there is a store."""
        return True

    def __contains__(self, key: object) -> bool:
        """Return whether the key exists; False for a value that cannot be a key, such as None."""
        try:
            return self._contains(key)
        except InvalidArgumentError:
            return False

    def __iter__(self) -> Iterator[int | str]:
        """Iterate over the keys in the order of their init."""
        return iter(self._keys())

    @property
    def type(self) -> str:
        """The name that the store was created with."""
        return self._type

    @property
    def rank(self) -> int:
        """Number of this worker, from 0; -1 of an observer, which is none."""
        return self._rank

    @property
    def num_workers(self) -> int:
        """Number of workers."""
        return self._num_workers

    @property
    def rejoined(self) -> bool:
        """True if this worker goes on where an earlier incarnation of it was.

        It is False in the first incarnation, and also in a later one if no worker had pushed anything when it joined. The
        script then begins as the first time: it loads and passes its barriers, and those that its earlier incarnations
        had reached end as they did before.
        """
        return self._rejoined

    def num_dead_node(self, node_id: int) -> int:
        """Return how many processes of the job are dead, as far as the head has said; 0 in a store of one process.

        Args:
            node_id: a sum of 1 (the head), 2 (all servers) and 4 (all workers). Or MXNet's number of one process:
                ``8 + 2 * rank`` for a server, ``9 + 2 * rank`` for a worker.

        Raises:
            InvalidArgumentError: no such number.

        Example:
            >>> tkv.kv.create('local').num_dead_node(7)
            0
        """
        if not isinstance(node_id, int) or isinstance(node_id, bool) or not 1 <= node_id < 2**31:
            raise InvalidArgumentError(
                f"num_dead_node: {node_id!r}; a sum of 1, 2 and 4, or a number of MXNet's is needed"
            )
        return self._num_dead_node(node_id)
