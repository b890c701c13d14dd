"""A whole installation at once: what a backup, a copy, an export and an import do with it.

These modules call a storage by its contract alone, so they work on each backend. `archive` writes
and reads the file of a backup, `copying` copies an installation into an empty one of any backend,
and `transfer` exports and imports players, each a line of `player_lines`. The check of an
installation is the backends' (`storage.check_installation`).
"""
