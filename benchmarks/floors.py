"""The two floors that the server is compared with: the least that gunicorn and that Flask cost."""

from flask import Flask

TEXT = "x" * 199 + "\n"
BODY = TEXT.encode()


def bare(environ, start_response):
    """200 bytes from a bare WSGI function."""
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(BODY)))])
    return [BODY]


plain = Flask(__name__)  # as it comes: no settings, no secret key


@plain.get("/")
def answer():
    """The same 200 bytes from a route of a default Flask app."""
    return TEXT, {"Content-Type": "text/plain"}
