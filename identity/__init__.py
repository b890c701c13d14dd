"""The foundation of the grant and the pages: sessions, passwords, limits, signatures, settings.

`fast_path` answers the API calls ahead of Flask. Nothing here imports a page, a command or the
grant.
"""
