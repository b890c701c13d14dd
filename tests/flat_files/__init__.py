"""Tests about the files of the flat-file backend."""
