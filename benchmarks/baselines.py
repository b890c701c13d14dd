"""The two baselines: the least that a response costs under gunicorn, and in a Flask app."""

from flask import Flask

TEXT = "x" * 199 + "\n"
BODY = TEXT.encode()


def bare(environ, start_response):
    """Respond with 200 bytes from a bare WSGI function."""
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(BODY)))])
    return [BODY]


plain = Flask(__name__)  # default settings, no secret key


@plain.get("/")
def respond():
    """Respond with the same 200 bytes from a route of a default Flask app."""
    return TEXT, {"Content-Type": "text/plain"}
