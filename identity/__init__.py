"""The foundation of the grant and the pages: sessions, passwords, limits, signatures, settings.

`fast_path` answers the API calls ahead of Flask; `gunicorn_config` and `granian_server`
are how `identity-server serve` runs its two servers. Nothing here imports a page, a command or the
grant.
"""
