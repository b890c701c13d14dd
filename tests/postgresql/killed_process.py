"""A process that runs an operation of the storage and kills itself at one of its statements.

    python killed_process.py URL

Each line of standard input is JSON with the name of an operation, its arguments, the number of a
statement and whether that statement still runs. The answer is a line with the exit status: 0 if
the operation ended before, -9 if the process was killed.
"""

import contextlib
import json
import os
import signal
import sys
from types import SimpleNamespace

from identity.acts import apps as app_acts
from identity.acts.actors import COMMAND, Authority
from identity.oauth.refresh import start_family, use_refresh_token
from identity.oauth.terms import InvalidGrant
from images.pictures import generate_picture
from model.grant_records import AuthorizationCode
from model.records import ADMINISTRATOR, COVER_SIZES, PLAYER, User
from storage import Storage, open_storage
from storage.postgresql import connections


def demote(store: Storage, user_id: int) -> None:
    """Demote an administrator, of whom there are several."""
    with store.users.administered_without(user_id), store.users.edit(user_id) as user:
        user.mod_level = PLAYER
        store.audit.write("mod-level", 1, user=user_id)


def request_to(store: Storage) -> SimpleNamespace:
    """Return what the token endpoint knows of a request."""
    environ = {"REMOTE_ADDR": "127.0.0.1"}
    return SimpleNamespace(storage=store, environ=environ, days_kept=(30, 365), openid=False)


def exchange(store: Storage, code: str) -> str:
    """Exchange a code, which is the id of its family as well, for a refresh token."""
    found = store.codes.read(code, AuthorizationCode)
    form, client = {"grant_type": "authorization_code", "code": code}, found.client_id
    token = start_family(request_to(store), form, found, store.clients.read(client))
    store.codes.spend(code)
    return token


def refresh(store: Storage, client_id: str, token: str) -> None:
    """Use a refresh token; one that was replaced ends its family."""
    with contextlib.suppress(InvalidGrant):
        client = store.clients.read(client_id)
        use_refresh_token(request_to(store), client, {"refresh_token": token})


OPERATIONS = {
    "add user": lambda store, name, invite: store.users.register(
        name, f"{name}@example.org", "", ADMINISTRATOR, invite
    ),
    "insert user": lambda store, name, user_id: store.users.insert(
        User(user_id, name, f"{name}@example.org", ""), generate_picture(1)
    ),
    "rename": lambda store, user_id, name: store.users.rename(user_id, name),
    "change email": lambda store, user_id, email: store.users.change_email(user_id, email),
    "delete": lambda store, user_id: store.users.delete(user_id),
    "demote": demote,
    "save picture": lambda store, user_id: store.pictures.save(user_id, generate_picture(7)),
    "add client": lambda store, name, owner_id: store.clients.register(
        name, [], owner_id, at_most=5
    ),
    "delete client": lambda store, client_id: store.clients.delete(client_id),
    "save cover": lambda store, client_id: app_acts.save_cover(
        Authority(store, COMMAND), client_id, dict.fromkeys(COVER_SIZES, b"new")
    ),
    "exchange": exchange,
    "refresh": refresh,
    "refresh with an old token": refresh,
    "rotate keys": lambda store: store.keys.rotate(drop_old=False),
}


def run_killed(url: str, operation: str, arguments: list, number: int, runs: bool) -> None:
    """Run an operation; at this statement, before it or after it, kill this process."""
    store = open_storage("", "", url)
    store.users.is_new()  # connects
    run, statements = connections.Link.run, 0

    def run_and_die(self, *args: object, **kwargs: object) -> list:
        nonlocal statements
        statements += 1
        if statements < number:
            return run(self, *args, **kwargs)
        if runs:
            run(self, *args, **kwargs)
        os.kill(os.getpid(), signal.SIGKILL)

    connections.Link.run = run_and_die
    OPERATIONS[operation](store, *arguments)


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            run_killed(sys.argv[1], **request)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
