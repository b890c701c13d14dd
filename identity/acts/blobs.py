"""Pictures that a record names, in this order: new picture, record (the commit), old picture.

So a kill leaves a whole picture, and perhaps one that no record names and nobody is served.
"""

import contextlib
from collections.abc import Iterator

from identity.acts.actors import NotAllowed
from model.errors import SaveUnconfirmed, StorageError, StorageFailed
from model.records import Cover
from model.site_records import Logo
from storage.repositories import Records


@contextlib.contextmanager
def adding(blobs: Records, new: Cover | Logo) -> Iterator[None]:
    """Add a picture, and delete it again if the block, which is the commit, was not saved.

    Raises AlreadyThere for another one of this millisecond, StorageFailed.
    """
    try:
        blobs.add(new)
    except SaveUnconfirmed as error:
        raise StorageFailed(str(error)) from error  # no record names it: nothing has changed
    try:
        yield
    except SaveUnconfirmed:
        raise  # the record may name it
    except (NotAllowed, StorageError):
        discard(blobs, new.id)
        raise


def discard(blobs: Records, blob_id: int | str | None) -> None:
    """Delete a picture that no record names any more, if that works; None is no picture."""
    if blob_id is not None:
        with contextlib.suppress(StorageError):
            blobs.delete(blob_id)
