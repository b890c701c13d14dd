"""The export of an account: everything that the server keeps about a player, as JSON.

The audit log has no largest size, so its lines are a stream: memory use is that of a few lines.
"""

import base64
import json
from collections.abc import Iterator
from dataclasses import is_dataclass
from logging import Logger

from model.errors import DamagedRecord, NoSuchPicture, StorageFailed
from model.kinds import FORMER_NAMES, PASSKEYS, RECOVERY_CODES, REPORTS
from model.records import Client, FormerName, Grant, Notice, Passkey, Session, Suspension, User
from model.site_records import Report
from storage import Storage

EXPORTS_AN_HOUR = 10  # of one player
PART_LENGTH = 2**14  # characters
# By record, in the order of the export. A new field is not exported until it is named here: it may
# be a credential, or tell of somebody else, as the moderators in `by` and `disabled_by`.
EXPORTED = {
    User: "id name email mod_level suspension bio flairs equipped_flair play_ms last_heartbeat"
    " pfp_timestamp created grants sessions notices unlisted hides_game last_game"
    " invited_by last_sign_in email_verified quiet_sign_ins muted dismissed language"
    " pfp_generated agreed underage",
    Suspension: "since reason until networks",
    Grant: "scope since played hidden",
    Session: "since browser used address",
    Notice: "text since kind",
    Client: "id name redirect_uris owner_id disabled created game_url description listed public"
    " require_pkce no_email post_logout_redirect_uris only_groups cover"
    " used declined device tags backchannel_logout_uri",
    FormerName: "expires",  # only the hash of the name is kept
    Report: "about reason text created expires",
    Passkey: "name created used synced",
}


def export_account(store: Storage, player: User, logger: Logger) -> Iterator[bytes]:
    """Return the parts of the export, without credentials.

    All but the audit log is read now. The iterator needs no request and holds no lock. `logger`
    gets the error that ends the audit lines early.
    """
    owned = store.clients.of_owner(player.id)
    record = exported(player)
    record["handle"] = store.handles.find_of(player.id)
    record["clients"] = exported(owned)
    for kind, index in ((FORMER_NAMES, "player"), (REPORTS, "by"), (PASSKEYS, "user")):
        record[kind.name] = exported(store.records(kind).page(index, str(player.id)))
    codes = store.records(RECOVERY_CODES).find(player.id)
    record["recovery_codes_left"] = len(codes.hashes) if codes else 0
    record["picture"] = picture_data_url(store, player)
    return encode_export(record, own_audit_lines(store, player.id, owned), logger)


def exported(value: object) -> object:
    """Return a value of a record as `json.dumps` takes it; of records, the fields in EXPORTED."""
    if isinstance(value, list):
        return [exported(each) for each in value]
    if isinstance(value, dict):
        return {key: exported(each) for key, each in value.items()}
    if not is_dataclass(value):
        return value
    return {name: exported(getattr(value, name)) for name in EXPORTED[type(value)].split()}


def picture_data_url(store: Storage, player: User) -> str | None:
    """Return the large picture as a data URL, or None if it is missing or has just changed."""
    try:
        content, _ = store.pictures.read("large", player.picture_file)
    except NoSuchPicture:
        return None
    return f"data:image/webp;base64,{base64.b64encode(content).decode()}"


def own_audit_lines(store: Storage, player_id: int, clients: list[Client]) -> Iterator[dict]:
    """Yield the audit lines by or about the player and their clients, newest first.

    In lines about acts of others the actor and the address are left out. Raises DamagedRecord,
    StorageFailed.
    """
    for line in store.audit.about({player_id, *(each.id for each in clients)}):
        if line.get("by") != player_id:
            line.pop("by", None)
            line.pop("address", None)
        yield line


def encode_export(record: dict, lines: Iterator[dict], logger: Logger) -> Iterator[bytes]:
    """Yield one JSON object: the record, `audit`, and `auditComplete`, False if reading failed."""
    start = json.dumps(record, indent=2, ensure_ascii=False)
    yield start.removesuffix("\n}").encode() + b',\n  "audit": ['
    complete, separator, part = True, "", ""
    try:
        for line in lines:
            part += f"{separator}\n    {json.dumps(line, ensure_ascii=False)}"
            separator = ","
            if len(part) > PART_LENGTH:
                yield part.encode()
                part = ""
    except (DamagedRecord, StorageFailed) as error:
        logger.error("%s", error)
        complete = False
    yield f'{part}\n  ],\n  "auditComplete": {json.dumps(complete)}\n}}\n'.encode()
