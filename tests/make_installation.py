"""Keep an installation of this version, which later versions must open and restore.

    python -m tests.make_installation    writes tests/installations/<version>.tar.gz

It has something of everything; tests/flat_files/test_installations.py says what is in it.
"""

import configparser
import json
import secrets
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path

from identity.access.passwords import hash_password
from model import kinds
from model.records import (
    ADMINISTRATOR,
    Cover,
    FormerEmail,
    Grant,
    Passkey,
    RecoveryCodes,
    Session,
    Suspension,
    now_ms,
    sha256,
)
from model.site_records import Logo, Look, Note, OpenIdKey, Report, Webhook
from storage import open_storage
from storage.whole import archive

ROOT = Path(__file__).resolve().parent.parent
PASSWORD = "correct horse battery staple"


def fill(store) -> dict[str, str | list[str]]:
    """Fill an empty installation; return the facts that its records do not tell."""
    users, hashed = store.users, hash_password(PASSWORD)
    invite, used_invite = store.invites.issue(36_500), store.invites.issue(36_500)
    users.register("Ada", "ada@example.org", hashed, ADMINISTRATOR, first=True)
    bob = users.register("Bob", "bob@example.org", hashed, invite=used_invite)
    cleo = users.register("Cleo", "cleo@example.org", hashed)
    gone = users.register("Gone", "gone@example.org", hashed)
    emile = replace(gone, id=9, name="Émile", email="emile@example.org", pfp_timestamp=None)
    users.reserve_ids(emile.id)
    users.insert(emile)
    users.delete(gone.id)
    users.rename(bob.id, "Bobby")
    game, secret = store.clients.register(
        "Space Game", ["https://space.example/"], bob.id, game_url="https://space.example/play"
    )
    public, _ = store.clients.register("Phone", ["http://127.0.0.1/"], None, public=True)
    with store.clients.edit(game.id) as edited:
        edited.listed = True
    with users.edit(bob.id) as user:
        user.grants = {game.id: Grant(secrets.token_urlsafe(12), ["userinfo", "email"], now_ms())}
        user.sessions = [Session(secrets.token_urlsafe(16), now_ms(), "Firefox on Linux")]
    with users.edit(cleo.id) as user:
        user.suspension = Suspension(1, now_ms(), "Spam", None)
    store.audit.write("user suspend", by=1, user=cleo.id)
    store.keys.rotate(drop_old=False)
    handle = store.handles.of(gone)
    store.openid_keys.add(OpenIdKey("k" * 43, "a modulus", "a private half", 0, 10**14))
    now, end = now_ms(), 10**14
    site_records = {
        kinds.PASSKEYS: Passkey(sha256("c"), 1, "h", "c", "k", "id.example.org", "Phone", now),
        kinds.RECOVERY_CODES: RecoveryCodes(1, [sha256("a code")], now),
        kinds.FORMER_EMAILS: FormerEmail(sha256("old@example.org"), 1, end, now),
        kinds.COVERS: Cover(f"{game.id}-{now}", game.id, "AAAA", "AAAA"),
        kinds.REPORTS: Report(f"{now:015}-00000000", 1, f"user:{cleo.id}", "spam", "", now, end),
        kinds.NOTES: Note(f"{now:015}-00000000", cleo.id, 1, "Was warned.", now),
        kinds.LOOKS: Look("site", now, welcome="Hello", accent="#7a3fb0", logo=now),
        kinds.LOGOS: Logo(now, "AAAA"),
        kinds.WEBHOOKS: Webhook("chat", now, "https://chat.example/1", "json", ["player"]),
    }
    for kind, record in site_records.items():
        store.records(kind).add(record)
    facts = {"password": PASSWORD, "invite": invite, "used_invite": used_invite}
    facts["kinds"] = [kind.name for kind in site_records]
    return facts | {"game": game.id, "secret": secret, "public": public.id, "handle": handle}


def main() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    target = ROOT / f"tests/installations/{setup['metadata']['version']}.tar.gz"
    with tempfile.TemporaryDirectory() as folder:
        store = open_storage(f"{folder}/instance", f"{folder}/pfp")
        Path(folder, "facts.json").write_text(json.dumps(fill(store), indent=2))
        archive.backup(store, f"{folder}/backup.tar.gz", "command")
        with tarfile.open(target, "w:gz") as packed:
            for path in Path(folder).iterdir():
                packed.add(path, path.name)
    print(f"{target.relative_to(ROOT)} is written. Run tests/flat_files/test_installations.py.")


if __name__ == "__main__":
    main()
