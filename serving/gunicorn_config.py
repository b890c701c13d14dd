"""gunicorn's configuration. `identity-server serve` adds the address, workers and threads.

GUNICORN_CMD_ARGS in the environment overrides these settings. Where gunicorn has no setting, its
logger and its worker are extended, and each worker replaces some of its classes. Importing this
module replaces nothing.
"""

import collections
import functools
import os
import re
import select
import selectors
import signal
import socket
import struct
import time
from datetime import timedelta

import gunicorn
from gunicorn import glogging
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
    (message, "Request.parse"),
    (message, "Request.should_close"),
    (parser, "RequestParser.finish_body"),
    (parser, "RequestParser.mesg_class"),
    (wsgi, "Response.default_headers"),
    (wsgi, "Response.write"),
    (gthread, "ThreadWorker.enqueue_req"),
    (gthread, "ThreadWorker.handle"),
    (gthread, "ThreadWorker.on_pending_socket_readable"),
    (gthread, "TConn.init"),
)


def require_gunicorn() -> None:
    """Exit with one line if this gunicorn lacks one of INTERNALS."""
    require_internals(gunicorn, INTERNALS, "install the version that constraints.txt names")


require_gunicorn()

timeout = 30  # seconds
graceful_timeout = 30  # seconds
keepalive = 5  # seconds
backlog = 512
worker_connections = 900  # with its files, a process keeps below the usual limit of 1,024
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

    most_of_a_head = 32 * 2**10  # bytes, as nginx's large_client_header_buffers 4 8k

    def parse(self, unreader) -> bytes:
        if len(unreader.buf.getvalue().partition(b"\r\n\r\n")[0]) > self.most_of_a_head:
            raise errors.LimitRequestHeaders("the head is too large")
        return super().parse(unreader)

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


class Connection(gthread.TConn):
    """A connection whose requests the main thread reads, so that no thread waits for a client."""

    small_body = re.compile(rb"\r\ncontent-length:[ \t]*0*([0-9]{1,5})[ \t]*(?:\r|$)")
    is_ended = False  # after the last response: the client closes

    def has_request(self) -> bool:
        """Read what has arrived; return True if a thread can go on without waiting for the client.

        After the last response that is True once the client has closed its side.
        """
        if self.cfg.is_ssl or self.cfg.protocol != "http":
            return True
        self.init()
        if not self.is_ended and self.is_whole():
            return True
        try:
            data = self.sock.recv(2**16, socket.MSG_DONTWAIT)
        except OSError as error:
            return not isinstance(error, BlockingIOError)
        if self.is_ended:
            return not data
        self.parser.unreader.buf.write(data)
        return not data or self.is_whole()

    def is_whole(self) -> bool:
        """Return True unless the rest of a head or of a small body is missing."""
        head, end, body = self.parser.unreader.buf.getvalue().lower().partition(b"\r\n\r\n")
        if not end:
            return len(head) > Request.most_of_a_head or head.count(b"\n") > head.count(b"\r\n")
        length = self.small_body.search(head)
        # RFC 9110 10.1.1: a client that sends Expect waits for a response to its head.
        return length is None or len(body) >= int(length[1]) or b"\r\nexpect:" in head


class Worker(gthread.ThreadWorker):
    """A worker that keeps a connection for a moment in the thread that handled the request.

    gunicorn gives it back to the main thread, which waits for the next request and gives it to a
    thread again: a tenth to a third of the time of a short request. In gunicorn a thread waits for
    each client: twelve that send nothing, or half a request, stop a worker. And the main thread
    waits for up to two seconds until a client closes its side of a connection that ends.
    """

    request_time = 5  # seconds for a request to arrive, except for a large body
    next_request = 2  # milliseconds that a thread waits for the next request of a connection
    longest_turn = 0.001  # seconds for the requests of one connection, if others wait

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        message.ChunkedReader = ChunkedBody
        parser.RequestParser.mesg_class = Request
        # It reads the rest of a body: with Request.should_close, an open connection has none.
        parser.RequestParser.finish_body = lambda *_, **__: True
        wsgi.Response = Response
        gthread.TConn = Connection
        self.waiting = collections.deque()  # an element for each connection that waits for a thread
        for listener in self.sockets:  # and its connections: 10 seconds without a byte of a body
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 10, 0))

    def enqueue_req(self, conn: Connection) -> None:
        """Give a connection with a request to a thread, else watch it. For the main thread."""
        if conn.has_request():
            self.waiting.append(conn)
            return super().enqueue_req(conn)
        conn.timeout = time.monotonic() + self.request_time
        self.pending_conns.append(conn)
        go_on = functools.partial(self.on_pending_socket_readable, conn)
        self.poller.register(conn.sock, selectors.EVENT_READ, go_on)

    def on_pending_socket_readable(self, conn: Connection, client: socket.socket) -> None:
        if conn.has_request():  # otherwise it still ends at its time
            super().on_pending_socket_readable(conn, client)

    def handle(self, conn: Connection) -> bool:
        """Respond to requests in a thread; return False if the main thread is to close `conn`."""
        self.waiting.popleft()
        if conn.is_ended:
            return False
        turn_ends = time.monotonic() + self.longest_turn
        # True: kept alive. Anything else is False, or that no request has arrived yet.
        while (stays_open := super().handle(conn)) is True:
            if self.waiting and time.monotonic() > turn_ends:
                break
            if not (is_readable(conn.sock, self.next_request) and conn.has_request()):
                break
        if stays_open:
            return stays_open
        # To close while the client sends would lose the response (RFC 9112 9.6): it closes first.
        conn.is_ended = True
        conn.sock.shutdown(socket.SHUT_WR)
        return not (is_readable(conn.sock, self.next_request) and conn.has_request())


def is_readable(connection: socket.socket, timeout: int) -> bool:
    """Return True if bytes or the end of a connection arrive within `timeout` milliseconds."""
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
    """Make each worker that the master forks call `exit_on_signal_during_boot`."""
    os.register_at_fork(after_in_child=exit_on_signal_during_boot)


def exit_on_signal_during_boot() -> None:
    """Make a worker exit at once on a signal that arrives before it has booted.

    Until a worker sets its own signal handlers it has those of the master, which only queue the
    signal: the worker would boot, and be killed after `graceful_timeout`.
    """
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        signal.signal(each, lambda *_: os._exit(0))
