"""How the processes of the server run: gunicorn, granian, and the access log of both.

`gunicorn_config` and `granian_server` run any WSGI application (PEP 3333) and know nothing of
identity. `identity-server serve` starts one of them in place of itself. `granian_requests` is what
a granian worker does around each request, and `access_log` the line of a request. Both override
parts of the servers, of which `internals` checks at the start that they are still there.
"""
