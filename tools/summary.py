"""Adds up the results of all test runners; the last line is `N passed, N failed, N skipped`.

A program that left no results file, a leak that nanobind reports, and zero tests are failures.
"""

import argparse
import json
import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def read_gtest(folder, expected):
    """Yield (name, outcome, reason) of each C++ test."""
    files = sorted(pathlib.Path(folder).glob("*.json"))
    for path in files:
        for suite in json.loads(path.read_text())["testsuites"]:
            for test in suite["testsuite"]:
                name = f"{path.stem} {suite['name']}.{test['name']}"
                if test.get("failures"):
                    yield name, "failed", test["failures"][0]["failure"].splitlines()[0]
                elif test.get("result") == "SKIPPED" or test.get("status") == "NOTRUN":
                    skipped = test.get("skipped") or [{"message": "not run"}]
                    yield name, "skipped", skipped[0]["message"].strip()
                else:
                    yield name, "passed", ""
    if len(files) != expected:
        yield f"{folder}", "failed", f"{len(files)} of {expected} programs left results: one crashed"


def read_junit(path):
    """Yield (name, outcome, reason) of each Python test."""
    if not pathlib.Path(path).exists():
        yield path, "failed", "the runner left no results"
        return
    for case in ElementTree.parse(path).iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        problem = case.find("failure") if case.find("failure") is not None else case.find("error")
        if problem is not None:
            yield name, "failed", (problem.get("message") or "").splitlines()[0:1]
        elif case.find("skipped") is not None:
            yield name, "skipped", case.find("skipped").get("message")
        else:
            yield name, "passed", ""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gtest", action="append", default=[])
    parser.add_argument("--expect-programs", type=int, default=0)
    parser.add_argument("--junit", action="append", default=[])
    parser.add_argument("--leaks", action="append", default=[], help="logs in which nanobind must not report leaks")
    arguments = parser.parse_args()
    results = [r for folder in arguments.gtest for r in read_gtest(folder, arguments.expect_programs)]
    results += [r for path in arguments.junit for r in read_junit(path)]
    for path in arguments.leaks:
        if "nanobind: leaked" in pathlib.Path(path).read_text():
            results.append((path, "failed", "nanobind reports leaked instances"))
    count = {outcome: sum(r[1] == outcome for r in results) for outcome in ("passed", "failed", "skipped")}
    for outcome in ("skipped", "failed"):
        for name, found, reason in results:
            if found == outcome:
                print(f"{outcome}: {name}: {reason}")
    if count["passed"] == 0:
        print("failed: no test ran")
        count["failed"] = max(count["failed"], 1)
    print(f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped")
    return 1 if count["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
