"""Tests the tester: each mutant of tests/mutants breaks a rule in a copy of the tree, and the simulation's model has to catch it
there. A crash is no catch. A mutant that names scopes is explored there too, and every one of them has to catch it.

A mutant is a file: a sentence on the broken rule, lines `Scope:`, `tests:` or `catch:` for the tool that judges it, and lines
that replace others:

    replace:
      if (op->cancelled) return Fail(op, TimeoutOf(*op));
    by:

The lines to be replaced stand at exactly one place of the sources, in any file.
"""

import argparse
import concurrent.futures
import contextlib
import functools
import os
import pathlib
import queue
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


class MutantError(Exception):
    """A mutant that cannot be made of the sources."""


@functools.cache
def sources():
    """Return the text of each file that a mutant may change, by its name."""
    command = ["git", "ls-files", "src", "include", "cli", "python"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    return {
        name: (ROOT / name).read_text() for name in names if not name.endswith("_test.cc") and (ROOT / name).is_file()
    }


class Mutant:
    """A broken rule.

    Attributes:
        name: of its file, without the ending.
        head: the text of the file before the first replacement.
        replacements: pairs of the lines to be replaced and the lines that replace them.
    """

    def __init__(self, path):
        self.name = path.stem
        self.head, *parts = re.split(r"^replace:\n", path.read_text(), flags=re.MULTILINE)
        self.replacements = [tuple(re.split(r"^by:\n", part, flags=re.MULTILINE)) for part in parts]

    def values(self, name):
        """Return the values of the head's lines with a name, such as `Scope: PL`."""
        return re.findall(rf"^{name}: (.+)$", self.head, re.MULTILINE)

    def changed(self):
        """Return the broken text of each file that the mutant changes, by its name.

        Raises:
            MutantError: lines to be replaced are missing, or stand at several places; the file has another form.
        """
        texts = {}
        if not self.replacements or any(len(pair) != 2 for pair in self.replacements):
            raise MutantError(f"{self.name}: one or several `replace:` are needed, each with one `by:`")
        for old, new in self.replacements:
            # A line break in front: the lines are whole ones.
            counts = {name: f"\n{text}".count(f"\n{old}") for name, text in sources().items()}
            found = [name for name, count in counts.items() if count > 0]
            if sum(counts.values()) != 1:
                where = f"stand in {', '.join(found)}" if found else "are in no source file"
                raise MutantError(f"{self.name}: these lines {where}; one place is needed:\n{old}")
            text = texts.get(found[0], sources()[found[0]])
            if f"\n{old}" not in f"\n{text}":
                raise MutantError(f"{self.name}: two replacements have lines in common:\n{old}")
            texts[found[0]] = f"\n{text}".replace(f"\n{old}", f"\n{new}", 1)[1:]
        return texts


def find(folder, names=()):
    """Return the mutants in a folder of tests/ whose names contain one of `names`, or all. Each mutant of the folder can be made.

    Raises:
        SystemExit: a mutant of the folder cannot be made of the sources, or none has such a name.
    """
    mutants = [Mutant(path) for path in sorted((ROOT / "tests" / folder).glob("*.mutant"))]
    for mutant in mutants:
        try:
            mutant.changed()
        except MutantError as error:
            raise SystemExit(f"{folder}: {error}") from error
    found = [mutant for mutant in mutants if not names or any(name in mutant.name for name in names)]
    if not found:
        raise SystemExit(f"{folder}: there is no mutant {' or '.join(names)}".rstrip())
    return found


class NotBuiltError(Exception):
    """The copy does not build; the message is the compiler's output."""


def first_error(error):
    """Return the first line of the compiler's output that names an error."""
    return next((line for line in str(error).splitlines() if "error" in line), "no line names an error")


class Copy:
    """A copy of the tree, in which one mutant at a time breaks a rule.

    Attributes:
        folder: of the copy and what is made beside it.
        tree: the copy itself.
    """

    def __init__(self, number):
        self.folder = ROOT / "build" / "mutants" / str(number)
        self.tree = self.folder / "tree"

    def update(self):
        """Bring the copy up to date; unchanged files keep their time, so that little is compiled again."""
        files = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
        for name in files:
            source, target = ROOT / name, self.tree / name
            if not source.is_file() or (target.exists() and target.read_bytes() == source.read_bytes()):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        for folder in ("src", "include", "cli", "python", "tests"):  # a removed file must not be found in the copy
            for path in (self.tree / folder).rglob("*"):
                if path.is_file() and not (ROOT / path.relative_to(self.tree)).is_file():
                    path.unlink()

    def configure(self, *options):
        """Configure a build of the copy by CMake."""
        command = ["cmake", "--preset", "release", *options]
        subprocess.run(command, check=True, cwd=self.tree, env=self._environment(), capture_output=True)

    def build(self, folder, target):
        """Build a target in a folder of the copy.

        Raises:
            NotBuiltError: it does not build; the message is the compiler's output.
        """
        command = ["cmake", "--build", folder, "--target", target]
        done = subprocess.run(
            command, cwd=self.tree, env=self._environment(), capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise NotBuiltError(done.stdout[-3000:])

    def _environment(self):
        # With relative paths the copies share the compiler's cache with each other, and with builds of the tree.
        return {**os.environ, "CCACHE_BASEDIR": str(self.tree)}


def copies(mutants):
    """Return a copy for each processor, but not more than mutants. Each is up to date."""
    made = [Copy(number) for number in range(min(os.cpu_count(), len(mutants)))]
    for copy in made:
        copy.update()
    return made


FEW = 8  # the number of mutants up to which batches are taken


def configure(copy, count):
    """Configure a copy's build. A few mutants compile batches, which the compiler's cache has; many compile one file each."""
    batches = "ON" if count <= FEW else "OFF"
    copy.configure("-DTKV_BUILD_TESTS=OFF", "-DTKV_BUILD_BENCH=OFF", f"-DTKV_UNITY={batches}")


def build(copy):
    """Build the command in a copy; raise NotBuiltError where it does not build."""
    copy.build("build/release", "tkv_cli")


# A mutant may leave a variable or a function unused, which is no error here.
QUIET = "".join(
    f'#pragma GCC diagnostic ignored "-Wunused-{what}"\n'
    for what in ("parameter", "variable", "but-set-variable", "function")
)


@contextlib.contextmanager
def applied(mutant, tree, prefix=""):
    """Break the rule in a copy of the sources while the block runs.

    Args:
        mutant: the one to apply.
        tree: the folder of the copy.
        prefix: text that is put before each changed file.
    """
    changed = mutant.changed()
    for name, text in changed.items():
        (tree / name).write_text(prefix + text)
    try:
        yield
    finally:
        for name in changed:
            (tree / name).write_text(sources()[name])


def quieted(mutant, copy):
    """Break the rule in a copy of the tree; nothing that is unused then is an error."""
    is_python = any(name.endswith(".py") for name in mutant.changed())
    return applied(mutant, copy.tree, "" if is_python else QUIET)


def command_of(copy):
    """Return the path of the command that a copy has built."""
    return copy.tree / "build" / "release" / "cli" / "tkv"


def explore(copy, scope):
    """Return (caught, text): the verdict of the exploration of a scope on a copy."""
    command = [command_of(copy), "explore", scope]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    violation = re.search(rf"^{scope}: (.*)$", done.stdout, re.MULTILINE)
    if done.returncode == 1 and violation:
        return True, f"in {scope}: {violation.group(1)}"
    return False, f"survived {scope}" if done.returncode == 0 else f"crashed in {scope} with {done.returncode}"


def judge(copy, seeds):
    """Return (caught, text): the verdict of the simulation on a copy."""
    command = [command_of(copy), "sim", "--count", str(seeds), "--jobs", str(os.cpu_count())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    first = re.search(r"^seed (\d+): (.*)$", done.stdout, re.MULTILINE)
    if done.returncode == 1 and first:
        return True, f"after {first.group(1)} seeds: {first.group(2)}"
    if done.returncode == 0:
        return False, f"survived {seeds} seeds"
    return False, f"crashed with {done.returncode}"


def judge_mutant(mutant, copy, seeds):
    """Return (caught, text) of the simulation with a mutant, and the same of each scope that the mutant names."""
    scopes = mutant.values("Scope")
    with quieted(mutant, copy):
        try:
            build(copy)
        except NotBuiltError as error:
            verdict = False, f"does not build: {first_error(error)}"
            return verdict, [verdict for _ in scopes]
        return judge(copy, seeds), [explore(copy, scope) for scope in scopes]


def judged(mutants, copies, judge_one):
    """Judge each mutant in a copy that is free; yield (mutant, verdict) in the order of the mutants.

    Args:
        mutants: to be judged.
        copies: places to judge in, as many at once.
        judge_one: takes a mutant and a copy, and returns the verdict.
    """
    free = queue.SimpleQueue()
    for copy in copies:
        free.put(copy)

    def judge_in_free_copy(mutant):
        copy = free.get()
        try:
            return judge_one(mutant, copy)
        finally:
            free.put(copy)

    with concurrent.futures.ThreadPoolExecutor(len(copies)) as pool:
        yield from zip(mutants, pool.map(judge_in_free_copy, mutants), strict=True)


def report(mutants, copies, judge_one):
    """Judge mutants and print a line for each; return the exit status.

    Args:
        mutants, copies: as of judged().
        judge_one: takes a mutant and a copy, and returns whether the mutant's tests have noticed, and a word on it.
    """
    missed = 0
    for mutant, (caught, text) in judged(mutants, copies, judge_one):
        print(f"{mutant.name}: {text}", flush=True)
        missed += not caught
    print(f"{len(mutants) - missed} of {len(mutants)} caught")
    return 1 if missed else 0


def main():
    """Run the mutants that the arguments select; the exit status is 0 if at least 95 % are caught."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="parts of names of mutants; default all")
    parser.add_argument("--seeds", type=int, default=10000)
    arguments = parser.parse_args()
    wanted = find("mutants", arguments.names)
    made = copies(wanted)
    try:
        for copy in made:
            configure(copy, len(wanted))
            build(copy)
    except NotBuiltError as error:
        raise SystemExit(f"mutants: the copy does not build:\n{error}") from error
    sound, text = judge(made[0], arguments.seeds)
    if sound or not text.startswith("survived"):
        raise SystemExit(f"mutants: the tree itself fails: {text}")
    caught = explored = missed = 0
    judge_one = functools.partial(judge_mutant, seeds=arguments.seeds)
    for mutant, ((is_caught, text), verdicts) in judged(wanted, made, judge_one):
        explored += len(verdicts)
        missed += sum(not found for found, _ in verdicts)
        caught += is_caught
        for found, words in [(is_caught, text), *verdicts]:
            print(f"{mutant.name:<32} {'caught' if found else 'NOT CAUGHT'} {words[:150]}", flush=True)
    percent = 100 * caught / len(wanted)
    print(
        f"{caught} of {len(wanted)} mutants caught, {percent:.0f} %; {explored - missed} of {explored} in the scopes that they name"
    )
    return 0 if caught >= 0.95 * len(wanted) and missed == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
