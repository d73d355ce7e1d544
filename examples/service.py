"""Counts votes behind a web server of asyncio; hundreds of requests share one store, and none blocks the others.

    tkv launch -n 2 -s 2 python examples/service.py

Each worker is a web server on a port of its own, and the servers of the store add the votes of both. ``POST /tea`` is a
vote for tea, and ``GET /tea`` says how many votes tea has. A request that is not answered within two seconds gets the
status 503; its vote may have been counted. Here each worker sends its own server 300 votes at once. With ``--port 8000``
worker 0 serves port 8000, worker 1 port 8001, until Ctrl-C: ``curl -X POST localhost:8000/tea``.
"""

import argparse
import asyncio
import contextlib
import hashlib
import time

import numpy as np
import tensorkv as tkv

CHOICES = ["tea", "coffee", "water"]
ADD = tkv.Program("program add_votes\nnext = add value sum\nvalue <- next")  # the servers run it on the rows of a push


def row_id(name: str) -> int:
    """Return 63 bits of the hash of a name."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") & (2**63 - 1)


class Service:
    """Answers requests from a table that has one row, a number, for each name."""

    def __init__(self, kv: tkv.KVStore) -> None:
        self.kv = kv

    async def count(self, method: str, name: str) -> int:
        """Add a vote, if the method is POST, and return the number of votes."""
        if method == "POST":
            await self.kv.push_rows("votes", [row_id(name)], np.ones((1, 1), np.int64), async_op=True)
        rows = await self.kv.pull_rows("votes", np.array([row_id(name)]), async_op=True)
        return int(rows[0, 0])

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, and close the connection."""
        status, text = "400 Bad Request", "POST /NAME or GET /NAME"
        try:
            words = (await asyncio.wait_for(reader.readline(), 2)).decode(errors="replace").split()
            if len(words) == 3 and words[0] in ("GET", "POST"):
                status, text = "200 OK", str(await asyncio.wait_for(self.count(words[0], words[1][1:]), 2))
        except (asyncio.TimeoutError, tkv.KVError) as error:
            status, text = "503 Service Unavailable", str(error) or "not answered within 2 s"
        except ValueError:  # asyncio reads lines of up to 64 KiB
            text = "the line is too long"
        with contextlib.suppress(ConnectionError):  # the client may have left
            writer.write(f"HTTP/1.0 {status}\r\nContent-Length: {len(text.encode())}\r\n\r\n{text}".encode())
            await writer.drain()
        writer.close()


async def ask(port: int, method: str, name: str) -> tuple[str, str]:
    """Send a request; return status and text of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{method} /{name} HTTP/1.0\r\n\r\n".encode())
    head, text = (await reader.read()).decode().split("\r\n\r\n")
    writer.close()
    return head.partition(" ")[2].splitlines()[0], text


async def serve(kv: tkv.KVStore, votes: int, port: int) -> None:
    """Run the web server; with a port until it is stopped, else until it has answered that many votes."""
    at = port + kv.rank if port else 0
    server = await asyncio.start_server(Service(kv).answer, "127.0.0.1", at, backlog=1024)
    if port:
        print(f"serves http://localhost:{at}", flush=True)
        await server.serve_forever()
    port = server.sockets[0].getsockname()[1]
    begin = time.perf_counter()
    answers = await asyncio.gather(*(ask(port, "POST", CHOICES[i % 3]) for i in range(votes)))
    counted = sum(status == "200 OK" for status, _ in answers)
    print(f"{counted} of {votes} votes in {time.perf_counter() - begin:.2f} s", flush=True)
    await kv.barrier(async_op=True)  # the votes of all workers have been counted
    if kv.rank == 0:
        for choice in CHOICES:
            print(choice, "has", (await ask(port, "GET", choice))[1], "votes")
    server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--votes", type=int, default=300, help="of each worker")
    parser.add_argument("--port", type=int, default=0, help="of worker 0; worker N has this number + N")
    arguments = parser.parse_args()
    with tkv.kv.create("dist_async") as kv:
        kv.set_updater(ADD)
        kv.init_table("votes", 1, dtype="int64")
        asyncio.run(serve(kv, arguments.votes, arguments.port))


if __name__ == "__main__":
    main()
