"""Two hosts on one machine: network namespaces with a cable between them, each with an sshd of its own."""

import os
import pathlib
import shutil
import subprocess
import time

import pytest

PORT = 2222


def run(*command, check=True):
    """Run a command; an error contains its output."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout


class Hosts:
    """Hosts `a` and `b` at 10.77.N.1 and 10.77.N.2; ssh, as configured in `ssh`, reaches each by its name."""

    def __init__(self, folder):
        self.folder = folder
        net = f"10.77.{os.getpid() % 250}"
        self.address = {"a": f"{net}.1", "b": f"{net}.2"}
        self.space = {name: f"tkv{os.getpid()}{name}" for name in self.address}
        self.daemons = []
        self.ssh = f"ssh -F {folder}/config"

    def start(self):
        """Lay the cable and start the daemons."""
        for space in self.space.values():
            run("ip", "netns", "add", space)
            run("ip", "-n", space, "link", "set", "lo", "up")
        a, b = self.space.values()
        run("ip", "link", "add", "cable", "netns", a, "type", "veth", "peer", "name", "cable", "netns", b)
        for name, space in self.space.items():
            run("ip", "-n", space, "address", "add", f"{self.address[name]}/24", "dev", "cable")
            run("ip", "-n", space, "link", "set", "cable", "up")
        for name in self.space:
            self._start_sshd(name)

    def _start_sshd(self, name):
        folder = self.folder
        for key in (f"{name}_host", f"{name}_user"):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{folder}/{key}")
        (folder / f"{name}_sshd").write_text(
            f"ListenAddress {self.address[name]}:{PORT}\nHostKey {folder}/{name}_host\nPidFile none\nStrictModes no\n"
            f"AuthorizedKeysFile {folder}/{name}_user.pub\nPasswordAuthentication no\nUsePAM no\n"
        )
        with open(folder / "config", "a") as config:
            config.write(
                f"Host {name}\n  HostName {self.address[name]}\n  Port {PORT}\n  IdentityFile {folder}/{name}_user\n"
                f"  IdentitiesOnly yes\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n"
            )
        if os.geteuid() == 0:
            pathlib.Path("/run/sshd").mkdir(exist_ok=True)  # where it keeps nothing, but wants to be
        log = open(folder / f"{name}_log", "w")  # noqa: SIM115 - the daemon's
        command = [*self.on(name), shutil.which("sshd") or "/usr/sbin/sshd", "-D", "-e", "-f", f"{folder}/{name}_sshd"]
        self.daemons.append(subprocess.Popen(command, stdout=log, stderr=log))
        for _ in range(100):
            found = run(*self.on(name), "ss", "-Htln", f"sport = :{PORT}")
            if found:
                return
            time.sleep(0.05)
        raise RuntimeError(f"sshd does not start: {(folder / f'{name}_log').read_text()}")

    def on(self, name):
        """Return the command prefix that runs a command on that host."""
        return ["ip", "netns", "exec", self.space[name]]

    def list(self, *names):
        """Write a file of hosts and return its path."""
        path = self.folder / "hosts"
        path.write_text("# for this test\n" + "\n".join(names) + "\n")
        return str(path)

    def cut(self):
        """Drop all traffic as an unplugged cable does: without an error, which a link that is down would give."""
        for name, space in self.space.items():
            other = self.address["b" if name == "a" else "a"]
            nobody = "02:00:00:00:00:01"
            run("ip", "-n", space, "neigh", "replace", other, "lladdr", nobody, "nud", "permanent", "dev", "cable")

    def mend(self):
        """Put the cable back."""
        for name, space in self.space.items():
            run("ip", "-n", space, "neigh", "del", self.address["b" if name == "a" else "a"], "dev", "cable")

    def end(self):
        """Stop the daemons and take the hosts away."""
        for daemon in self.daemons:
            daemon.terminate()
        for space in self.space.values():
            for pid in run("ip", "netns", "pids", space, check=False).split():
                try:
                    os.kill(int(pid), 9)
                except OSError:
                    continue
            run("ip", "netns", "del", space, check=False)
        for daemon in self.daemons:
            daemon.wait()


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    """Two hosts; skipped where this user may not make them."""
    if os.geteuid() != 0 or not shutil.which("ip") or not os.path.exists("/usr/sbin/sshd"):
        pytest.skip("needs root, iproute2 and sshd, to make hosts of its own")
    made = Hosts(tmp_path_factory.mktemp("hosts"))
    try:
        run("ip", "netns", "add", made.space["a"])
        try:
            run(*made.on("a"), "true")
        finally:
            run("ip", "netns", "del", made.space["a"])
    except RuntimeError as error:  # a container's limits; in a chroot no namespace can be entered
        pytest.skip(f"no network namespaces here: {error}")
    try:
        made.start()
        yield made
    finally:
        made.end()
