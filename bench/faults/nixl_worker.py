"""An agent of NIXL: worker 0 writes worker 1's memory and notifies it; worker 1 checks the data and notifies back."""

import os
import time

import numpy as np
import rounds
from nixl import _bindings
from nixl._api import nixl_agent, nixl_agent_config

RANK = int(os.environ["RANK"])
PEER = f"worker {1 - RANK}"


class TransferFailed(Exception):
    """A failure that the agent reports as a status instead of an exception."""


class NIXL:
    errors = tuple(
        kind for kind in vars(_bindings).values() if isinstance(kind, type) and issubclass(kind, BaseException)
    )

    def join(self):
        config = nixl_agent_config(enable_listen_thread=True, listen_port=int(os.environ["PORT"]))
        self.agent = nixl_agent(f"worker {RANK}", config)
        self.memory = np.zeros(rounds.COUNT, np.float32)
        place = [(self.memory.ctypes.data, self.memory.nbytes, 0, "")]
        self.agent.register_memory(place, "DRAM")
        self.mine = self.agent.get_xfer_descs([place[0][:3]], "DRAM")
        self.notes = []
        where = os.environ["PEER_ADDRESS"], int(os.environ["PEER_PORT"])
        if RANK == 0:
            self.meet(where)
            self.agent.send_notif(PEER, b"hello")
            self.theirs = self.agent.deserialize_descs(self.note())
        else:
            self.note()
            # A notification may arrive before its sender's metadata.
            while not self.agent.check_remote_metadata(PEER):
                time.sleep(0.001)
            self.agent.send_notif(PEER, self.agent.get_serialized_descs(self.mine))

    def meet(self, where):
        """Exchange metadata; ask repeatedly, as the other agent may not listen yet and NIXL asks only once."""
        asked = 0.0
        while not self.agent.check_remote_metadata(PEER):
            if time.monotonic() > asked + 1:
                self.agent.fetch_remote_metadata(PEER, *where)
                self.agent.send_local_metadata(*where)
                asked = time.monotonic()
            time.sleep(0.01)

    def note(self):
        """Return the other agent's next notification; polls, as NIXL has no call that waits for one."""
        while not self.notes:
            for notes in self.agent.get_new_notifs().values():
                self.notes += notes
            time.sleep(0.001)
        return self.notes.pop(0)

    def move(self, operation, message=b""):
        handle = self.agent.initialize_xfer(operation, self.mine, self.theirs, PEER, message)
        state = self.agent.transfer(handle)
        while state == "PROC":
            time.sleep(0.0005)
            state = self.agent.check_xfer_state(handle)
        if state != "DONE":
            raise TransferFailed(f"the state of the transfer is {state}")
        self.agent.release_xfer_handle(handle)

    def round(self, number):
        if RANK == 1:
            came = int(self.note())
            wrong = int((self.memory != came).sum())
            self.agent.send_notif(PEER, str(came).encode())
            return wrong
        self.memory[:] = number
        self.move("WRITE", str(number).encode())
        return int(int(self.note()) != number)

    def leave(self):
        self.agent.remove_remote_agent(PEER)

    def there_and_back(self):
        self.move("WRITE")
        self.move("READ")


rounds.run(NIXL)
