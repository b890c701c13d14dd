"""What a granian worker does around each request, so that it is handled as under gunicorn.

Limits on the head, reading of a body that nobody read, the access line, and the end of connections
before the worker ends. This runs for each request: the three API calls take 30 to 150
microseconds.
"""

import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from werkzeug.wsgi import ClosingIterator

from serving.access_log import access_line, path_to_log

MOST_OF_A_LINE = 8190  # bytes, as gunicorn's limit_request_line and limit_request_field_size
MOST_DIGITS = 19  # of a Content-Length
MOST_OF_A_BODY = 9 * 2**20  # bytes; nginx admits no more
PART = 64 * 2**10  # bytes


class Requests:
    """WSGI middleware (PEP 3333) between granian and the application of a worker.

    `write` gets the access line of each request. `application` is None until it has loaded.
    """

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self.application: Callable | None = None
        self._write = write
        self._closes_connections = False
        self.last_kept = float("-inf")  # time.monotonic() of the last connection left open

    def announce_close(self) -> None:
        """From now on close each connection with its next response."""
        self._closes_connections = True

    def __call__(self, environ: dict, start_response: Callable) -> Iterable[bytes]:
        """Return the body of the response; log its line at once, or when a stream is closed."""
        start = time.monotonic()
        started = []  # the arguments of start_response
        body = self._respond(environ, lambda *arguments: started.append(arguments))
        if environ.get("CONTENT_LENGTH", "0") != "0" or "HTTP_TRANSFER_ENCODING" in environ:
            # granian resets a connection with unread data, and the response is lost.
            read_rest(environ["wsgi.input"])
        if environ["SERVER_PROTOCOL"] == "HTTP/1":
            environ["SERVER_PROTOCOL"] = "HTTP/1.0"  # for the log, as gunicorn has it
        status, headers = started[-1][:2]
        if self._closes_connections:
            headers = [*headers, ("Connection", "close")]
        else:
            self.last_kept = time.monotonic()
        start_response(status, headers)

        def log(sizes: Iterable[int]) -> None:
            self._write(access_line(environ, status, sum(sizes), time.monotonic() - start))

        if isinstance(body, list):
            log(map(len, body))
            return body
        sizes = []  # bytes of each part that was sent
        return ClosingIterator(
            measured(body, sizes), [getattr(body, "close", lambda: None), partial(log, sizes)]
        )

    def _respond(self, environ: dict, start_response: Callable) -> Iterable[bytes]:
        """Return the body of a response, of a refused head, or of an error, which is logged."""
        refusal = check_head(environ)
        if refusal:
            return respond_with_text(start_response, refusal)
        try:
            return self.application(environ, start_response)
        except Exception:
            path = path_to_log(environ["PATH_INFO"])
            print(f"Error handling request {environ['REQUEST_METHOD']} {path}", file=sys.stderr)
            traceback.print_exc()
            return respond_with_text(start_response, "500 Internal Server Error")


def check_head(environ: dict) -> str | None:
    """Return the status of a request to refuse, None if its head is as gunicorn admits it.

    granian has refused more than 100 headers, and heads larger than MOST_OF_A_HEAD.
    """
    if len(environ["PATH_INFO"]) + len(environ["QUERY_STRING"]) > MOST_OF_A_LINE:
        return "414 URI Too Long"
    # Headers are the last entries. Those before them are the same for all requests.
    for name in reversed(environ):
        if name == "wsgi.input":
            break
        if len(environ[name]) > MOST_OF_A_LINE:
            return "431 Request Header Fields Too Large"
    if len(environ.get("CONTENT_LENGTH", "")) > MOST_DIGITS:  # zeros: int() limits their number
        return "400 Bad Request"
    # granian gives a chunked body that was cut off as if it were complete (RFC 9112 8).
    if "HTTP_TRANSFER_ENCODING" in environ:
        return "411 Length Required"
    return None


def respond_with_text(start_response: Callable, status: str) -> list[bytes]:
    """Respond with a status and its name as the text."""
    body = status.partition(" ")[2].encode()
    length = ("Content-Length", str(len(body)))
    start_response(status, [("Content-Type", "text/plain"), length, ("Connection", "close")])
    return [body]


def read_rest(body) -> None:
    """Read the rest of a body, at most MOST_OF_A_BODY bytes."""
    for _ in range(MOST_OF_A_BODY // PART):
        if not body.read(PART):
            break


def measured(body: Iterable[bytes], sizes: list[int]) -> Iterator[bytes]:
    """Yield the parts of a body; append the length of each to `sizes`."""
    for part in body:
        sizes.append(len(part))
        yield part
