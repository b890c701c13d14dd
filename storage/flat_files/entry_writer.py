"""The entries of many new records, which a process of its own writes.

A file system takes longer for the links of a record than Python for the record. So a second core
makes them while the first one reads the next records.
"""

import contextlib
import multiprocessing
import signal
from multiprocessing.connection import Connection
from typing import Any

from model import kinds
from model.errors import DamagedRecord
from model.kind import Kind
from storage.flat_files.entries import Entries
from storage.flat_files.layout import Layout

BATCH = 500  # records for the process at a time; it is started with the first full batch

Batch = list[tuple[str, Any]]  # the names of kinds, and records


class EntryWriter:
    """Writes the entries of records that are new. The entries are not synced."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._batch: Batch = []
        self._pipe: Connection | None = None  # to the process

    def add(self, kind: Kind, record: Any) -> None:
        """Write the entries of a record later. Raises what `finish` raises, for earlier records."""
        self._batch.append((kind.name, record))
        if len(self._batch) >= BATCH:
            self._send(self._batch)
            self._batch = []

    def finish(self) -> None:
        """Return when all entries are written. Raises DamagedRecord for a taken key, OSError."""
        if self._pipe is None:
            _write(self._layout, self._batch)
        else:
            if self._batch:
                self._send(self._batch)
            self._send([])
            self._raise_error()
            self.stop()
        self._batch = []

    def stop(self) -> None:
        """End the process, finished or not."""
        if self._pipe:
            self._pipe.close()  # which ends it, as the end of this process would
            self._process.join()
            self._pipe = None

    def _send(self, batch: Batch) -> None:
        """Send a batch to the process, started with the first. Raises the error of earlier ones."""
        if self._pipe is None:
            context = multiprocessing.get_context("spawn")  # a fork would copy connections
            self._pipe, other_end = context.Pipe()
            folders = self._layout.data_dir, self._layout.picture_dir
            self._process = context.Process(target=_run, args=(other_end, *folders))
            self._process.start()
            other_end.close()
        if self._pipe.poll():
            self._raise_error()
        self._pipe.send(batch)

    def _raise_error(self) -> None:
        """Wait for the answer of the process, and raise it if it is an error."""
        try:
            error = self._pipe.recv()
        except EOFError:
            raise ChildProcessError("the process that writes index entries was ended") from None
        if error:
            raise error


def _run(pipe: Connection, data_dir: str, picture_dir: str) -> None:
    """Write the entries of each batch that arrives until one is empty; answer None, or an error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command, which ends this
    layout, error = Layout(data_dir, picture_dir), None
    with contextlib.suppress(EOFError):  # the command has ended
        while batch := pipe.recv():
            try:
                _write(layout, batch)
            except (OSError, DamagedRecord) as first:
                error = first
                break
        pipe.send(error)
        while True:  # until the command closes its end: what it still sends must not fail
            pipe.recv()


def _write(layout: Layout, batch: Batch) -> None:
    entries = {kind.name: Entries(layout, kind) for kind in kinds.KINDS}
    for name, record in batch:
        entries[name].put_new(record)
