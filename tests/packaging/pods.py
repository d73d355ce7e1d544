"""Stand-ins for a container runtime and a cluster: a Dockerfile's image in a folder, pods in network namespaces."""

import contextlib
import glob
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import time

ROOT = pathlib.Path(__file__).parents[2]
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def run(*arguments, timeout=600, **options):
    result = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, timeout=timeout, **options)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


# ------------------------------------------------------------------------------------- an image
def instructions(dockerfile):
    """Return {stage: (its base, [(instruction, its text)])}."""
    lines = [line for line in dockerfile.read_text().splitlines() if not line.lstrip().startswith("#")]
    made, steps = {}, None
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        word, _, text = line.partition(" ")
        if word == "FROM":
            base, name = re.fullmatch(r"(\S+) AS (\w+)", text).groups()
            steps = []
            made[name] = (base, steps)
        elif word:
            assert word in ("COPY", "RUN", "USER", "ENTRYPOINT"), line
            steps.append((word, text))
    return made


class Image:
    """A stage of a Dockerfile, made in a folder by its own steps; debootstrap stands for the image of Debian."""

    def __init__(self, folder, wheel):
        self.root, self.wheel, self.user, self.entry = folder, wheel, "0:0", []

    def make(self, stages, name):
        base, steps = stages[name]
        if base in stages:
            self.make(stages, base)
        else:
            assert base == "debian:12-slim"
            run("debootstrap", "--variant=minbase", "bookworm", self.root, timeout=1800)
            _share_network(self.root)
            policy = self.root / "usr/sbin/policy-rc.d"  # as in that image: a package starts no daemon
            policy.write_text("#!/bin/sh\nexit 101\n")
            policy.chmod(0o755)
        for word, text in steps:
            getattr(self, f"_{word.lower()}")(text)

    def _copy(self, text):
        source, target = text.split()
        found = [self.wheel] if source == "dist/*.whl" else [pathlib.Path(p) for p in glob.glob(str(ROOT / source))]
        assert found, f"COPY {text}: there is no such file"
        place = self.root / target.lstrip("/")
        (place if target.endswith("/") else place.parent).mkdir(parents=True, exist_ok=True)
        for path in found:
            shutil.copy(path, place)

    def _run(self, text):
        assert self.user == "0:0", f"RUN {text}: as the user {self.user}"
        network = [
            f"{k}={v}"
            for k, v in os.environ.items()
            if re.fullmatch(
                r"(?i)(https?|no)_proxy|pip_(cert|index_url|default_timeout)|\w+_ca_bundle|ssl_cert_file", k
            )
        ]
        with contextlib.ExitStack() as stack:
            for kind, place in (("proc", self.root / "proc"), ("tmpfs", self.root / "tmp")):
                run("mount", "-t", kind, kind, place)
                stack.callback(run, "umount", place)
            # An image builder has no DEBIAN_FRONTEND either, but also no terminal for questions.
            words = ["env", "-i", PATH, *network, "/bin/sh", "-c", text]
            run("chroot", self.root, *words, stdin=subprocess.DEVNULL, timeout=1800)

    def _user(self, text):
        self.user = text

    def _entrypoint(self, text):
        self.entry = json.loads(text)


def _share_network(root):
    """Give processes in the folder this machine's access to registries."""
    for path in ("/etc/resolv.conf", "/etc/pip.conf"):
        if os.path.exists(path):
            shutil.copy(path, root / path.lstrip("/"))
    (root / "etc/apt/sources.list").unlink(missing_ok=True)
    for folder in ("/etc/apt/sources.list.d", "/etc/apt/apt.conf.d", "/etc/apt/auth.conf.d", "/etc/apt/trusted.gpg.d", "/etc/ssl/certs",
                   "/usr/local/share/ca-certificates"):  # fmt: skip
        if os.path.exists(folder):
            shutil.copytree(folder, root / folder.lstrip("/"), dirs_exist_ok=True)
    if os.path.exists("/etc/apt/sources.list"):
        shutil.copy("/etc/apt/sources.list", root / "etc/apt/sources.list")


