"""granian as a server, in place of gunicorn: its processes, its listener and its signals.

    python -m serving.granian_server --bind=127.0.0.1:8000 wsgi:application

`identity-server serve --server granian` runs this. SIGTERM stops the server, SIGHUP replaces its
workers by new ones; neither loses a request. serving/granian_requests.py is what each worker does
around a request. docs/servers.md lists the differences from gunicorn.
"""

import argparse
import contextlib
import logging
import multiprocessing
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module

FIX = "pip install 'identity-server[fast]', with the version that constraints.txt names"
try:
    import granian
    from granian.constants import HTTPModes, Interfaces
    from granian.http import HTTP1Settings
    from granian.server import mp

    worker_signals = import_module("granian._signals")
except ImportError as error:
    sys.exit(f"Error: granian cannot be used ({error}): {FIX}")

OLDEST = (2, 7, 4)  # before it a request could abort a worker
INTERNALS = (  # undocumented parts of granian that are overridden, replaced or called here
    (mp, "SocketHolder"),
    (mp, "WorkerSignal.set"),
    (mp, "WorkerSignal.add_cb"),
    (mp, "WorkerProcess.terminate"),
    (mp, "MPServer._init_shared_socket"),
    (mp, "MPServer._drop_shared_socket"),
    (mp, "MPServer.on_startup"),
    (mp, "MPServer.on_reload"),
    (worker_signals, "set_sync_signals"),
)


def check_granian() -> None:
    """Exit with one line if this granian is too old or lacks one of INTERNALS."""
    version = granian.__version__
    if tuple(map(int, re.findall("[0-9]+", version)[:3])) < OLDEST:
        sys.exit(f"Error: granian {version} is too old: {FIX}")
    for module, path in INTERNALS:
        found = module
        for name in path.split("."):
            found = getattr(found, name, None)
        if found is None:
            sys.exit(f"Error: granian {version} has no {module.__name__}.{path}: {FIX}")


check_granian()

KEEP_ALIVE = 5  # seconds that an idle connection stays open by default, as under gunicorn
STOP_TIMEOUT = 30  # seconds for open requests, as gunicorn's graceful_timeout
FIRST_REQUEST = 0.5  # seconds for the first request on a connection just accepted
CONNECTIONS = 1000  # open ones of a worker, as under gunicorn; more wait in the queue
QUEUE = 1024  # connections that wait for a worker
# Bytes of the request line and all headers, as nginx's large_client_header_buffers 4 8k.
MOST_OF_A_HEAD = 32 * 2**10
STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT}
RELOAD_TIME = 8  # seconds over which the starts of new workers are spread, at most


# -- the master process -------------------------------------------------------------------------


class Server(mp.MPServer):
    """granian with one listener for all workers, and a reload that closes no busy connection.

    On Linux granian gives each worker a listener of its own: a worker that ends resets what waits
    in its queue (unless the sysctl net.ipv4.tcp_migrate_req is 1).
    """

    def __init__(self, listener: socket.socket, options: argparse.Namespace) -> None:
        self._sso = listener
        super().__init__(
            target=options.target,
            address=listener.getsockname()[0],
            port=listener.getsockname()[1],
            interface=Interfaces.WSGI,
            workers=options.workers,
            blocking_threads=options.threads,
            backpressure=CONNECTIONS,
            http=HTTPModes.http1,
            websockets=False,
            # It also ends idle connections: the time for the next head starts at once.
            http1_settings=HTTP1Settings(
                header_read_timeout=round(options.keep_alive * 1000), max_buffer_size=MOST_OF_A_HEAD
            ),
            log_dictconfig=LOGGING,
            respawn_failed_workers=True,
            respawn_interval=min(1, RELOAD_TIME / options.workers),
        )
        self.main_loop_interrupt = WakeUps()
        self.on_startup(notify_systemd)
        self.on_reload(self.announce_close)

    def _init_shared_socket(self) -> None:
        self._ssp = None
        self._sfd = self._sso.fileno()
        self._shd = mp.SocketHolder(self._sfd, False, QUEUE)

    def announce_close(self) -> None:
        """Make all workers close each connection with its next response."""
        for worker in multiprocessing.active_children():
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(worker.pid, signal.SIGUSR1)


class WakeUps:
    """In place of granian's threading.Event, on which the main thread may sleep through a signal.

    A signal that the kernel gives to another thread runs its Python handler only once the main
    thread wakes up. So the signal writes to a pipe (signal.set_wakeup_fd), which the main thread
    reads. A wake-up too many has no effect on granian.
    """

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)

    def set(self) -> None:
        """Wake up the main thread, now or at its next `wait`."""
        with contextlib.suppress(BlockingIOError):  # full: it will wake up
            os.write(self._writing, b"\0")

    def clear(self) -> None:
        """Do nothing: what was set since the last `wait` is not lost."""

    def wait(self) -> int:
        """Wait for a wake-up; return its signal, 0 if it is from `set`."""
        return os.read(self._reading, 1)[0]


def notify_systemd() -> None:
    """Tell systemd that the server listens (sd_notify(3)), for Type=notify as gunicorn has it."""
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifications:
            notifications.connect(re.sub("^@", "\0", address))
            notifications.sendall(b"READY=1")


def exit_on_signal_during_boot() -> None:
    """Make a worker exit at once on a signal that arrives before it has handlers of its own."""
    signal.set_wakeup_fd(-1)  # the master's
    for each in STOP_SIGNALS:
        signal.signal(each, lambda *_: os._exit(0))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def is_about_this_server(record: logging.LogRecord) -> bool:
    """Return False for granian's advice to have fewer threads: they wait for disks and hashes."""
    return "Python threads" not in record.getMessage()


