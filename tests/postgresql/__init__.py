"""Tests about the PostgreSQL backend alone; each has the marker `postgresql`."""
