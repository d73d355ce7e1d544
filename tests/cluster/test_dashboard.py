"""The page of `tkv dashboard`, over plain HTTP and in a browser."""

import contextlib
import http.client
import json
import os
import re
import signal
import sys
import time
import urllib.parse

import pytest
from browser import Browser
from jobs import finish, pids_of, read_until, wait_until
from test_cli import documented

TKV = [sys.executable, "-m", "tensorkv"]

# Both workers push rounds of a key with an evil name until the test marks "hold"; then round N waits for rank 1 until "on".
TRAINER = """
    kv = mx.kv.create("dist_sync")
    name = "<b id=evil>&w</b>"
    kv.init(name, mx.nd.zeros((30000,)))
    if kv.rank == 0:
        print("url", kv.url, flush=True)
    folder = os.path.dirname(os.path.abspath(__file__))
    while True:
        holds = kv.rank == 1 and os.path.exists(os.path.join(folder, "mark-hold"))
        if holds:
            until_marked("on")
        done = mx.nd.full((1,), float(holds))
        kv.pushpull(name, mx.nd.full((30000,), float(holds)), out=(value := mx.nd.zeros((30000,))))
        if value.asnumpy()[0] > 0:
            break
        time.sleep(0.02)
    until_marked("bye")
    kv.close()
"""


