"""The page of `tkv status --metrics`, and the files for Prometheus and Grafana that name its metrics."""

import json
import os
import pathlib
import re
import signal
import sys
import urllib.request

import exposition
import pytest
import tensorkv as tkv
import yaml
from jobs import finish, pids_of, read_until, wait_until

TKV = [sys.executable, "-m", "tensorkv"]
DEPLOY = pathlib.Path(__file__).parents[2] / "deploy"

# Round 2 of 'w' waits for rank 1 until the test marks "on".
TRAINER = """
    kv = mx.kv.create("dist_sync")
    kv.init("w", mx.nd.zeros((3,)))
    kv.push("w", mx.nd.ones((3,)))
    kv.barrier()
    if kv.rank == 0:
        kv.push("w", mx.nd.ones((3,)))
        print("url", kv.url, flush=True)
    until_marked("on")
    if kv.rank == 1:
        kv.push("w", mx.nd.ones((3,)))
    kv.pull("w").wait_to_read()
    mark(f"pulled-{kv.rank}")
    until_marked("bye")
    kv.close()
"""


class Job:
    """A running job and the page of its metrics."""

    def __init__(self, processes, *options):
        self.processes = processes
        self.launched = processes.launch(TRAINER, *options)
        self.url = re.search(r"url (\S+)", read_until(self.launched, "url ")).group(1)
        self.server = processes.start([*TKV, "status", "--metrics", "0", self.url])
        self.page = re.search(r"metrics at (\S+)", read_until(self.server, "metrics at")).group(1)

    def read(self):
        return exposition.read(urllib.request.urlopen(self.page, timeout=20).read().decode())

    def mark(self, name):
        (self.processes.folder / f"mark-{name}").touch()

    def end(self):
        self.server.send_signal(signal.SIGTERM)
        assert finish(self.server)[0] == 128 + signal.SIGTERM
        self.mark("on")
        self.mark("bye")
        return finish(self.launched)


def test_every_sample_says_its_job_and_its_build(processes):
    job = Job(processes, "--name", "scraped")
    families = job.read()
    for name, family in families.items():
        assert name.startswith("tensorkv_") and len(family.help) > 10, name
        assert family.samples, f"{name} has no sample"
        for labels in family.samples:
            assert labels[0][0] == "job" and re.fullmatch("scraped-[0-9a-f]{16}", labels[0][1]), labels
    assert families["tensorkv_build_info"].value(version=tkv.__version__) == 1
    assert families["tensorkv_healthy"].value() == 1
    assert families["tensorkv_worker_state"].value(rank="0", state="alive") == 1
    assert families["tensorkv_server_state"].value(server="1", state="alive") == 1
    assert families["tensorkv_key_rounds_total"].value(key="w", store="0") == 1
    assert families["tensorkv_key_bytes"].value(key="w") == 12
    assert families["tensorkv_membership_changes_total"].value() >= 4
    lives = families["tensorkv_worker_life"]
    assert lives.all("rank") == ["0", "1"] and all(life > 0 for life in lives.samples.values())
    assert job.end()[0] == 0


def test_the_documentation_lists_the_metrics_and_their_labels(processes):
    job = Job(processes)
    page = job.read()
    text = (DEPLOY.parent / "docs" / "cli.md").read_text()
    rows = re.findall(r"^\| `(tensorkv_\w+)` \|([^|]*)\|", text, re.MULTILINE)
    assert {name: {"job", *re.findall(r"`(\w+)`", labels)} for name, labels in rows} == {
        name: {label for have in family.samples for label, _ in have} for name, family in page.items()
    }
    assert job.end()[0] == 0


def test_a_job_is_stuck_as_long_as_a_round_waits_for_a_living_worker(processes):
    job = Job(processes)
    before = job.read()["tensorkv_stuck_seconds"].value()
    after = wait_until(lambda: (found := job.read())["tensorkv_stuck_seconds"].value() > before and found)
    assert after["tensorkv_worker_awaited_rounds"].value(rank="1") >= 1
    assert after["tensorkv_worker_awaited_rounds"].value(rank="0") == 0
    assert after["tensorkv_oldest_round_seconds"].value() == after["tensorkv_stuck_seconds"].value()
    job.mark("on")
    for rank in range(2):
        wait_until((processes.folder / f"mark-pulled-{rank}").exists)
    assert job.read()["tensorkv_stuck_seconds"].value() == 0
    assert job.end()[0] == 0


