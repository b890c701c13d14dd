"""The saves that all tests of faults make, what an installation has before and after each, and it.

Facts are the observable values of an installation by name. ANYTHING stands for a new value that
only the save itself knows, and None for a value that is gone.
"""

import base64
import contextlib
import errno
import functools
import hashlib
import io
import json
import os
import random
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace

from cached_pictures import generate_picture

from identity.acts import apps
from identity.acts import apps as app_acts
from identity.acts.actors import COMMAND, Authority
from identity.oauth import refresh
from identity.oauth.refresh import secret_after, use_refresh_token
from identity.oauth.terms import InvalidGrant
from images import pictures
from model.encoding import record_as_dict
from model.errors import CodeSpent, NoSuchCode, StorageFailed, StorageFull
from model.grant_records import AuthorizationCode, Family
from model.kind import DAY_MS
from model.kinds import COVERS, FAMILIES
from model.names import unique_key
from model.records import (
    ADMINISTRATOR,
    COVER_SIZES,
    PICTURE_SIZES,
    PLAYER,
    Client,
    Grant,
    Suspension,
    User,
    now_ms,
    sha256,
)
from model.site_records import Invite
from storage import Storage, contract, open_storage
from storage.files import translate_os_errors
from storage.flat_files import attempts, codes
from storage.flat_files.backend import FlatFiles
from storage.maintenance import ignore
from storage.whole.transfer import import_users

ANYTHING = "anything"
UPLOADS = 20  # different pictures
ADA, BOB = 1, 2  # ids
INVITE, CODE = "an invitation", "an old code"
CODE_RECORD = AuthorizationCode("c" * 24, ADA, "a grant", ["userinfo"], "https://a.example/", None)
OLD_SECRET = "x" * 43  # of a refresh token that was replaced long ago


class Installation:
    """The folders of an installation in any state."""

    def __init__(self, folder: Path) -> None:
        self.data, self.pictures = folder / "instance", folder / "pfp"
        self.folders = str(self.data), str(self.pictures)

    def open(self) -> FlatFiles:
        return open_storage(*self.folders)

    def files(self) -> set[Path]:
        """Return every file, also temporary ones, except lock files, which are never removed."""
        paths = [path for top in (self.data, self.pictures) for path in top.rglob("*")]
        return {path for path in paths if not path.is_dir()} - {*self.data.glob("locks/*")}

    def temporary_files(self) -> set[Path]:
        return {path for path in self.files() if path.name.startswith(".")}

    def lasting_temporary_files(self) -> set[Path]:
        """Return the temporary files that are not removed when a time window ends."""
        return {each for each in self.temporary_files() if "codes" not in each.parts}

    def copy(self, folder: Path) -> "Installation":
        installation = Installation(folder)
        for source, target in zip(self.folders, installation.folders, strict=True):
            if os.path.exists(source):  # a first start may have been killed before
                shutil.copytree(source, target, symlinks=True)
        return installation


def prepare(storage: Storage) -> None:
    """Add the records that the saves need, of each kind more than one."""
    for name in ("Ada", "Bob", "Cyd"):
        user = storage.users.register(name, f"{name.lower()}@example.org", "")
    storage.pictures.save(user.id, generate_picture(10**6))
    for name in ("Chess", "Checkers", "Go"):
        client, _ = storage.clients.register(name, [], ADA)
        app_acts.save_cover(
            Authority(storage, COMMAND), client.id, dict.fromkeys(COVER_SIZES, b"old")
        )
    with storage.users.edit(ADA) as user:
        user.grants[client.id] = Grant("a grant", ["userinfo"], 1)
    start_family(storage, "first", random.Random(0))[1]()
    storage.codes.add(CODE, CODE_RECORD)
    storage.audit.write("invite", INVITE)
    storage.audit.write("address", "Ada", address="192.0.2.1")
    storage.invites.add(Invite(sha256(INVITE), now_ms() + DAY_MS))
    storage.attempts.count("password", "ada", limit=1000)


