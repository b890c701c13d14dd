"""Metrics in the text format of Prometheus, at `/metrics`: of all worker processes of this machine.

`Metered` is WSGI middleware around everything else, and there only if IDENTITY_METRICS is set. The
workers write into files of a folder that `serve` makes (PROMETHEUS_MULTIPROC_DIR), and whichever
answers reads all of them. Labels are the rules of routes, never what a client sent.
"""

import contextlib
import glob
import hmac
import ipaddress
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterable

from flask import Flask, request
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, multiprocess
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from identity.http.limits import password_limit, picture_limit

PATH = "/metrics"
ROUTE = "identity.route"  # where Flask puts the rule into the WSGI environ
OTHER = "other"
METHODS = frozenset(("GET", "HEAD", "POST", "OPTIONS"))
REFUSALS = frozenset(("401", "403", "429"))
SECONDS = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5)
# A request with one of these came through a proxy.
FORWARDED = ("X_FORWARDED_FOR", "X_FORWARDED_HOST", "X_FORWARDED_PROTO", "FORWARDED", "VIA")
LOOPBACK_HOST = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]+)?")
FILE_SIZE = 2**20  # bytes, of which prometheus_client makes its files
LOG = logging.getLogger(__name__)

Start = Callable[..., object]


class Metered:
    """WSGI middleware that measures the requests of an app, and answers at PATH.

    `secret` is a bearer token, or "on": then loopback clients alone are answered. `api_paths` has
    method and path of the calls that Flask does not see.
    """

    def __init__(self, app: Flask, api_paths: Iterable[tuple[str, str]], secret: str) -> None:
        self._inner = app.wsgi_app
        self._api_paths = {path for _, path in api_paths}
        self._secret = secret
        self._children: dict[tuple, Histogram] = {}
        self._counters: dict[tuple, Counter] = {}
        self._is_ready = self._is_broken = False
        app.before_request(note_route)

    def __call__(self, environ: dict, start_response: Start) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == PATH:
            return self._answer(environ, start_response)
        statuses: list[str] = []

        def start(status: str, *rest: object) -> object:
            statuses.append(status[:3])
            return start_response(status, *rest)

        started = time.perf_counter()
        response = self._inner(environ, start)
        route = path if path in self._api_paths else environ.get(ROUTE, OTHER)
        method, status = environ["REQUEST_METHOD"], statuses[-1] if statuses else "none"
        self._note(route, method, status, time.perf_counter() - started)
        return response

    def _note(self, route: str, method: str, status: str, seconds: float) -> None:
        """Add a request to the metrics, if `_prepare` can make them."""
        labels = route, method if method in METHODS else OTHER, status
        child = self._children.get(labels)
        if child is None:
            if not self._prepare():
                return
            child = self._children[labels] = self._requests.labels(*labels)
        child.observe(seconds)
        if method == "POST":
            self._count(self._saves, outcome_of(status))
        if status in REFUSALS:
            self._count(self._refusals, status)

    def _count(self, counter: Counter, label: str) -> None:
        child = self._counters.get((counter, label))
        if child is None:
            child = self._counters[counter, label] = counter.labels(label)
        child.inc()

    def _prepare(self) -> bool:
        """Make the metrics at the first request, so after a fork; False if that failed once."""
        if self._is_ready or self._is_broken:
            return self._is_ready
        try:
            reserve_files()
        except OSError as error:
            LOG.error("requests are not measured: %s", error)
            self._is_broken = True
            return False
        self._registry = registry = CollectorRegistry()
        text, names = "Time until a response begins.", ["route", "method", "status"]
        name = "identity_request_seconds"
        self._requests = Histogram(name, text, names, registry=registry, buckets=SECONDS)
        text = "Requests that may save something, by what became of them."
        self._saves = Counter("identity_saves", text, ["outcome"], registry=registry)
        text = "Requests that were refused, by status."
        self._refusals = Counter("identity_refusals", text, ["status"], registry=registry)
        live = {"registry": registry, "multiprocess_mode": "livesum"}
        busy = Gauge("identity_busy_places", "Places that expensive work takes.", ["kind"], **live)
        for kind, limit in (("password", password_limit), ("picture", picture_limit)):
            limit.on_change = busy.labels(kind).set
        Gauge("identity_workers", "Worker processes.", **live).set(1)
        self._is_ready = True
        return True

    def _answer(self, environ: dict, start_response: Start) -> Iterable[bytes]:
        """Answer a request for PATH as WSGI does, with an empty body for those not allowed."""
        status, body = "200 OK", b""
        if self._secret != "on" and not has_token(environ, self._secret):
            status = "401 Unauthorized"
        elif self._secret == "on" and not is_local(environ):
            status = "404 Not Found"
        elif environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            status = "405 Method Not Allowed"
        elif self._prepare():
            body = self._collect()
        headers = [("Content-Type", CONTENT_TYPE_LATEST), ("Content-Length", str(len(body)))]
        headers += [("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff")]
        headers += [("WWW-Authenticate", "Bearer")] if status.startswith("401") else []
        start_response(status, headers)
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else body]

    def _collect(self) -> bytes:
        """Return the metrics of all processes, or of this one if `serve` made no folder."""
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return generate_latest(self._registry)
        forget_dead_processes()
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)
        return generate_latest(registry)