# ------------------------------------------------------------------------------------- pods
class Cluster:
    """Pods that run an image: each has a network namespace on one bridge, and /etc/hosts has the names of all."""

    def __init__(self, image, folder, names):
        self.image, self.folder, self.running = image, folder, []
        mark = f"tkv{os.getpid()}"
        net = f"10.78.{os.getpid() % 250}"
        self.bridge = f"{mark}x"
        self.space = {pod: f"{mark}p{i}" for i, pod in enumerate(names)}
        self.address = {pod: f"{net}.{i + 1}" for i, pod in enumerate(names)}
        (folder / "hosts").write_text(
            "127.0.0.1 localhost\n" + "".join(f"{self.address[pod]} {' '.join([pod, *names[pod]])}\n" for pod in names)
        )

    def __enter__(self):
        run("ip", "netns", "add", self.bridge)
        run("ip", "-n", self.bridge, "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", self.bridge, "link", "set", "bridge", "up")
        for i, (pod, space) in enumerate(self.space.items()):
            run("ip", "netns", "add", space)
            run(
                "ip",
                "link",
                "add",
                "eth0",
                "netns",
                space,
                "type",
                "veth",
                "peer",
                "name",
                f"pod{i}",
                "netns",
                self.bridge,
            )
            run("ip", "-n", self.bridge, "link", "set", f"pod{i}", "master", "bridge", "up")
            run("ip", "-n", space, "address", "add", f"{self.address[pod]}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                run("ip", "-n", space, "link", "set", link, "up")
            run("ip", "-n", space, "route", "add", "default", "dev", "eth0")
        return self

    def __exit__(self, *_):
        for space in self.space.values():
            listed = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True).stdout
            for pid in listed.split():
                with contextlib.suppress(OSError):
                    os.kill(int(pid), 9)
        for process in self.running:
            process.wait()
            process.stdout.close()
        for space in [*self.space.values(), self.bridge]:
            subprocess.run(["ip", "netns", "del", space], capture_output=True)

    def start(self, pod, spec, container, told=None, command=None, secrets=None, extra=()):
        """Start a container of a pod, after its init containers, with the rights and folders that its manifest gives
        it.

        Args:
            told: variables that a controller would set.
            command: instead of the container's own.
            secrets: {name of a volume: folder with its files}.
            extra: (volume, mount) pairs that a controller would add.
        """
        volumes = [*spec.get("volumes", []), *(volume for volume, _ in extra)]
        mounts = {
            m["mountPath"]: m["name"]
            for c in [*spec.get("initContainers", []), container]
            for m in c.get("volumeMounts", [])
        }
        mounts |= {mount["mountPath"]: mount["name"] for _, mount in extra}
        user, root = spec["securityContext"], self.image.root
        lines = ["set -e", f"mount --bind {root} {root}", f"mount -t proc proc {root}/proc",
                 f"mount --rbind /dev {root}/dev", f"mount --bind {self.folder}/hosts {root}/etc/hosts"]  # fmt: skip
        (root / "etc/hosts").touch()
        for path, name in mounts.items():
            (root / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
            (volume,) = [v for v in volumes if v["name"] == name]
            # As kubelet does with fsGroup: all belongs to root and that group, which may read a secret and write elsewhere.
            mode = "2775" if "secret" in volume else "2777"
            lines.append(f"mount -t tmpfs -o mode={mode},gid={user['fsGroup']} tmpfs {root}{path}")
            if "secret" in volume:
                mode = oct(volume["secret"]["defaultMode"] | 0o440)[2:]
                lines.append(f"install -g {user['fsGroup']} -m {mode} {(secrets or {})[name]}/* {root}{path}")
        lines.append(f"mount -o remount,ro,bind {root}")
        for first in spec.get("initContainers", []):
            lines.append(self._inside(user, {}, first["command"]))
        own = {m["mountPath"]: m for m in [*container.get("volumeMounts", []), *(mount for _, mount in extra)]}
        lines += [f"umount {root}{path}" for path in mounts if path not in own]
        lines += [f"mount -o remount,ro {root}{path}" for path in own if own[path].get("readOnly")]
        environment = {entry["name"]: self._value(entry, told or {}) for entry in container.get("env", [])} | (
            told or {}
        )
        environment = {k: re.sub(r"\$\((\w+)\)", lambda m: environment[m[1]], v) for k, v in environment.items()}
        words = command or container.get("command", self.image.entry) + container.get("args", [])
        lines.append("exec " + self._inside(user, environment, words))
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.space[pod], "unshare", "--mount", "--uts", "sh", "-c", "\n".join([f"hostname {pod}", *lines])],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self.running.append(process)
        return process

    def _value(self, entry, told):
        """Return the value of a variable; `told` has the pod's fields that Kubernetes fills in, by name."""
        return entry["value"] if "value" in entry else told.pop(entry["valueFrom"]["fieldRef"]["fieldPath"])

    def _inside(self, user, environment, words):
        variables = [f"{name}={value}" for name, value in environment.items()]
        rights = [f"--reuid={user['runAsUser']}", f"--regid={user['runAsGroup']}", f"--groups={user['fsGroup']}",
                  "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]  # fmt: skip
        home = "HOME=/home/tensorkv"
        return shlex.join(
            ["chroot", str(self.image.root), "setpriv", *rights, "env", "-i", PATH, home, *variables, *words]
        )

    def wait_until_it_listens(self, pod, port, process):
        """Wait, as a probe of the kind tcpSocket does, for a process of a pod."""
        for _ in range(1200):
            if run("ip", "netns", "exec", self.space[pod], "ss", "-Htln", f"sport = :{port}"):
                return
            assert process.poll() is None, f"{pod} has ended: {process.communicate()[0]}"
            time.sleep(0.05)
        process.kill()
        raise AssertionError(f"after 60 s nobody listens at port {port} of {pod}: {process.communicate()[0]}")


def finish(processes, seconds=600):
    """Return [(exit status, output)] of processes, in their order."""
    deadline, ended = time.monotonic() + seconds, []
    for process in processes:
        try:
            said, _ = process.communicate(timeout=max(1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            said, _ = process.communicate()
            said += f"\nkilled after {seconds} s"
        ended.append((process.returncode, said))
    return ended
