"""Metrics of a real server: what they count, and who may read them."""

import os
import shutil
import signal
from pathlib import Path

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families
from waiting import wait_until

from commands.running import SERVER_MODULES
from identity.http.metrics import FILE_SIZE

from .running import ANSWER_TIMEOUT, ask_each_worker, running_server

pytestmark = [pytest.mark.live, pytest.mark.load]
KINDS = ("histogram", "counter")
TOKEN = "a-token-of-the-monitoring"


@pytest.fixture(scope="module", params=SERVER_MODULES)
def server(request):
    with running_server(kind=request.param, METRICS="on") as server:
        yield server


def folder_of(server) -> Path:
    """Return the folder of the files with which the workers count."""
    variables = Path(f"/proc/{server.workers()[0]}/environ").read_text().split("\0")
    [folder] = [each for each in variables if each.startswith("PROMETHEUS_MULTIPROC_DIR=")]
    return Path(folder.partition("=")[2])


def scrape(server, **headers: str) -> dict:
    """Return the values of all samples, by name and labels."""
    answer = requests.get(f"{server.address}/metrics", headers=headers)
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    found = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            found[sample.name, *sorted(sample.labels.items())] = sample.value
    return found


def workers_of(metrics: dict) -> float:
    """Return how many workers have had a request."""
    return metrics["identity_workers",]


def requests_to(metrics: dict, route: str) -> dict[tuple[str, str], float]:
    """Return how many requests there were by method and status."""
    counts = {}
    for (name, *pairs), value in metrics.items():
        labels = dict(pairs)
        if name == "identity_request_seconds_count" and labels["route"] == route:
            counts[labels["method"], labels["status"]] = value
    return counts


def ask_for_user(server, user_id: int) -> None:
    """Send two requests: one that is found, and one for this user."""
    requests.get(f"{server.address}/api/users/info?id=1", timeout=ANSWER_TIMEOUT)
    requests.get(f"{server.address}/users/{user_id}", timeout=ANSWER_TIMEOUT)


def test_requests_of_all_workers_add_up(server):
    server.add_user("Zaphod")
    for user_id in (1, 2):  # each worker gets some
        ask_each_worker(server, lambda user_id=user_id: ask_for_user(server, user_id))
    for number in range(96):  # a connection each
        ask_for_user(server, number % 2 + 1)
    requests.post(f"{server.address}/api/oauth/token", data={"code": "x"})
    requests.post(f"{server.address}/sign-in", data={"name": "Zaphod", "password": "wrong"})
    metrics = scrape(server)
    assert requests_to(metrics, "/api/users/info")["GET", "200"] == 100
    assert requests_to(metrics, "/users/<user_id>") == {("GET", "200"): 50, ("GET", "404"): 50}
    assert workers_of(metrics) == 2
    assert metrics["identity_saves_total", ("outcome", "refused")] == 2
    assert metrics["identity_refusals_total", ("status", "403")] == 1
    assert metrics["identity_busy_places", ("kind", "password")] == 0
    text = requests.get(f"{server.address}/metrics").text
    assert "Zaphod" not in text and "/users/1" not in text


def test_odd_requests_make_few_labels(server):
    for number in range(200):
        requests.request(f"ODD{number}", f"{server.address}/no/{number}")
    metrics = scrape(server)
    assert sum(requests_to(metrics, "other").values()) >= 200
    assert {method for method, _ in requests_to(metrics, "other")} <= {"GET", "other"}


def test_counts_of_a_killed_worker_stay(server):
    before = requests_to(scrape(server), "/api/users/info")
    killed, folder = server.workers()[0], folder_of(server)
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: len(set(server.workers()) - {killed}) == 2)

    def both_count() -> bool:
        return requests.get(f"{server.address}/healthz").ok and workers_of(scrape(server)) == 2

    wait_until(both_count)
    assert requests_to(scrape(server), "/api/users/info") == before
    # Each reload leaves the files of all workers, and /dev/shm is small in a container.
    sizes = {kind: (folder / f"{kind}_{killed}.db").stat().st_size for kind in KINDS}
    assert all(0 < size < FILE_SIZE / 4 for size in sizes.values()), sizes


def test_no_proxy_gets_metrics_without_a_token(server):
    address = f"{server.address}/metrics"
    for name in ("X-Forwarded-For", "X-Real-IP", "Forwarded", "Via", "X-Forwarded-Proto"):
        answer = requests.get(address, headers={name: "127.0.0.1"})
        assert (answer.status_code, answer.text) == (404, "")
    assert requests.get(address, headers={"Host": "id.example.org"}).status_code == 404
    assert requests.post(address).status_code == 405
    assert requests.head(address).status_code == 200


def test_token_is_needed_and_enough():
    with running_server(METRICS=TOKEN) as server:
        address = f"{server.address}/metrics"
        for authorization in ("", TOKEN, f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer é"):
            headers = {"Authorization": authorization.encode("latin-1")}
            answer = requests.get(address, headers=headers)
            assert (answer.status_code, answer.text) == (401, "")
        proxied = {"Authorization": f"Bearer {TOKEN}", "X-Forwarded-For": "192.0.2.1"}
        assert scrape(server, **proxied)
        assert TOKEN not in server.command_output("settings")


def test_lost_folder_stops_no_request():
    with running_server(METRICS="on") as server:
        shutil.rmtree(folder_of(server))
        for path in ("/", "/players", "/sign-in", "/healthz"):
            assert requests.get(f"{server.address}{path}").status_code == 200
