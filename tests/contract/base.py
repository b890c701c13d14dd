"""What the tests of the contract share."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from model.errors import StorageError
from model.names import unique_key
from model.records import PICTURE_SIZES, User, sha256
from storage import Storage

PICTURE = {size: size.encode() for size in PICTURE_SIZES}  # storage does not look into them


def together(act: Callable, arguments: Iterable) -> list:
    """Call `act` with each argument in racing threads; return results and StorageErrors."""
    arguments = list(arguments)
    barrier = threading.Barrier(len(arguments))

    def race(argument: object) -> object:
        barrier.wait()
        try:
            return act(argument)
        except StorageError as error:
            return error

    with ThreadPoolExecutor(len(arguments)) as threads:
        return list(threads.map(race, arguments))


def edit(storage: Storage, user_id: int, **values: object) -> User:
    """Save these fields of a user; return the record."""
    with storage.users.edit(user_id) as user:
        for name, value in values.items():
            setattr(user, name, value)
    return user


def free_name(storage: Storage, name: str) -> None:
    """Let anybody have a name that was given up, as 90 days do."""
    storage.users.former_names.delete(sha256(unique_key(name)))


def find_all(storage: Storage, *texts: str) -> list[User | None]:
    """Return the users with these names or email addresses."""
    return [storage.users.find_by_login(each) for each in texts]


def ids_of(records: Iterable) -> list:
    return [each.id for each in records]
