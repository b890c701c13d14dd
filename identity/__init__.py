"""The foundation of the grant and the pages: sessions, passwords, limits, signatures, settings.

`fast_path` answers the three API calls ahead of Flask; `gunicorn_config` is how `identity-server
serve` runs gunicorn. Nothing here imports a page, a command or the grant.
"""