def make_repeatable(replace: Callable[[object, str, object], None] = setattr) -> None:
    """Let a save repeat its calls: no time window ends, and pictures are generated once."""
    for module in (attempts, codes):
        replace(module, "window_of_now", lambda seconds: 10**6)
    replace(pictures, "generate_picture", generate_picture)
    replace(contract, "KEYS_CACHED", 0.01)  # seconds that each restore waits


# -- facts ----------------------------------------------------------------------------------------


def read_facts(storage: FlatFiles, code_names: tuple[str, ...] = ()) -> dict[str, object]:
    """Return all facts, which include everything that a save changes except other codes."""
    facts: dict[str, object] = {
        "keys": list(map(bytes.decode, storage.keys.current())),
        "invites": unused_invites(storage),
    }
    for user in map(storage.users.read, storage.users.ids()):
        by_login = map(storage.users.find_by_login, (user.name, user.email))
        assert [*by_login] == [user, user]
        facts |= {
            f"family {each.id}": [each.current, each.previous]
            for each in families_of(storage, user_id=user.id)
        }
        facts[f"player {user.name}"] = describe_player(storage, user)
    for client in map(storage.clients.read, storage.clients.ids()):
        facts[f"client {client.name}"] = describe_client(storage, client)
    for handle in map(storage.handles.read, storage.handles.ids()):
        assert storage.handles.find_of(handle.user_id) == handle.id
        facts[f"handle of {handle.user_id}"] = handle.id
    for former in map(storage.users.former_names.read, storage.users.former_names.ids()):
        assert former in storage.users.former_names.of(former.user_id)
        facts[f"former name {former.id}"] = former.user_id
    for line in storage.audit.read():
        facts[f"{line['act']} by {line['by']}"] = line.get("address", True)
    for code in code_names:
        facts[f"code {code}"] = state_of_code(storage, code)
    check_indexes(storage)
    return facts


def families_of(
    storage: Storage, user_id: int | None = None, client_id: str | None = None
) -> list[Family]:
    """Return the families that count of a user, of a client, or all; none may be missing."""
    users = map(storage.users.read, storage.users.ids() if user_id is None else [user_id])
    named = [each for user in users for each in sorted(user.families)]
    clients = storage.clients.ids() if client_id is None else [client_id]
    families = map(storage.records(FAMILIES).read, named)
    return [each for each in families if each.client_id in clients]


def ended(families: Iterable[Family]) -> dict[str, None]:
    return {f"family {each.id}": None for each in families}


def check_indexes(storage: FlatFiles) -> None:
    """Raise AssertionError if an index and the records differ."""
    users = [storage.users.read(each) for each in storage.users.ids()]
    assert storage.users.administrators() == [each for each in users if each.administers]
    by_name = sorted(users, key=lambda user: unique_key(user.name))
    assert storage.users.by_name("", at_most=len(users) + 1) == by_name
    clients = [storage.clients.read(each) for each in storage.clients.ids()]
    for owner_id in (None, *(user.id for user in users)):
        owned = [each for each in clients if each.owner_id == owner_id]
        assert storage.clients.of_owner(owner_id) == owned
    log = list(storage.audit.read())
    for user in users:
        lines = [line for line in log if line.get("user") == user.id]
        # The log may have the line of a change that was not made.
        assert list(storage.audit.about({user.id}))[::-1] in (lines, lines[:-1])


def count_done(current: dict, known: dict, changes: dict) -> int:
    """Return how many changes of a save an installation has; they must reach it in their order.

    Raises AssertionError if the current facts differ from the known ones in any other way.
    """
    for name in (current.keys() | known.keys()) - changes.keys():
        assert current.get(name) == known.get(name), name
    done = []
    for name, new in changes.items():
        value, old = current.get(name), known.get(name)
        done.append(value != old if new == ANYTHING else value == new)
        assert done[-1] or value == old, f"{name} is neither old nor new: {value}"
    assert done == sorted(done, reverse=True), f"half done: {dict(zip(changes, done, strict=True))}"
    return sum(done)


