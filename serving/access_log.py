"""The access log: one line on standard output for each request, without credentials.

    127.0.0.1 - - [23/Nov/2026:10:00:00 +0000] "GET /api/users/info HTTP/1.1" 200 180 0.000213

A line has the address, time, method, path, protocol, status, bytes of the body and seconds of a
request; no query string, Referer or other header, and no character that could forge a line.
"""

import contextlib
import functools
import os
import re
import select
import time
from urllib.parse import quote

# The largest line: writes of this length to a pipe are atomic on Linux (pipe(7)).
MOST = 4096  # bytes
MOST_OF_A_PATH = 3072  # characters
MOST_OF_A_WORD = 64  # characters of an address, a method or a protocol
SECRET = re.compile("[A-Za-z0-9_-]{40,}")


def access_line(environ: dict, status: str, sent: int, seconds: float) -> bytes:
    """Return the line of a request from its WSGI environ (PEP 3333).

    `status` starts with the status code; `sent` is the length of the body in bytes.
    """
    address = clean_word(environ.get("REMOTE_ADDR") or "-")
    method = clean_word(environ.get("REQUEST_METHOD") or "-")
    path = path_to_log(environ.get("PATH_INFO") or "-")
    protocol = clean_word(environ.get("SERVER_PROTOCOL") or "-")
    now = format_time(int(time.time()))
    text = f'{address} - - {now} "{method} {path} {protocol}" {status[:3]} {sent} {seconds:.6f}\n'
    return text.encode("ascii")


@functools.lru_cache(maxsize=64)
def clean_word(text: str) -> str:
    """Return a word percent-encoded and cut off: an address that a proxy sends can be any text."""
    return quote(text, safe=":/")[:MOST_OF_A_WORD]


@functools.lru_cache(maxsize=64)
def path_to_log(path: str) -> str:
    """Return a path, which the server has decoded to latin-1 (PEP 3333), percent-encoded.

    Words as long as a code or a key are replaced, in case that a path ever contains one.
    """
    encoded = SECRET.sub("...", quote(path, safe="/:@!$&'()*+,;=~", encoding="latin-1"))
    return encoded if len(encoded) <= MOST_OF_A_PATH else f"{encoded[:MOST_OF_A_PATH]}..."


@functools.lru_cache(maxsize=1)
def format_time(second: int) -> str:
    """Return a time in seconds since 1970, as the Apache log has it."""
    return time.strftime("[%d/%b/%Y:%H:%M:%S %z]", time.localtime(second))


class LineWriter:
    """Writes lines to a descriptor that several processes share, each line by one write(2).

    Such lines stay whole: in a pipe up to MOST bytes (pipe(7)), and in a file because Linux locks
    it. `logging` takes four times as long, and holds a lock.
    """

    def __init__(self, descriptor: int = 1) -> None:
        self._descriptor = descriptor
        self._is_torn = False  # the last write ended inside its line

    def write(self, line: bytes) -> None:
        """Write a line. It is lost if the descriptor refuses it: a full disk stops no request."""
        rest = b"\n" + line if self._is_torn else line
        with contextlib.suppress(OSError):
            while rest:
                try:
                    written = os.write(self._descriptor, rest)
                except BlockingIOError:  # another process made the descriptor non-blocking
                    select.select((), (self._descriptor,), ())
                    continue
                rest = rest[written:]
                self._is_torn = bool(rest)
