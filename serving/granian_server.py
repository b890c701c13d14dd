"""granian as a server, in place of gunicorn: its processes, its listener and its signals.

    python -m serving.granian_server --bind=127.0.0.1:8000 wsgi:application

`identity-server serve --server granian` runs this. SIGTERM stops the server, SIGHUP replaces its
workers by new ones; neither loses a request. serving/granian_requests.py is what each worker does
around a request. docs/servers.md lists the differences from gunicorn.
"""

import argparse
import contextlib
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

from serving.internals import require_internals

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
    (mp, "WorkerProcess.terminate"),
    (mp, "MPServer._init_shared_socket"),
    (mp, "MPServer._drop_shared_socket"),
    (mp, "MPServer.signal_handler_interrupt"),
    (mp, "MPServer.signal_handler_reload"),
    (mp, "MPServer.on_startup"),
    (mp, "MPServer.on_reload"),
    (worker_signals, "set_sync_signals"),
)


def require_granian() -> None:
    """Exit with one line if this granian is too old or lacks one of INTERNALS."""
    version = granian.__version__
    if tuple(map(int, re.findall("[0-9]+", version)[:3])) < OLDEST:
        sys.exit(f"Error: granian {version} is too old: {FIX}")
    require_internals(granian, INTERNALS, FIX)


require_granian()

KEEP_ALIVE = 5  # seconds that an idle connection stays open by default, as under gunicorn
STOP_TIMEOUT = 30  # seconds for open requests, as gunicorn's graceful_timeout
FIRST_REQUEST = 0.5  # seconds for the first request on a connection just accepted
CONNECTIONS = 1000  # open ones of a worker, as under gunicorn; more wait in the queue
QUEUE = 1024  # connections that wait for a worker
# Bytes of the request line and all headers, as nginx's large_client_header_buffers 4 8k.
MOST_OF_A_HEAD = 32 * 2**10
RELOAD_TIME = 8  # seconds over which the starts of new workers are spread, at most
# These are blocked in all threads, and a thread of each process waits for its own: the kernel may
# give a signal to any thread, and Python handles it only once the main thread wakes up.
MASTER_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
WORKER_SIGNALS = {signal.SIGTERM, signal.SIGUSR1}
LOGGING = {  # for logging.config.dictConfig; standard output has the access log alone
    "formatters": {
        "line": {
            "format": "[%(asctime)s] [%(process)d] [%(levelname)s] %(message)s",
            "datefmt": "%Y-%m-%d %H:%M:%S %z",
        }
    },
    # Without granian's advice to have fewer threads: they wait for disks and hashes.
    "filters": {"useful": {"()": lambda: lambda line: "Python threads" not in line.getMessage()}},
    "handlers": {
        "errors": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["useful"]}
    },
    "loggers": {"_granian": {"handlers": ["errors"], "propagate": False}},
}


def start_thread(function: Callable, *arguments) -> None:
    """Call a function in a thread that does not keep the process from ending."""
    threading.Thread(target=function, args=arguments, daemon=True).start()


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
        # granian may clear the event of a signal before it has looked at it: look every second.
        self.main_loop_interrupt.wait = partial(self.main_loop_interrupt.wait, timeout=1)
        self.on_startup(notify_systemd)
        self.on_reload(self.announce_close)

    def _init_shared_socket(self) -> None:
        """Hand the one listener to all workers, where granian would open its own."""
        self._ssp = None
        self._sfd = self._sso.fileno()
        self._shd = mp.SocketHolder(self._sfd, False, QUEUE)

    def announce_close(self) -> None:
        """Make all workers close each connection with its next response."""
        for worker in multiprocessing.active_children():
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(worker.pid, signal.SIGUSR1)


def notify_systemd() -> None:
    """Tell systemd that the server listens (sd_notify(3)), for Type=notify as gunicorn has it."""
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifications:
            notifications.connect(re.sub("^@", "\0", address))
            notifications.sendall(b"READY=1")


def handle_signals(server: Server) -> None:
    """Reload the server at SIGHUP, stop it at SIGTERM and SIGINT. Runs in a thread of its own."""
    while True:
        if signal.sigwait(MASTER_SIGNALS) == signal.SIGHUP:
            server.signal_handler_reload()
        else:
            server.signal_handler_interrupt()


# -- a worker process ---------------------------------------------------------------------------


def load_application(listener: socket.socket, keep_alive: float, target: str) -> Callable:
    """Return the application MODULE:NAME inside Requests; prepare this worker for its end.

    Its code is not loaded in the master, so that a reload loads new code.
    """
    from serving.access_log import LineWriter
    from serving.granian_requests import Requests

    requests, stop = Requests(LineWriter().write), mp.WorkerSignal()
    worker_signals.set_sync_signals = lambda: stop  # in place of signal handlers
    start_thread(stop_worker, stop, requests, listener, keep_alive)
    start_thread(stop_without_master, os.getppid())
    module, _, name = target.partition(":")
    requests.application = getattr(import_module(module), name)
    if senders := getattr(requests.application, "senders", None):
        senders.start()
    # granian adds the environment to each WSGI environ, where a variable would look like a header.
    for variable in [each for each in os.environ if each.startswith(("HTTP_", "CONTENT_"))]:
        del os.environ[variable]
    return requests


def stop_worker(
    stop: mp.WorkerSignal, requests, listener: socket.socket, keep_alive: float
) -> None:
    """Wait for SIGTERM, and stop this worker without a lost request. Runs in a thread of its own.

    granian closes idle connections when it stops, even if a request is on its way. Each response
    after the signal closes its connection; so wait `keep_alive` seconds, which end all idle ones.
    """
    while signal.sigwait(WORKER_SIGNALS) != signal.SIGTERM:
        requests.announce_close()
    if requests.application is None:
        os._exit(0)  # it has not booted
    requests.announce_close()
    while (left := requests.last_kept + keep_alive - time.monotonic()) > 0:
        time.sleep(left)
    stop_accepting(listener)
    time.sleep(FIRST_REQUEST)
    if senders := getattr(requests.application, "senders", None):
        senders.stop()
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
    """Stop this worker when the process with the id `master` is gone, killed for example."""
    while os.getppid() == master:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)


# -- the command --------------------------------------------------------------------------------


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
    signal.pthread_sigmask(signal.SIG_BLOCK, MASTER_SIGNALS | WORKER_SIGNALS)
    host, _, port = options.bind.rpartition(":")
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    listener = socket.create_server((host.strip("[]"), int(port)), family=family, backlog=QUEUE)
    server = Server(listener, options)
    start_thread(handle_signals, server)
    server.serve(target_loader=partial(load_application, listener, options.keep_alive))


if __name__ == "__main__":
    main()
