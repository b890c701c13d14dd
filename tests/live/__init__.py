"""Tests against the real thing: `identity-server serve`, programs that others wrote, a browser."""
