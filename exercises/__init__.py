"""Exercises: the checks of the grant, each taken out of a copy of the server, and then attacked.

`python -m exercises` lists them, and docs/exercises.md is the course. `checks.py` has the attacks,
`playing.py` the copy, its process and the printed requests, `server.py` runs in that process.
"""
