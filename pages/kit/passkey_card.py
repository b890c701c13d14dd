"""What the pages show of passkeys and recovery codes, where they are offered."""

from identity.access.passkeys import find_rp_id, passkeys_of
from identity.access.recovery_codes import count_codes
from identity.http.context import base_url, get_storage
from identity.site.formatting import DATE, format_time
from model.records import User


def own_rp_id() -> str | None:
    """Return the host that this site's passkeys are bound to, None if it offers none."""
    return find_rp_id(base_url())


def passkey_card(player: User, codes: list[str] | None = None) -> dict | None:
    """Return the passkeys of a player as the page shows them, None where they are not offered.

    `codes` are new recovery codes, which no other page shows.
    """
    rp_id = own_rp_id()
    if rp_id is None:
        return None
    found = passkeys_of(get_storage(), player.id, rp_id)
    return {
        "passkeys": [
            {
                "id": each.id,
                "name": each.name,
                "synced": each.synced,
                "created": format_time(each.created, DATE),
                "used": format_time(each.used, DATE) if each.used else None,
            }
            for each in sorted(found, key=lambda passkey: passkey.created)
        ],
        "codes_left": count_codes(get_storage(), player.id),
        "codes": codes,
    }
