"""Assembles the kernels that the generator writes, for every GPU that it is for, and keeps the table of their registers in
docs/gpu.md."""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "gpu.md"
TARGETS = ("sm_70", "sm_80", "sm_90", "sm_100", "sm_120")
# The assemblers of tools/requirements/gpu.txt, with the purpose of each; the table is by the first.
ASSEMBLERS = {"nvidia/cuda_nvcc/bin/ptxas": TARGETS, "nvidia/cu13/bin/ptxas": TARGETS[1:]}
BEGIN, END = "<!-- ptxas: begin -->\n", "<!-- ptxas: end -->\n"


def assemble(ptxas, path, target):
    """Return (registers, bytes spilled) of a kernel; raise if the assembler refuses it."""
    command = [ptxas, "-v", "-arch", target, "-o", os.devnull, path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    text = done.stdout + done.stderr
    if done.returncode != 0 or "warning" in text:
        raise SystemExit(f"ptxas: {path.stem} for {target}: {text}")
    registers = int(re.search(r"Used (\d+) registers", text)[1])
    return registers, int(re.search(r"(\d+) bytes spill stores", text)[1])


def assemble_all(folder, assemblers):
    """Return {(kernel, target): (registers, bytes spilled)} by the first assembler; all have to take the kernels."""
    kernels = sorted(folder.glob("*.ptx"))
    jobs = [
        (assemblers / ptxas, kernel, target)
        for ptxas, targets in ASSEMBLERS.items()
        for kernel in kernels
        for target in targets
    ]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda job: assemble(*job), jobs))
    print(f"{len(kernels)} kernels, {len(jobs)} times assembled")
    return {(job[1].stem, job[2]): r for job, r in reversed(list(zip(jobs, results, strict=True)))}


def table(names, found):
    """Return the table: registers with the launch's table as the parameter, and in memory; and bytes spilled, if any."""

    def words(name, target):
        registers, spilled = found[name, target]
        return f"{registers} ({spilled} spilled)" if spilled else f"{registers}"

    lines = [f"| kernel | {' | '.join(TARGETS)} |", "|---" * (len(TARGETS) + 1) + "|"]
    for name in names:
        cells = [f"{words(name, target)} / {words(name + '-memory', target)}" for target in TARGETS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main():
    """Check or write the table; the exit status is 1 if it is not current."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the table again")
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build" / "release" / "tests" / "ptx_kernels")
    parser.add_argument("--assemblers", type=pathlib.Path, default=ROOT / "build" / "ptxas")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run([arguments.program, folder], check=True)
        found = assemble_all(folder, arguments.assemblers)
        made = table((folder / "table").read_text().split(), found)
    before, _, rest = DOCUMENT.read_text().partition(BEGIN)
    old, _, after = rest.partition(END)
    if old == made:
        return 0
    if arguments.write:
        DOCUMENT.write_text(before + BEGIN + made + END + after)
        return 0
    print("docs/gpu.md: the table of registers is not current: tools/ptxas.py --write writes it again")
    return 1


if __name__ == "__main__":
    sys.exit(main())