class Job:
    """A running job and the command that serves its page."""

    def __init__(self, processes, *options):
        self.processes = processes
        self.launched = processes.launch(TRAINER, "--name", "plotted")
        self.url = re.search(r"url (\S+)", read_until(self.launched, "url ")).group(1)
        self.command = processes.start([*TKV, "dashboard", *options, self.url])
        self.page = re.search(r"dashboard at (\S+)", read_until(self.command, "dashboard at")).group(1)
        self.port = urllib.parse.urlsplit(self.page).port

    def ask(self, path="/", host=None, method="GET"):
        """Return (status, headers, text) of a request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request(method, path, headers={} if host is None else {"Host": host})
        answer = connection.getresponse()
        with contextlib.closing(connection):
            return answer.status, answer.headers, answer.read().decode()

    def mark(self, name):
        (self.processes.folder / f"mark-{name}").touch()

    def end(self):
        for mark in ("hold", "on", "bye"):
            self.mark(mark)
        status, said = finish(self.launched)
        assert status == 0, said


@pytest.fixture
def job(processes):
    """A job with its page; it ends behind the test."""
    job = Job(processes)
    yield job
    if job.command.poll() is None:
        job.command.send_signal(signal.SIGTERM)
        assert finish(job.command)[0] == 128 + signal.SIGTERM
    if job.launched.poll() is None:
        job.end()


@pytest.fixture
def browser(tmp_path):
    browser = Browser(tmp_path)
    yield browser
    browser.close()


def test_the_page_has_the_numbers_and_the_plots_without_a_script(job):
    status, headers, page = job.ask()
    assert status == 200 and headers["Content-Type"] == "text/html; charset=utf-8"
    assert re.search(r"<title>plotted-[0-9a-f]{16} - TensorKV</title>", page), page
    for rank in range(2):
        assert re.search(rf"<tr><td>worker {rank}</td><td>alive</td><td>[\d.]+</td>", page), page
        assert re.search(rf"<tr><td>server {rank}</td><td>alive</td><td>\d+</td>", page), page
    assert "&lt;b id=evil&gt;&amp;w&lt;/b&gt;" in page and "<b id=evil>" not in page
    found = wait_until(
        lambda: (rates := re.findall(r"fastest key <b>([\d.]+)/s", job.ask()[2])) and float(rates[0]) > 0
    )
    assert found
    assert wait_until(lambda: len(re.search(r'points="([^"]*)"', job.ask()[2])[1].split()) >= 3)
    assert "<noscript><p>Without JavaScript the page loads itself again every two seconds.</p></noscript>" in page


def test_the_page_loads_nothing_from_elsewhere(job):
    _, headers, page = job.ask()
    assert "default-src 'none'" in headers["Content-Security-Policy"] and headers["Cache-Control"] == "no-store"
    names = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert sorted(names) == ["/dashboard.css", "/dashboard.js", "data:,"]
    for name in names[1:]:
        status, headers, text = job.ask(name)
        assert status == 200 and headers["X-Content-Type-Options"] == "nosniff"
        assert "://" not in text and "url(" not in text and "@import" not in text


@pytest.mark.parametrize("host", ["evil.example", "evil.example:PORT", "10.1.2.3:PORT", "localhost.evil.example", ""])
def test_another_name_of_this_host_is_refused_with_the_way_to_look(job, host):
    status, _, text = job.ask(host=host.replace("PORT", str(job.port)))
    assert status == 403 and f"ssh -L {job.port}:127.0.0.1:{job.port} " in text, text
    assert f"not to '{host.replace('PORT', str(job.port))}'" in text and "worker" not in text


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9", "127.0.0.1:8000", "[::1]:8000"])
def test_every_name_of_the_loopback_is_answered(job, host):
    assert job.ask(host=host)[0] == 200


def test_other_requests_have_no_answer(job):
    assert job.ask("/x")[0] == 404 and job.ask("/../etc/passwd")[0] == 404 and job.ask(method="POST")[0] == 404
    status, headers, text = job.ask(method="HEAD")
    assert status == 200 and int(headers["Content-Length"]) > 0 and text == ""


def test_a_port_that_is_taken_is_an_error_with_a_way_out(processes, job):
    status, said = finish(processes.start([*TKV, "dashboard", "--port", str(job.port), job.url]))
    assert status == 2, said
    expected = f"dashboard: --port {job.port}: Address already in use; --port 0 takes any port that is free"
    assert expected in said, said


def test_the_page_says_which_round_waits_for_whom(job):
    job.mark("hold")
    page = wait_until(lambda: re.search("waits (?:[5-9]|\\d\\d)\\.\\d s", page := job.ask()[2]) and page)
    state = re.search(r'<p id="state" class="(\w+)"[^>]*>([^<]+)', page)
    assert state[1] == "slow" and re.fullmatch(r"round \d+ of '&lt;b.*&gt;' waits [\d.]+ s for worker 1", state[2]), (
        page
    )


def test_the_command_ends_with_its_job_and_the_page_says_so(processes):
    job = Job(processes)
    job.end()
    page = wait_until(lambda: "data-ended" in (page := job.ask()[2]) and page)
    assert re.search(r'class="ended"[^>]*>The job has ended', page) and 'http-equiv="refresh"' not in page
    status, said = finish(job.command)
    assert status == 0 and said.startswith("The job has ended"), said
    with pytest.raises(ConnectionRefusedError):
        job.ask()


def test_the_page_answers_while_a_server_is_silent_and_names_it(processes):
    job = Job(processes)
    [server, _] = pids_of(job.launched, "server")
    os.kill(server, signal.SIGSTOP)
    try:
        page = wait_until(lambda: "server 0" in (state := state_of(job)) and state, seconds=60)
        asked = time.monotonic()
        assert job.ask()[0] == 200 and time.monotonic() - asked < 4, "the page waits for the server"
    finally:
        os.kill(server, signal.SIGCONT)
    assert page.startswith("wrong "), page
    job.command.terminate()
    assert finish(job.command)[0] == 128 + signal.SIGTERM
    assert finish(job.launched)[0] != 0, "a server that is stopped for so long is dead, and its job with it"


def state_of(job):
    """Return the class and the text of the line that says how the job is."""
    return " ".join(re.search(r'<p id="state" class="(\w+)"[^>]*>([^<]*)', job.ask()[2]).groups())


def test_the_command_ends_when_the_head_stays_out_of_reach(processes):
    job = Job(processes, "--patience", "1")
    job.launched.kill()
    state = wait_until(lambda: "out of reach. " in (state := state_of(job)) and state, seconds=60)
    assert state.startswith("ended The job has ended, or its head is out of reach. "), state
    status, said = finish(job.command)
    assert status == 0 and said == "The job has ended, or its head is out of reach\n", said


def test_json_says_where_the_page_is_and_when_the_job_has_ended(processes):
    launched = processes.launch(TRAINER)
    url = re.search(r"url (\S+)", read_until(launched, "url ")).group(1)
    command = processes.start([*TKV, "dashboard", "--json", url])
    begin = json.loads(read_until(command, "\n"))
    for mark in ("hold", "on", "bye"):
        (processes.folder / f"mark-{mark}").touch()
    assert finish(launched)[0] == 0
    status, said = finish(command)
    end = json.loads(said)
    for one in (begin, end):
        assert set(one) - {"event"} == documented()["dashboard", one["event"]], one
    assert status == 0 and begin["url"].startswith("http://127.0.0.1:") and end["text"].startswith("The job has ended")


def test_a_browser_shows_live_numbers_and_the_end_of_the_job(job, browser):
    browser.open(job.page)
    wait_until(lambda: browser.value("document.querySelectorAll('#workers tr').length") == 2)

    def points():
        return len(browser.value("document.querySelector('#plots polyline').getAttribute('points')").split())

    before = points()
    wait_until(lambda: points() >= before + 2)
    assert browser.value("document.getElementById('evil')") is None
    assert browser.value("document.querySelector('#keys td').textContent") == "'<b id=evil>&w</b>'"
    line = "document.querySelector('#plots svg').getBoundingClientRect().height"
    assert browser.value(line) > 40, "the style is in force"
    job.end()
    wait_until(lambda: browser.value("document.getElementById('state').className") == "ended")
    assert finish(job.command)[0] == 0
    assert browser.value("document.getElementById('silence').hidden")
    assert not browser.errors, browser.errors
    assert all(url.startswith((job.page, "about:", "data:")) for url in browser.requests), browser.requests


def test_a_browser_says_that_the_command_no_longer_answers(job, browser):
    browser.open(job.page)
    wait_until(lambda: browser.value("document.querySelectorAll('#workers tr').length") == 2)
    job.command.send_signal(signal.SIGINT)
    assert finish(job.command)[0] == 128 + signal.SIGINT
    wait_until(lambda: browser.value("!document.getElementById('silence').hidden"))
    assert "does not answer" in browser.value("document.getElementById('silence').textContent")


def test_the_page_fits_a_telephone(job, browser):
    browser.open(job.page, width=360)
    wait_until(lambda: browser.value("document.querySelectorAll('#workers tr').length") == 2)
    assert browser.value("document.documentElement.clientWidth") == 360
    assert browser.value("document.documentElement.scrollWidth") <= 360
    outside = "[...document.querySelectorAll('body *')].filter(e => !e.closest('.wide table') && "
    outside += "e.getBoundingClientRect().right > 361).map(e => e.outerHTML)"
    assert browser.value(outside) == []


def test_a_browser_without_javascript_loads_newer_numbers(job, browser):
    browser.open(job.page, script=False)
    deadline = time.monotonic() + 30
    while browser.requests.count(job.page) < 3:
        assert time.monotonic() < deadline, browser.requests
        browser.listen()
        time.sleep(0.1)
