"""gunicorn's configuration. `identity-server serve` adds the address, workers and threads.

GUNICORN_CMD_ARGS in the environment overrides these settings. Where gunicorn has no setting, its
logger and its worker are extended, and each worker replaces some of its classes. Importing this
module replaces nothing.
"""

import collections
import os
import re
import select
import signal
import socket
import time
from datetime import timedelta

import gunicorn
from gunicorn import glogging, util
from gunicorn.config import Config
from gunicorn.http import body, errors, message, parser, wsgi
from gunicorn.workers import gthread

from serving.access_log import LineWriter, access_line
from serving.internals import require_internals

INTERNALS = (  # undocumented parts of gunicorn that are overridden, replaced or called here
    (glogging, "Logger.access"),
    (glogging, "Logger.access_log_enabled"),
    (glogging, "Logger.warning"),
    (glogging, "Logger.exception"),
    (body, "ChunkedReader.read"),
    (errors, "ParseException"),
    (message, "ChunkedReader"),
    (message, "Request.should_close"),
    (parser, "RequestParser.finish_body"),
    (parser, "RequestParser.mesg_class"),
    (wsgi, "Response.default_headers"),
    (wsgi, "Response.write"),
    (gthread, "ThreadWorker.enqueue_req"),
    (gthread, "ThreadWorker.handle"),
    (util, "close_graceful"),
)


def check_gunicorn() -> None:
    """Exit with one line if this gunicorn lacks one of INTERNALS."""
    require_internals(gunicorn, INTERNALS, "install the version that constraints.txt names")


check_gunicorn()

timeout = 30  # seconds
graceful_timeout = 30  # seconds
keepalive = 5  # seconds
backlog = 512
limit_request_line = 8190
# For the file that each worker touches as its heartbeat. In memory if possible: with /tmp on a full
# disk gunicorn does not start, and ends at a reload.
worker_tmp_dir = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
control_socket_disable = True  # open by default since gunicorn 25.1
forwarded_allow_ips = ""  # none: IDENTITY_PROXIES alone says which proxies are trusted
accesslog = "-"


class RedactedLog(glogging.Logger):
    """gunicorn's logs without credentials, and without characters that could forge a line."""

    def __init__(self, cfg: Config) -> None:
        super().__init__(cfg)
        self._standard_output = LineWriter()

    def access(self, resp, req, environ: dict, request_time: timedelta) -> None:
        """Write the access line. `--access-logfile` in GUNICORN_CMD_ARGS may name another file."""
        if not self.access_log_enabled:
            return
        line = access_line(environ, str(resp.status), resp.sent, request_time.total_seconds())
        if self.cfg.accesslog == "-":
            self._standard_output.write(line)
        else:
            self.access_log.info("%s", line.decode().rstrip())

    def warning(self, msg, *args, **kwargs) -> None:
        """Log a warning; a malformed request is not quoted: it may hold a code or a token."""
        if str(msg).startswith("Invalid request from"):
            msg = re.split("b?['\"]", msg, maxsplit=1)[0]
        super().warning(msg, *args, **kwargs)

    def exception(self, msg, *args, **kwargs) -> None:
        """Log an exception; the address of the request is cut before its query string."""
        paths = [str(each).partition("?")[0] for each in args]
        super().exception(msg, *paths, **kwargs)


logger_class = RedactedLog


class ChunkedBody(body.ChunkedReader):
    """A chunked body whose malformed chunks raise OSError, like a lost connection.

    Werkzeug responds with 400. gunicorn's own error is a 500 that quotes the chunk in the log, with
    any code or secret in it.
    """

    def read(self, size: int) -> bytes:
        try:
            return super().read(size)
        except errors.ParseException:
            raise OSError("the body is malformed") from None


class Request(message.Request):
    """A request that sends "Connection: close" if its body was not read to the end.

    After an unread body of 64 KiB or more gunicorn closes the connection without that header, and
    nginx may already have sent the next request, which then fails (RFC 9112 9.6).
    """

    def should_close(self) -> bool:
        reader = self.body.reader
        has_more = reader.parser if isinstance(reader, ChunkedBody) else reader.length
        return super().should_close() or bool(has_more) or self.body.failed


class Response(wsgi.Response):
    """A response that is sent by one system call if its body is one part, as most are."""

    def write(self, arg: bytes) -> None:
        if self.headers_sent or self.response_length != len(arg) or self._omits_body:
            return super().write(arg)
        lines = (*self.default_headers(), *(f"{name}: {value}\r\n" for name, value in self.headers))
        self.sock.sendall("".join(lines).encode("latin-1") + b"\r\n" + arg)
        self.headers_sent, self.sent = True, len(arg)


class Worker(gthread.ThreadWorker):
    """A worker that keeps a connection for a moment in the thread that handled the request.

    gunicorn gives it back to the main thread, which waits for the next request and gives it to a
    thread again: a tenth to a third of the time of a short request. gunicorn also closes all
    connections in the main thread, which accepts them, and waits there for up to two seconds until
    the client closes its side.
    """

    next_request = 2  # milliseconds that a thread waits for the next request of a connection
    longest_turn = 0.005  # seconds for the requests of one connection, if others wait

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        message.ChunkedReader = ChunkedBody
        parser.RequestParser.mesg_class = Request
        # It reads the rest of a body: with Request.should_close, an open connection has none.
        parser.RequestParser.finish_body = lambda *_, **__: True
        wsgi.Response = Response
        self.waiting = collections.deque()  # an element for each connection that waits for a thread

    def enqueue_req(self, conn) -> None:
        self.waiting.append(conn)
        super().enqueue_req(conn)

    def handle(self, conn) -> bool:
        self.waiting.popleft()
        turn_ends = time.monotonic() + self.longest_turn
        # True: kept alive. Anything else is False, or that no request has arrived yet.
        while (stays_open := super().handle(conn)) is True:
            if self.waiting and time.monotonic() > turn_ends:
                break
            if not is_readable(conn.sock, self.next_request):
                break
        if not stays_open:
            # Read the rest of the body first, up to what nginx admits: closing with unread data
            # resets the connection and loses the response (RFC 9112 9.6).
            util.close_graceful(conn.sock, max_drain=9 * 2**20)
            conn.close = lambda **_: None  # the main thread calls it
        return stays_open


def is_readable(connection: socket.socket, timeout: int) -> bool:
    """Return True if a request, or its end, arrives in a connection in so many milliseconds."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(timeout))


worker_class = Worker


def post_worker_init(worker) -> None:
    """Start the threads of a worker that send messages; other applications have none."""
    if senders := getattr(worker.wsgi, "senders", None):
        senders.start()


def worker_exit(server, worker) -> None:
    """Let a worker that ends finish the messages that it is sending."""
    # One that failed to boot has no application, nor has it in the master, which calls this too.
    if senders := getattr(getattr(worker, "wsgi", None), "senders", None):
        senders.stop()


def on_starting(server) -> None:
    """Prepare the master process, before it forks."""
    os.register_at_fork(after_in_child=exit_on_signal_during_boot)


def exit_on_signal_during_boot() -> None:
    """Make a worker exit at once on a signal that arrives before it has booted.

    Until a worker sets its own signal handlers it has those of the master, which only queue the
    signal: the worker would boot, and be killed after `graceful_timeout`.
    """
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        signal.signal(each, lambda *_: os._exit(0))
