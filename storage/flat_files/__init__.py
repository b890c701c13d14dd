"""The storage contract kept as JSON files on disk."""