def logins_in(facts: dict) -> list[set[str]]:
    players = {each: facts[each] for each in facts if each.startswith("player ")}
    names = {each.removeprefix("player ") for each in players}
    return [names, {each["email"] for each in players.values()}]


def expected_fields(record: User | Client) -> dict:
    """Return the fields whose values a save knows in advance."""
    unknown = {"id", "name", "created", "last_heartbeat", "pfp_timestamp", "invite", "cover"}
    return {name: each for name, each in record_as_dict(record).items() if name not in unknown}


def describe_player(storage: Storage, user: User) -> dict:
    images = {size: storage.pictures.read(size, user.picture_file)[0] for size in PICTURE_SIZES}
    return expected_fields(user) | {"picture": picture_digest(images)}


def describe_client(storage: Storage, client: Client) -> dict:
    """Return the fields and the cover of a client, which must not be missing."""
    cover = client.cover_id and storage.records(COVERS).read(client.cover_id)
    return expected_fields(client) | {"shown": [cover.small, cover.large] if cover else None}


def picture_digest(images: dict[str, bytes]) -> str:
    return hashlib.sha256(b"".join(images.values())).hexdigest()


def unused_invites(storage: FlatFiles) -> list[str]:
    """Return the hashes of the unused invitations."""
    invites = map(storage.invites.read, storage.invites.ids())
    return sorted(each.id for each in invites if not storage.invites.accounts_of(each.used_by))


def state_of_code(storage: Storage, code: str) -> str | None:
    try:
        storage.codes.read(code)
    except NoSuchCode:
        return None
    except CodeSpent:
        return "used"
    return "valid"


# -- saves ----------------------------------------------------------------------------------------
#
# Each function returns the facts that the save changes, in the order in which they must reach the
# disk, and the function that makes the save. `mark` is unique to the save.

Plan = tuple[dict[str, object], Callable[[], object]]
Save = Callable[[FlatFiles, str, random.Random], Plan]


def add_player(storage, mark, rng, invite_token=None):
    changes, user = new_player(storage, mark)
    register = functools.partial(storage.users.register, invite=invite_token)
    return changes, lambda: register(user.name, user.email, user.password_hash)


def new_player(storage: FlatFiles, mark: str) -> tuple[dict, User]:
    user = User(id_of_next_player(storage), mark, f"{mark}@example.org", "", pfp_generated=True)
    picture = {"picture": picture_digest(generate_picture(user.id))}
    return {f"player {mark}": expected_fields(user) | picture}, user


def id_of_next_player(storage: FlatFiles) -> int:
    if not storage.users.ids():
        return 1
    with translate_os_errors():
        return int(Path(storage.layout.data_dir, "next_user_id").read_text())


def import_player(storage, mark, rng):
    def act() -> None:
        line = {"id": user.id, "name": user.name, "email": user.email}
        file, refused = io.BytesIO(json.dumps(line).encode()), {}
        import_users(storage, file, None, mark, ignore, refused.__setitem__, str)
        raise_reported(refused.values())

    changes, user = new_player(storage, mark)
    return {f"import by {mark}": True} | changes, act


def raise_reported(reasons: Iterable[str]) -> None:
    """Raise StorageFull or StorageFailed if a line or a record could not be read, and why."""
    for reason in reasons:
        is_full = any(os.strerror(each) in reason for each in (errno.ENOSPC, errno.EDQUOT))
        raise (StorageFull if is_full else StorageFailed)(reason)


def invite(storage, mark, rng):
    def act() -> None:
        storage.audit.write("invite", mark)
        storage.invites.add(Invite(sha256(mark), now_ms() + DAY_MS))

    invites = sorted([*unused_invites(storage), sha256(mark)])
    return {f"invite by {mark}": True, "invites": invites}, act


def add_invited_player(storage, mark, rng):
    tokens = [line["by"] for line in storage.audit.read() if line["act"] == "invite"]
    token = next(filter(storage.invites.find_unused, tokens), None)
    if token is None:
        return invite(storage, mark, rng)
    changes, act = add_player(storage, mark, rng, invite_token=token)
    left = [each for each in unused_invites(storage) if each != sha256(token)]
    return changes | {"invites": left}, act


