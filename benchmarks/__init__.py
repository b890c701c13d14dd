"""Measurements of the server's speed and memory: `python -m benchmarks`."""
