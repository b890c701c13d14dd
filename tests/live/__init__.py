"""Tests of a running `identity-server serve` with browsers, nginx and third-party clients."""