def choose_player(storage: Storage, rng: random.Random) -> User:
    """Return a player as the next save leaves the record: grants of deleted clients are dropped."""
    user = storage.users.read(rng.choice(storage.users.ids()))
    clients = storage.clients.ids()
    user.grants = {each: grant for each, grant in user.grants.items() if each in clients}
    return user


def edit_player(change: Callable[[User, str], None], act: str = "") -> Save:
    """Return a save that changes the record of a player, with an audit line if it is an act."""

    def save(storage, mark, rng):
        def edit() -> None:
            with storage.users.edit(user.id) as edited:
                if act:
                    storage.audit.write(act, mark, user=user.id)
                change(edited, mark)

        user = choose_player(storage, rng)
        picture = {"picture": describe_player(storage, user)["picture"]}
        change(user, mark)
        line = {f"{act} by {mark}": True} if act else {}
        return line | {f"player {user.name}": expected_fields(user) | picture}, edit

    return save


def write_bio(user: User, mark: str) -> None:
    user.bio = f"{mark} " * 100


def promote(user: User, mark: str) -> None:
    user.mod_level = PLAYER if user.mod_level else ADMINISTRATOR


def suspend(user: User, mark: str) -> None:
    user.suspension = None if user.suspended else Suspension("command", since=1)


def allow(storage, mark, rng):
    client_id = choose_client(storage, rng).id
    replaced: list[Family] = []

    def grant(user: User, mark: str) -> None:
        replaced[:] = replaced or families_of(storage, user.id, client_id)
        user.grants[client_id] = Grant(mark, ["userinfo", "email"], 1)

    changes, act = edit_player(grant)(storage, mark, rng)
    return changes | ended(replaced), act


def request_to(storage: Storage) -> SimpleNamespace:
    """Return what the token endpoint knows of a request."""
    environ = {"REMOTE_ADDR": "127.0.0.1"}
    return SimpleNamespace(storage=storage, environ=environ, days_kept=(30, 365), openid=False)


def start_family(storage, mark, rng):
    """Exchange a code for a refresh token."""
    clients = storage.clients.ids()
    users = [each for each in map(storage.users.read, storage.users.ids()) if not each.suspended]
    allowed = [(user, each) for user in users for each in user.grants if each in clients]
    if not allowed:
        return allow(storage, mark, rng)
    user, client_id = rng.choice(allowed)
    user.grants = {each: grant for each, grant in user.grants.items() if each in clients}
    grant, family_id = user.grants[client_id], sha256(mark)[:16]
    code = AuthorizationCode(client_id, user.id, grant.id, ["userinfo"], None, None)
    code.family = family_id
    spent = {f"code {CODE}": "used"} if state_of_code(storage, CODE) == "valid" else {}
    form = {"grant_type": "authorization_code", "code": family_id}

    def act() -> None:
        client = storage.clients.read(client_id)
        token = refresh.start_family(request_to(storage), form, code, client)
        family = storage.records(FAMILIES).read(family_id)
        assert token == f"{family_id}.{secret_of(family)}"  # also of a second try
        for _ in spent:
            storage.codes.spend(CODE)

    if family_id not in grant.families:
        grant.families.append(family_id)
    picture = {"picture": describe_player(storage, user)["picture"]}
    changes = {f"player {user.name}": expected_fields(user) | picture}
    return changes | {f"family {family_id}": ANYTHING} | spent, act


def secret_of(family: Family) -> str:
    """Return the newest secret, which follows from the code that was the id."""
    secret = secret_after(family.id, family.salt)
    while sha256(secret) != family.current:
        assert family.previous, "the first secret does not follow from the code"
        secret = secret_after(secret, family.salt)
    return secret