def test_a_job_whose_only_awaited_worker_is_dead_is_not_healthy_and_not_stuck(processes):
    job = Job(processes, "--on-death", "wait", "--grace", "60")
    os.kill(pids_of(job.launched, "worker")[1], signal.SIGKILL)
    found = wait_until(lambda: (found := job.read())["tensorkv_healthy"].value() == 0 and found)
    assert found["tensorkv_worker_state"].value(rank="1", state="dead") == 1
    assert found["tensorkv_stuck_seconds"].value() == 0
    assert found["tensorkv_oldest_round_seconds"].value() > 0
    job.server.kill()
    job.launched.terminate()
    finish(job.launched)


@pytest.mark.parametrize("name", ['a"b\\c\nd', "ü"], ids=["escapes", "utf-8"])
def test_a_label_has_any_name_of_a_job(processes, name):
    head = processes.start([*TKV, "head", "--workers", "1", "--servers", "1", "--job", name])
    address = re.search(r"listens at (\S+)", read_until(head, "listens")).group(1)
    variables = {"TKV_HEAD": address, "TKV_JOB": name}
    server = processes.start([*TKV, "status", "--metrics", "0", "--patience", "5"], **variables)
    page = re.search(r"metrics at (\S+)", read_until(server, "metrics at")).group(1)
    families = exposition.read(urllib.request.urlopen(page, timeout=20).read().decode())
    assert families["tensorkv_healthy"].all("job") == [name]
    for process in (server, head):
        process.terminate()
        finish(process)


# ------------------------------------------------------------------------------- the files for Prometheus and Grafana
def metrics_of(expression):
    """Return the names of metrics in an expression, and check that its brackets close."""
    plain = re.sub(r'"[^"]*"', '""', expression)
    assert all(plain.count(left) == plain.count(right) for left, right in ("()", "[]", "{}")), expression
    return set(re.findall(r"\b(?:tensorkv_\w+|up)\b", plain))


def labels_of(expression):
    """Return {metric: labels} that an expression selects by."""
    found = re.findall(r"(tensorkv_\w+)(?:\{([^}]*)\})?", expression)
    return {name: set(re.findall(r"(\w+)=~?\"", selected)) for name, selected in found}


def test_each_metric_of_the_dashboard_and_the_alerts_is_on_the_page_of_a_job(processes):
    job = Job(processes)
    page = job.read()
    assert job.end()[0] == 0
    board = json.loads((DEPLOY / "grafana" / "tensorkv.json").read_text())
    [variable] = [one for one in board["templating"]["list"] if one["type"] == "query"]
    texts = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    texts += [variable["query"]["query"], *(rule["expr"] for rule in rules())]
    used = set().union(*map(metrics_of, texts))
    assert used - {"up"} <= set(page), used - set(page)
    for text in texts:
        for name, labels in labels_of(text).items():
            assert labels <= {label for have in page[name].samples for label, _ in have}, text
    for panel in board["panels"]:
        for target in panel["targets"]:
            [have] = [dict(next(iter(page[name].samples))) for name in metrics_of(target["expr"])]
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= set(have), target


def rules():
    [group] = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())["groups"]
    assert group["name"] == "tensorkv"
    return group["rules"]


def test_the_alerts_have_what_prometheus_needs():
    assert [rule["alert"] for rule in rules()] == [
        "TensorKVJobStuck",
        "TensorKVMemberDead",
        "TensorKVJobNotHealthy",
        "TensorKVRestarts",
        "TensorKVNoScrape",
    ]
    for rule in rules():
        assert set(rule) - {"for"} == {"alert", "expr", "labels", "annotations"}, rule
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m")), rule
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description"}
    [scrape] = yaml.safe_load((DEPLOY / "prometheus" / "scrape.yaml").read_text())["scrape_configs"]
    assert f'up{{job="{scrape["job_name"]}"}} == 0' in [rule["expr"] for rule in rules()]
    assert scrape["honor_labels"] is True, "else the label `job` of the page becomes `exported_job`"


def test_the_dashboard_has_what_grafana_needs():
    board = json.loads((DEPLOY / "grafana" / "tensorkv.json").read_text())
    assert board["uid"] == "tensorkv" and board["title"] == "TensorKV" and board["schemaVersion"] >= 36
    assert {one["name"] for one in board["templating"]["list"]} == {"datasource", "job"}
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 8
    taken = set()
    for panel in panels:
        assert panel["type"] in ("stat", "timeseries") and panel["title"] and panel["description"], panel
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert at["x"] + at["w"] <= 24 and not cells & taken, f"{panel['title']} lies on another panel"
        taken |= cells
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references) > 0
        assert all('job=~"$job"' in target["expr"] for target in panel["targets"]), panel["title"]