def note_route() -> None:
    """Keep the rule of a request where the middleware finds it."""
    if request.url_rule is not None:
        request.environ[ROUTE] = request.url_rule.rule


def outcome_of(status: str) -> str:
    """Return what became of a request: "done", "refused", "failed" (503) or "full" (507)."""
    return {"503": "failed", "507": "full"}.get(status, "done" if status < "400" else "refused")


def has_token(environ: dict, token: str) -> bool:
    """Return True if the request has the bearer token."""
    sent = environ.get("HTTP_AUTHORIZATION", "")
    return hmac.compare_digest(sent.encode("latin-1", "replace"), f"Bearer {token}".encode())


def is_local(environ: dict) -> bool:
    """Return True for a request of this machine that came through no proxy."""
    try:
        is_loopback = ipaddress.ip_address(environ.get("REMOTE_ADDR", "")).is_loopback
    except ValueError:
        return False
    is_forwarded = any(f"HTTP_{name}" in environ for name in (*FORWARDED, "X_REAL_IP"))
    has_local_host = LOOPBACK_HOST.fullmatch(environ.get("HTTP_HOST", "")) is not None
    return is_loopback and has_local_host and not is_forwarded


def reserve_files() -> None:
    """Make the files of this process whole: on a full disk a sparse one would kill it (SIGBUS)."""
    folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    for kind in ("histogram", "counter", "gauge_livesum") if folder else ():
        descriptor = os.open(f"{folder}/{kind}_{os.getpid()}.db", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, FILE_SIZE)
        finally:
            os.close(descriptor)


def forget_dead_processes() -> None:
    """Remove the gauges of processes that are gone; what they counted stays."""
    folder = os.environ["PROMETHEUS_MULTIPROC_DIR"]
    for path in glob.glob(f"{folder}/gauge_live*_*.db"):
        process_id = int(re.search(r"_([0-9]+)\.db$", path)[1])
        if not os.path.exists(f"/proc/{process_id}") and os.path.exists("/proc/self"):
            multiprocess.mark_process_dead(process_id)
            for kind in ("histogram", "counter"):
                truncate_file(f"{folder}/{kind}_{process_id}.db")


def truncate_file(path: str) -> None:
    """Truncate a file to the bytes in use, whose number it begins with; errors are ignored."""
    with contextlib.suppress(OSError), open(path, "r+b") as file:
        file.truncate(max(8, int.from_bytes(file.read(4), sys.byteorder)))
