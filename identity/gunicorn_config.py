"""gunicorn's configuration. `identity-server serve` adds the address, workers and threads.

GUNICORN_CMD_ARGS in the environment overrides these settings. Some of what the server promises has
no setting: two classes of gunicorn are replaced when it starts (`on_starting`), and its logger and
its worker are extended. Importing this module changes nothing.
"""

import os
import re
import signal
import sys
from urllib.parse import quote

import gunicorn
from gunicorn import glogging, util
from gunicorn.http import body, errors, message, parser
from gunicorn.workers import gthread

INTERNALS = (  # what is overridden, replaced or called, and is no part of gunicorn's documentation
    (glogging, "Logger.atoms"),
    (glogging, "Logger.now"),
    (glogging, "Logger.warning"),
    (glogging, "Logger.exception"),
    (body, "ChunkedReader.read"),
    (errors, "ParseException"),
    (message, "ChunkedReader"),
    (message, "Request.should_close"),
    (parser, "RequestParser.mesg_class"),
    (gthread, "ThreadWorker.handle"),
    (util, "close_graceful"),
)


def check_gunicorn() -> None:
    """Exit with one line where this gunicorn lacks one of INTERNALS.

    Else a renamed method would silently end the redaction of the logs.
    """
    for module, path in INTERNALS:
        found = module
        for name in path.split("."):
            found = getattr(found, name, None)
        if found is None:
            missing = f"gunicorn {gunicorn.__version__} has no {module.__name__}.{path}"
            sys.exit(f"Error: {missing}: install the version that constraints.txt names")


check_gunicorn()

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


class AccessLog(glogging.Logger):
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


class Worker(gthread.ThreadWorker):
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


def on_starting(server) -> None:
    """Replace what gunicorn has no setting for, in the master process before it forks."""
    on_reload(server)
    os.register_at_fork(after_in_child=exit_on_signal_during_boot)


def on_reload(server) -> None:
    """Replace it again at a SIGHUP, which reads this file anew."""
    message.ChunkedReader = ChunkedBody
    parser.RequestParser.mesg_class = Request


def exit_on_signal_during_boot() -> None:
    """Let a worker that is told to stop before it has booted exit at once.

    Until it has set its own signal handlers it has the master's, which queue the signal for the
    master. It would start, and be killed after `graceful_timeout`.
    """
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        signal.signal(each, lambda *_: os._exit(0))
