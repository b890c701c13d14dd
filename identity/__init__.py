"""What the grant and the pages stand on.

`fast_path` answers the three API calls ahead of Flask; `gunicorn_config` is how `identity-server
serve` runs gunicorn. Nothing here imports a page, a command or the grant.
"""