def use_token(is_old: bool) -> Save:
    """Return a save that uses a refresh token, or one that was replaced long ago."""

    def save(storage, mark, rng):
        read = storage.users.read
        found = [each for each in families_of(storage) if not read(each.user_id).suspended]
        if not found:
            return start_family(storage, mark, rng)
        family = rng.choice(found)
        secret = OLD_SECRET if is_old else secret_of(family)
        following = secret_after(secret, family.salt)
        form = {"refresh_token": f"{family.id}.{secret}"}

        def act() -> None:
            client = storage.clients.read(family.client_id)
            if is_old:
                with contextlib.suppress(InvalidGrant):
                    use_refresh_token(request_to(storage), client, form)
                return
            token = use_refresh_token(request_to(storage), client, form)[2]
            assert token == f"{family.id}.{following}"

        if is_old:
            user = storage.users.read(family.user_id)
            return {f"player {user.name}": ANYTHING} | ended([family]), act
        return {f"family {family.id}": [sha256(following), sha256(secret)]}, act

    return save


def kept_name(user: User) -> dict[str, int]:
    """Return the fact that a player's name is kept, once it is given up."""
    return {f"former name {sha256(unique_key(user.name))}": user.id}


def rename(storage, mark, rng):
    user = choose_player(storage, rng)
    changes = kept_name(user)
    changes |= {f"player {mark}": describe_player(storage, user), f"player {user.name}": None}
    return changes, lambda: storage.users.rename(user.id, mark)


def change_email(storage, mark, rng):
    user = choose_player(storage, rng)
    email = f"{mark}@example.org" if user.name != mark else f"new-{mark}@example.org"
    changes = {f"player {user.name}": describe_player(storage, user) | {"email": email}}
    return changes, lambda: storage.users.change_email(user.id, email)


def change_picture(storage, mark, rng):
    user = storage.users.read(rng.choice(storage.users.ids()))
    images, user.pfp_generated = generate_picture(10**6 + rng.randrange(UPLOADS)), False
    changes = {f"player {user.name}": expected_fields(user) | {"picture": picture_digest(images)}}
    return changes, lambda: storage.pictures.save(user.id, images)


def remove_picture(storage, mark, rng):
    stored = [each for each in storage.users.ids() if not storage.users.read(each).pfp_generated]
    if not stored:
        return change_picture(storage, mark, rng)
    user = storage.users.read(rng.choice(stored))
    user.pfp_generated, drawn = True, {"picture": picture_digest(generate_picture(user.id))}
    changes = {f"player {user.name}": expected_fields(user) | drawn}
    return changes, lambda: storage.pictures.save(user.id, None)


def delete_player(storage, mark, rng):
    user = choose_player(storage, rng)
    if len(storage.users.ids()) < 3:
        return add_player(storage, mark, rng)
    changes = kept_name(user) | {f"player {user.name}": None}
    changes |= ended(families_of(storage, user_id=user.id))
    return changes, lambda: storage.users.delete(user.id)


def make_handle(storage, mark, rng):
    handles = storage.handles.ids()
    have_one = {storage.handles.read(each).user_id for each in handles}
    users = [each for each in storage.users.ids() if each not in have_one]
    if not users:
        return add_player(storage, mark, rng)
    user = storage.users.read(rng.choice(users))
    name = user.name.casefold()
    handle = f"player{user.id}" if name in handles else name
    return {f"handle of {user.id}": handle}, lambda: storage.handles.of(user)


def audit_line_writer(storage: FlatFiles, act: str, mark: str) -> Callable[[Client], None]:
    return lambda client: storage.audit.write(act, mark, client=client.id)


def add_client(storage, mark, rng):
    owner_id = rng.choice([None, *storage.users.ids()])
    line = audit_line_writer(storage, "client add", mark)
    register = functools.partial(storage.clients.register, before=line)
    changes = {f"client add by {mark}": True, f"client {mark}": ANYTHING}
    return changes, lambda: register(mark, ["https://a.example/"], owner_id)


def choose_client(storage: Storage, rng: random.Random) -> Client:
    return storage.clients.read(rng.choice(storage.clients.ids()))


