"""A headless Chromium for tests of pages, controlled over a pipe."""

import json
import os
import select
import shutil
import subprocess
import time

import pytest

CHROMIUM = shutil.which("chromium")


class Browser:
    """A browser with one page."""

    def __init__(self, folder):
        if CHROMIUM is None:
            pytest.skip("needs Chromium: apt-get install chromium")
        command_in, self._commands = os.pipe()
        self._answers, answer_out = os.pipe()

        def connect():  # the browser reads commands from file 3 and writes answers to file 4
            held = os.dup(answer_out)
            os.dup2(command_in, 3)
            os.dup2(held, 4)

        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        self._log = open(folder / "chromium.log", "wb")  # noqa: SIM115
        self.process = subprocess.Popen(
            [CHROMIUM, *flags, "--remote-debugging-pipe", f"--user-data-dir={folder / 'profile'}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            preexec_fn=connect,
            close_fds=False,
            start_new_session=True,
        )
        os.close(command_in)
        os.close(answer_out)
        self._buffer = b""
        self._number = 0
        self.requests = []  # the URLs that the page has asked for
        self.errors = []  # of its scripts, and what its policy has forbidden
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")

    def _ask(self, method, session=None, **params):
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 60
        while True:
            while b"\0" not in self._buffer:
                ready, _, _ = select.select([self._answers], [], [], max(0, deadline - time.monotonic()))
                got = os.read(self._answers, 1 << 16) if ready else b""
                assert got, f"the browser does not answer {method}"
                self._buffer += got
            text, _, self._buffer = self._buffer.partition(b"\0")
            answer = json.loads(text)
            self._note(answer)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _note(self, event):
        params = event.get("params", {})
        if event.get("method") == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif event.get("method") == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"]["text"])
        elif event.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])

    def ask(self, method, **params):
        """Send a command of the DevTools protocol to the page, and return its result."""
        return self._ask(method, self._session, **params)

    def listen(self):
        """Note what has happened in the page, which may be loading."""
        self._ask("Browser.getVersion")

    def open(self, url, script=True, width=1000):
        self.ask("Emulation.setScriptExecutionDisabled", value=not script)
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 500)
        self.ask("Page.navigate", url=url)

    def value(self, expression):
        """Return the value of an expression in JavaScript."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def close(self):
        self._ask("Browser.close")
        self.process.wait(20)
        os.close(self._commands)
        os.close(self._answers)
        self._log.close()
