"""How gunicorn runs the server. `identity-server serve` adds the address, workers and threads.

GUNICORN_CMD_ARGS in the environment overrides what stands here.
"""

import re
from urllib.parse import quote

from gunicorn.glogging import Logger

worker_class = "gthread"
timeout = 30  # seconds, like the next two
graceful_timeout = 30
keepalive = 5
backlog = 512
limit_request_line = 8190
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


def path_to_log(path: str) -> str:
    """A path, which gunicorn has decoded to latin-1 (PEP 3333), encoded again: a line stays one.

    What is as long as a code or a key is left out, in case that one ever stands in a path.
    """
    encoded = quote(path, safe="/:@!$&'()*+,;=~", encoding="latin-1")
    return re.sub("[A-Za-z0-9_-]{40,}", "...", encoded)


logger_class = AccessLog