def edit_client(storage, mark, rng):
    client = choose_client(storage, rng)
    uris = [f"https://{mark}.example/"]

    def act() -> None:
        with storage.clients.edit(client.id) as edited:
            edited.redirect_uris = uris

    changed = describe_client(storage, client) | {"redirect_uris": uris}
    return {f"client {client.name}": changed}, act


def change_cover(storage, mark, rng):
    client, files = choose_client(storage, rng), dict.fromkeys(COVER_SIZES, mark.encode())
    shown = [base64.b64encode(mark.encode()).decode()] * 2
    changes = {f"client {client.name}": describe_client(storage, client) | {"shown": shown}}
    return changes, functools.partial(
        apps.save_cover, Authority(storage, COMMAND), client.id, files
    )


def remove_cover(storage, mark, rng):
    client = choose_client(storage, rng)
    if client.cover is None:
        return change_cover(storage, mark, rng)
    changes = {f"client {client.name}": describe_client(storage, client) | {"shown": None}}
    return changes, functools.partial(apps.remove_cover, Authority(storage, COMMAND), client.id)


def change_secret(storage, mark, rng):
    client = choose_client(storage, rng)
    line = audit_line_writer(storage, "client new-secret", mark)
    changes = {f"client new-secret by {mark}": True, f"client {client.name}": ANYTHING}
    return changes, lambda: storage.clients.issue_secret(client.id, line)


def delete_client(storage, mark, rng):
    client = choose_client(storage, rng)
    if len(storage.clients.ids()) < 3:
        return add_client(storage, mark, rng)
    line = audit_line_writer(storage, "client delete", mark)
    changes = {f"client delete by {mark}": True, f"client {client.name}": None}
    changes |= ended(families_of(storage, client_id=client.id))
    return changes, lambda: storage.clients.delete(client.id, line)


def rotate_keys(drop_old: bool) -> Save:
    return lambda storage, mark, rng: (
        {"keys": ANYTHING},
        functools.partial(storage.keys.rotate, drop_old=drop_old),
    )


def forget_addresses(storage, mark, rng):
    is_there = any(line["act"] == "address" for line in storage.audit.read())  # of `prepare`
    facts = {"address by Ada": True} if is_there else {}
    return facts, lambda: storage.audit.forget(*storage.audit.ends())


def add_code(storage, mark, rng):
    """Add a code, which no power cut spares: its fact has no meaning after one."""
    return {f"code {mark}": "valid"}, lambda: storage.codes.add(mark, CODE_RECORD)


def use_code(storage, mark, rng):
    if state_of_code(storage, CODE) != "valid":
        return add_code(storage, CODE, rng)
    return {f"code {CODE}": "used"}, lambda: storage.codes.spend(CODE)


SAVES: dict[str, Save] = {
    "add a player": add_player,  # the first two before all others, which need what these add
    "add a client": add_client,
    "import a player": import_player,
    "invite a player": invite,
    "add an invited player": add_invited_player,
    "rename a player": rename,
    "change an email address": change_email,
    "change a picture": change_picture,
    "remove a picture": remove_picture,
    "write a bio": edit_player(write_bio),
    "make or unmake an administrator": edit_player(promote),
    "suspend a player": edit_player(suspend, "suspend"),
    "allow a client": allow,
    "start a family": start_family,
    "use a refresh token": use_token(is_old=False),
    "use an old refresh token": use_token(is_old=True),
    "delete a player": delete_player,
    "make a handle": make_handle,
    "edit a client": edit_client,
    "change a cover": change_cover,
    "remove a cover": remove_cover,
    "change a secret": change_secret,
    "delete a client": delete_client,
    "rotate the keys": rotate_keys(drop_old=False),
    "drop the old keys": rotate_keys(drop_old=True),
    "forget addresses": forget_addresses,
    "add a code": add_code,
    "use a code": use_code,
}
FIRST_START = "start on empty folders"
AT_FIRST_START = {"keys": ANYTHING, "invites": []}  # the facts that the first start changes
