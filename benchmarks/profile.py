"""Profile the API calls without gunicorn and sockets: `python -m benchmarks.profile`.

First the processor time per call; then the functions in which it is spent, by a profiler that
overstates functions written in Python. One thread, with all files in the page cache.
"""

import cProfile
import functools
import hashlib
import os
import pstats
import statistics
import tempfile
import time
from collections.abc import Callable
from unittest import mock

from itsdangerous import URLSafeTimedSerializer
from werkzeug.test import EnvironBuilder

from benchmarks import baselines
from benchmarks.population import populate, show_progress
from benchmarks.workload import CALLS, FAMILY_CALLS, TICKETS, Call, Installation
from storage import Storage

BATCHES = 9
BATCH = 1000  # calls
SHOWN = 14  # functions per call


def main() -> None:
    """Run the command."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        installation = Installation(folder, 100, populate, show_progress)
        print(f"{'microseconds per call':24}{'median':>8}{'minimum':>8}")
        print_time("bare WSGI", baselines.bare, lambda count: [Call("/")] * count)
        print_time("plain Flask", baselines.plain, lambda count: [Call("/")] * count)
        for name, make_calls in (CALLS | TICKETS).items():
            print_time(name, installation.app, functools.partial(make_calls, installation))
        for name, make_calls in FAMILY_CALLS.items():
            made = functools.partial(make_calls, installation)
            print_time(name, installation.app, made, BATCH // 10)
        # Why identity.http.signing has a serializer of its own.
        with mock.patch("identity.oauth.grants.serializer", plain_serializer):
            for name in ("whois", "token"):
                make_calls = functools.partial(CALLS[name], installation)
                print_time(f"{name}, plain serializer", installation.app, make_calls)
        for name, make_calls in (CALLS | TICKETS).items():
            print_functions(name, installation.app, make_calls(installation, BATCH))


def plain_serializer(purpose: str, store: Storage) -> URLSafeTimedSerializer:
    """Return the serializer of itsdangerous for a purpose, with HMAC-SHA256 as ours."""
    return make_plain_serializer(store.keys.current(), purpose)


@functools.cache
def make_plain_serializer(keys: tuple[bytes, ...], purpose: str) -> URLSafeTimedSerializer:
    """Return a new serializer for these keys."""
    options = {"digest_method": hashlib.sha256}
    return URLSafeTimedSerializer(list(keys), salt=purpose, signer_kwargs=options)


def as_environ(call: Call) -> dict:
    """Return the WSGI environment of a call."""
    builder = EnvironBuilder(
        call.path,
        method="POST" if call.form else "GET",
        headers={"Authorization": call.authorization} if call.authorization else {},
        data=call.form or None,
        content_type="application/x-www-form-urlencoded" if call.form else None,
        base_url="http://127.0.0.1/",
    )
    return builder.get_environ()


def run(application: Callable, environs: list[dict]) -> None:
    """Make the calls. Raises RuntimeError if a response is not a 200."""
    for environ in environs:
        response = application(environ, start_response)
        b"".join(response)
        if hasattr(response, "close"):
            response.close()


def start_response(status: str, headers: list, exc_info: tuple | None = None) -> None:
    """Accept a status of 200 (PEP 3333). Raises RuntimeError for another."""
    if status != "200 OK":
        raise RuntimeError(status)


def print_time(
    name: str, application: Callable, make_calls: Callable[[int], list[Call]], batch: int = BATCH
) -> None:
    """Print the processor time of one call."""
    times = []  # microseconds per call
    for _ in range(BATCHES):
        environs = [as_environ(call) for call in make_calls(batch)]
        started = time.thread_time()
        run(application, environs)
        times.append((time.thread_time() - started) / batch * 1_000_000)
    print(f"{name:24}{statistics.median(times):8.1f}{min(times):8.1f}")


def print_functions(name: str, application: Callable, calls: list[Call]) -> None:
    """Print the functions with the most time of their own, and their time with callees."""
    environs = [as_environ(call) for call in calls]
    profiler = cProfile.Profile()
    profiler.runcall(run, application, environs)
    print(f"\n{name}, profiled: microseconds per call\n{'own':>8}{'with callees':>14}")
    functions = pstats.Stats(profiler).stats.items()
    for function, (_, _, own, with_callees, _) in sorted(functions, key=own_time)[:SHOWN]:
        per_call = 1_000_000 / len(calls)
        print(f"{own * per_call:8.1f}{with_callees * per_call:14.1f}  {place(*function)}")


def own_time(entry: tuple) -> float:
    """Return a sort key that puts the most time of its own first."""
    return -entry[1][2]


def place(file: str, line: int, name: str) -> str:
    """Return where a function is: `routing/map.py:90 match`, or the name of a built-in one."""
    return name if file == "~" else f"{'/'.join(file.split(os.sep)[-2:])}:{line} {name}"


if __name__ == "__main__":
    main()
