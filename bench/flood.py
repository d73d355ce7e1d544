"""Floods a port: `flood.py HOST:PORT RATE SECONDS` connects RATE times a second and sends random bytes each time.

With `--listen` it is a plain listener instead, which accepts, reads and closes, and prints its port.
"""

import os
import socket
import sys
import time


def flood(host, port, rate, seconds):
    """Connect `rate` times a second; return the number of connections."""
    begin, count = time.monotonic(), 0
    while time.monotonic() < begin + seconds:
        late = count / rate - (time.monotonic() - begin)
        if late > 0:
            time.sleep(late)
        with socket.socket() as stranger:
            stranger.settimeout(1)
            try:
                stranger.connect((host, port))
                stranger.send(os.urandom(64))
            except OSError:
                pass
        count += 1
    return count


def listen():
    """Accept, read and close for ever."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)


if __name__ == "__main__":
    if sys.argv[1] == "--listen":
        listen()
    host, _, port = sys.argv[1].rpartition(":")
    print(flood(host, int(port), float(sys.argv[2]), float(sys.argv[3])))
