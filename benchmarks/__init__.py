"""What the server's calls cost, measured: `python -m benchmarks`."""
