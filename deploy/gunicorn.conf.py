"""How gunicorn runs the server. `identity-server serve` adds the address, workers and threads.

GUNICORN_CMD_ARGS in the environment overrides what stands here.
"""

import json
import os
import re
import signal
from urllib.parse import quote

from gunicorn import util
from gunicorn.glogging import Logger
from gunicorn.http import body, errors, message, parser
from gunicorn.workers.gthread import ThreadWorker

timeout = 30  # seconds, like the next two
graceful_timeout = 30
keepalive = 5
backlog = 512
limit_request_line = 8190
# Each worker has an empty file whose time says that it lives. In memory, where it can be: /tmp may
# be on a disk that is full, and gunicorn would not start, or would end at a reload.
worker_tmp_dir = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
control_socket_disable = True  # since 25.1 gunicorn opens one unless told not to
forwarded_allow_ips = ""  # nobody: IDENTITY_PROXIES alone says which proxies are believed
accesslog = "-"
access_log_format = '%(h)s - - %(t)s "%(m)s %(U)s %(H)s" %(s)s %(B)s %(L)s'


class AccessLog(Logger):
    """Gunicorn's logs, without what could open a door or forge a line.

    An access line has the address, time, method, path, protocol, status, bytes and seconds of one
    request: no query string, no referer, no header.
    """

    def atoms(self, resp, req, environ, request_time) -> dict:
        """The parts of an access line, and no others."""
        return {
            "h": quote(environ.get("REMOTE_ADDR") or "-", safe=":"),
            "t": self.now(),
            "m": environ.get("REQUEST_METHOD") or "-",
            "U": path_to_log(environ.get("PATH_INFO") or "-"),
            "H": environ.get("SERVER_PROTOCOL") or "-",
            "s": str(resp.status).partition(" ")[0],
            "B": getattr(resp, "sent", "-"),
            "L": f"{request_time.total_seconds():.6f}",
        }

    def warning(self, msg, *args, **kwargs) -> None:
        """As gunicorn's, but a malformed request is not quoted: it may hold a code or a token."""
        if str(msg).startswith("Invalid request from"):
            msg = re.split("b?['\"]", msg, maxsplit=1)[0]
        super().warning(msg, *args, **kwargs)

    def exception(self, msg, *args, **kwargs) -> None:
        """As gunicorn's, but a request is named without its query."""
        paths = [str(each).partition("?")[0] for each in args]
        super().exception(msg, *paths, **kwargs)


def path_to_log(path: str) -> str:
    """A path, which gunicorn has decoded to latin-1 (PEP 3333), encoded again: a line stays one.

    What is as long as a code or a key is left out, in case that one ever stands in a path.
    """
    encoded = quote(path, safe="/:@!$&'()*+,;=~", encoding="latin-1")
    return re.sub("[A-Za-z0-9_-]{40,}", "...", encoded)


logger_class = AccessLog


def write_error(sock, status_int: int, reason: str, mesg: str) -> None:
    """What gunicorn itself refuses, as JSON: of some requests nobody can tell where they went."""
    body = json.dumps({"message": mesg or reason})
    head = (
        f"HTTP/1.1 {status_int} {reason}",
        "Connection: close",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "X-Content-Type-Options: nosniff",
    )
    util.write_nonblock(sock, "\r\n".join((*head, "", body)).encode())


util.write_error = write_error  # gunicorn has no setting for this


class ChunkedBody(body.ChunkedReader):
    """As gunicorn's, but what is malformed is as a lost connection to the view, and not quoted.

    Werkzeug answers that with 400. Else it is a 500 with all that stood in a chunk's place, which
    may be a code or a secret, in the log.
    """

    def read(self, size: int) -> bytes:
        """The next bytes of the body. Raises OSError."""
        try:
            return super().read(size)
        except errors.ParseException:
            raise OSError("the body is malformed") from None


message.ChunkedReader = ChunkedBody


class Request(message.Request):
    """As gunicorn's, but one whose body was not read ends the connection, and the answer says so.

    gunicorn ends it without a word where 64 KiB or more were not read, and nginx may have sent the
    next request on it, which nobody answers (RFC 9112 9.6).
    """

    def should_close(self) -> bool:
        """Whether no other request may follow on the connection."""
        reader = self.body.reader
        has_more = reader.parser if isinstance(reader, ChunkedBody) else reader.length
        return super().should_close() or bool(has_more)


parser.RequestParser.mesg_class = Request


class Worker(ThreadWorker):
    """As gunicorn's, but a connection is ended by the thread that answered on it.

    gunicorn leaves that to its main thread, which takes all connections: for two seconds it waits
    for a client to end its side, and everybody waits with it.
    """

    def handle(self, conn) -> bool:
        """Answer a request; whether the connection goes on."""
        goes_on = super().handle(conn)
        if not goes_on:
            # What no view read is taken in first, as much as nginx lets through: else the answer is
            # lost with the connection (RFC 9112 9.6).
            util.close_graceful(conn.sock, max_drain=9 * 2**20)
            conn.close = lambda **_: None  # which the main thread will call
        return goes_on


worker_class = Worker


def leave_when_told() -> None:
    """A worker that is told to stop before it has begun ends at once.

    Until it has set its own signal handlers it has the master's, which take note of the signal for
    the master that it is not. It would start, and be killed after `graceful_timeout`.
    """
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        signal.signal(each, lambda *_: os._exit(0))


os.register_at_fork(after_in_child=leave_when_told)