LOGGING = {  # for logging.config.dictConfig; standard output has the access log alone
    "formatters": {
        "line": {
            "format": "[%(asctime)s] [%(process)d] [%(levelname)s] %(message)s",
            "datefmt": "%Y-%m-%d %H:%M:%S %z",
        }
    },
    "filters": {"useful": {"()": lambda: is_about_this_server}},
    "handlers": {
        "errors": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["useful"]}
    },
    "loggers": {"_granian": {"handlers": ["errors"], "propagate": False}},
}


# -- a worker process ---------------------------------------------------------------------------


def load_application(listener: socket.socket, keep_alive: float, target: str) -> Callable:
    """Load the application MODULE:NAME in a worker, and prepare the worker for its end.

    Its code is not loaded in the master, so that a reload loads new code.
    """
    from serving.access_log import LineWriter
    from serving.granian_requests import Requests

    module, _, name = target.partition(":")
    requests = Requests(getattr(import_module(module), name), LineWriter().write)
    # granian adds the environment to each WSGI environ, where a variable would look like a header.
    for variable in [each for each in os.environ if each.startswith(("HTTP_", "CONTENT_"))]:
        del os.environ[variable]
    worker_signals.set_sync_signals = partial(handle_signals, requests, listener, keep_alive)
    return requests


def handle_signals(requests, listener: socket.socket, keep_alive: float) -> mp.WorkerSignal:
    """Set a worker's signal handlers; return the signal that makes granian stop it."""
    stop, signals = mp.WorkerSignal(), WakeUps()
    for each in (signal.SIGUSR1, *STOP_SIGNALS):
        signal.signal(each, lambda *_: None)  # `signals` tells them to the thread
    start_thread(stop_worker, signals, stop, requests, listener, keep_alive)
    start_thread(stop_without_master, os.getppid())
    return stop


def stop_worker(
    signals: WakeUps, stop: mp.WorkerSignal, requests, listener: socket.socket, keep_alive: float
) -> None:
    """Wait for SIGTERM, and stop without a lost request; after a SIGINT stop at once.

    granian closes idle connections when it stops, even if a request is on its way. Each response
    closes its connection since the signal; so wait until the others have been idle for too long.
    A terminal sends SIGINT to all processes: the master then sends SIGTERM.
    """
    is_hasty = False
    while (received := signals.wait()) != signal.SIGTERM:
        if received in (signal.SIGUSR1, signal.SIGINT):
            requests.announce_close()
            is_hasty |= received == signal.SIGINT
    requests.announce_close()
    if not is_hasty:
        while (left := requests.last_kept + keep_alive - time.monotonic()) > 0:
            time.sleep(left)
        stop_accepting(listener)
        time.sleep(FIRST_REQUEST)
    stop.set()
    time.sleep(STOP_TIMEOUT)
    os._exit(1)  # open requests take too long


def stop_accepting(listener: socket.socket) -> None:
    """Leave new connections to the other workers, which have the same listener.

    granian would go on to accept some, and not handle their requests. A listener without
    connections replaces this one in this process.
    """
    unused = socket.create_server(("127.0.0.1", 0))
    unused.setblocking(False)
    os.dup2(unused.fileno(), listener.fileno(), inheritable=False)


def stop_without_master(master: int) -> None:
    """Stop this worker when its master is gone, killed for example."""
    while os.getppid() == master:
        time.sleep(1)
    for each in (signal.SIGINT, signal.SIGTERM):
        os.kill(os.getpid(), each)


def start_thread(function: Callable, *arguments) -> None:
    """Call a function in a thread that does not keep the process from ending."""
    threading.Thread(target=function, args=arguments, daemon=True).start()


# -- the command --------------------------------------------------------------------------------


def listen(address: str) -> socket.socket:
    """Return a listener at HOST:PORT. Exits with one line if that is not possible."""
    host, _, port = address.rpartition(":")
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), int(port)), family=family, backlog=QUEUE)
    except OSError as error:
        why = error.strerror.partition(" (")[0]
        sys.exit(f"Error: cannot listen at {address} ({why})")


def main() -> None:
    """Run the server until it is stopped."""
    parser = argparse.ArgumentParser(prog="serving.granian_server")
    parser.add_argument("--bind", metavar="HOST:PORT", default="127.0.0.1:8000")
    parser.add_argument("--workers", metavar="N", type=int, default=1)
    parser.add_argument("--threads", metavar="N", type=int, default=12)
    parser.add_argument("--keep-alive", metavar="SECONDS", type=float, default=KEEP_ALIVE)
    parser.add_argument("target", metavar="MODULE:APPLICATION")
    options = parser.parse_args()
    multiprocessing.set_start_method("fork")  # not the default everywhere: workers inherit
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # also in workers until they have booted
    os.register_at_fork(
        before=partial(signal.pthread_sigmask, signal.SIG_BLOCK, STOP_SIGNALS),
        after_in_parent=partial(signal.pthread_sigmask, signal.SIG_UNBLOCK, STOP_SIGNALS),
        after_in_child=exit_on_signal_during_boot,
    )
    listener = listen(options.bind)
    load = partial(load_application, listener, options.keep_alive)
    Server(listener, options).serve(target_loader=load)


if __name__ == "__main__":
    main()
