"""Acts on bans of networks, whom these hit, and who used a network lately.

The acts raise NotAllowed, StorageFailed, InvalidField, TooManyAttempts.
"""

import contextlib
import itertools
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from ipaddress import ip_network
from socket import AF_INET, AF_INET6, inet_pton

from identity.acts.actors import Authority, NotAllowed
from identity.acts.rights import may_admit, may_moderate
from identity.site.formatting import add_reason, format_date
from identity.site.pasted import drop_unseen
from model.door_records import NetworkBan, NetworkBans
from model.errors import AlreadyThere, InvalidField
from model.kind import DAY_MS, day_of
from model.kinds import NETWORK_BANS
from model.records import User, now_ms
from model.rules import SHORT_TEXT_LENGTH, check_line, refuse
from model.words import Words, say
from storage import Storage
from storage.audit_lines import decode_line

BANS_ID = "site"
MOST_BANS, MOST_DAYS, MOST_REACH = 1000, 90, 30
SIZES = {4: (16, 32), 6: (32, 64)}  # of networks that are banned, by the version of addresses
# Of this machine and this link: no client has such an address.
NEVER_BANNED = ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "::/64", "fe80::/10")
NO_SIGN_UP = say("Nobody can join from your network until %(date)s.")
NO_SIGN_IN = say("New accounts can't sign in from your network until %(date)s.")
NETWORKS_KEPT = 20  # of a suspended player
LOOKS = 30  # of one moderator in half an hour: each reads so many records and lines
ACCOUNTS_READ, LINES_READ, READ_AT_ONCE = 10_000, 50_000, 500  # about a second of work
LOOKED_AT = say(
    "Only the newest %(accounts)s accounts and the last %(lines)s lines of the log were looked at.",
    accounts=ACCOUNTS_READ,
    lines=LINES_READ,
)


class NetworkTable:
    """Values of networks, found by an address in a microsecond, however many there are."""

    def __init__(self, values: Iterable[tuple[str, object]]) -> None:
        rows = []
        for text, value in values:
            with contextlib.suppress(ValueError):  # edited by hand
                network = ip_network(text)
                first = int(network.network_address) + (2**128 if network.version == 4 else 0)
                rows.append((first, first + network.num_addresses, value))
        self._bounds = sorted({bound for row in rows for bound in row[:2]})
        self._found: list[list] = [[] for _ in range(len(self._bounds) + 1)]  # between two bounds
        for first, end, value in rows:
            for n in range(bisect_right(self._bounds, first), bisect_right(self._bounds, end)):
                self._found[n].append(value)

    def find(self, address: str) -> list:
        """Return the values of all networks that have an address, none for text that is none."""
        return self._found[bisect_right(self._bounds, _number_of(address))]


def _number_of(address: str) -> int:
    """Return a number for an address, IPv4 behind all of IPv6; -1 for text that is none."""
    try:
        if ":" in address:
            return int.from_bytes(inet_pton(AF_INET6, address))
        return 2**128 + int.from_bytes(inet_pton(AF_INET, address))
    except (OSError, ValueError):
        return -1


# -- whom bans hit ------------------------------------------------------------------------------

_built: tuple[NetworkBans | None, NetworkTable] = None, NetworkTable(())


def find_bans(store: Storage, address: str) -> list[NetworkBan]:
    """Return the bans that last of networks with this address, which `client_address` returned."""
    global _built  # noqa: PLW0603 - the table of the last record: one object until it changes
    kept, built = store.records(NETWORK_BANS).find(BANS_ID), _built
    if kept is None:
        return []
    if built[0] is not kept:
        _built = built = kept, NetworkTable((each.network, each) for each in kept.bans)
    return [each for each in built[1].find(address) if each.until > now_ms()]


def must_wait(store: Storage, address: str) -> bool:
    """Return True if a ban lets sign-ups from this address wait. Raises NotAllowed for others."""
    bans = find_bans(store, address)
    _require_none(NO_SIGN_UP, [each for each in bans if not each.waits])
    return bool(bans)


def require_unbanned(store: Storage, user: User, address: str) -> None:
    """Raise NotAllowed if a ban hits a player who signs in from this address."""
    if may_admit(user):  # also if the list is damaged
        return
    _require_none(NO_SIGN_IN, [each for each in find_bans(store, address) if is_hit(user, each)])


def _require_none(text: Words, bans: list[NetworkBan]) -> None:
    if bans:
        last = max(bans, key=lambda each: each.until)
        raise NotAllowed(add_reason(text.fill(date=format_date(last.until)), last.reason))


def is_hit(user: User, ban: NetworkBan) -> bool:
    """Return True if a ban keeps out this player, who is no moderator and was not let in later."""
    is_let_in = bool(user.application) and user.created > ban.since
    is_new = user.created > ban.since - ban.reach * DAY_MS
    return is_new and not is_let_in and not may_admit(user)


# -- acts ---------------------------------------------------------------------------------------


def read_network(text: str, kept_out: Iterable[str]) -> str:
    """Return the network that a moderator typed, in its one form. Raises InvalidField.

    An address is the network of itself, or its /64. `kept_out` are addresses that it may not have.
    """
    try:
        network = ip_network("".join(drop_unseen(text).split()), strict=False)
    except ValueError as error:
        problem = say("Type an address like 192.0.2.7, or a network like 192.0.2.0/24.")
        raise InvalidField("network", problem) from error
    largest, smallest = SIZES[network.version]
    if network.prefixlen < largest:
        problem = say("This network is too large. /16 is the largest, and /32 for IPv6.")
        raise InvalidField("network", problem)
    network = network.supernet(new_prefix=min(network.prefixlen, smallest))
    is_own = any(map(NetworkTable([(str(network), True)]).find, kept_out))
    if is_own or any(network.overlaps(ip_network(each)) for each in NEVER_BANNED):
        raise InvalidField("network", say("This network has your own address or the server's."))
    return str(network)


def new_ban(
    by: Authority, text: str, days: int, reach: int, reason: str, waits: bool, proxies: list[str]
) -> NetworkBan:
    """Return the ban of the network in a text from now on, but of none with one's own address."""
    by.require(may_admit)
    network = read_network(text, [by.actor.address or "", *proxies])
    if not 1 <= days <= MOST_DAYS:
        raise InvalidField("days", say("Choose 1 to %(most)s days.", most=MOST_DAYS))
    if not 0 <= reach <= MOST_REACH:
        raise InvalidField("reach", say("Choose 0 to %(most)s days.", most=MOST_REACH))
    refuse("reason", check_line(reason, SHORT_TEXT_LENGTH))
    now = now_ms()
    return NetworkBan(network, now, now + days * DAY_MS, by.actor.id, reason, waits, reach)


def ban(by: Authority, new: NetworkBan) -> None:
    with _editing(by) as kept:
        if any(each.network == new.network for each in kept.bans):
            problem = say("This network is banned already. Lift that ban first.")
            raise InvalidField("network", problem)
        if len(kept.bans) >= MOST_BANS:
            raise InvalidField("network", say("There are too many bans. Lift an old one first."))
        by.audit("network ban", address=new.network)  # it is forgotten like addresses
        kept.bans.insert(0, new)


def lift(by: Authority, network: str) -> None:
    """Lift the ban of a network; one that has ended is no error."""
    with _editing(by) as kept:
        others = [each for each in kept.bans if each.network != network]
        if others != kept.bans:
            by.audit("network unban", address=network)
        kept.bans = others


@contextlib.contextmanager
def _editing(by: Authority) -> Iterator[NetworkBans]:
    """`with _editing(by) as kept:` change the bans, without those that have ended."""
    by.require(may_admit)
    bans = by.store.records(NETWORK_BANS)
    with contextlib.suppress(AlreadyThere):
        bans.add(NetworkBans(BANS_ID))
    with bans.edit(BANS_ID) as kept:
        by.require(may_admit)
        kept.bans = lasting(kept)
        yield kept


def current_bans(store: Storage) -> list[NetworkBan]:
    """Return the bans that last, the newest first."""
    kept = store.records(NETWORK_BANS).find(BANS_ID)
    return lasting(kept) if kept else []


def lasting(kept: NetworkBans) -> list[NetworkBan]:
    return [each for each in kept.bans if each.until > now_ms()]


def drop_ended(store: Storage) -> None:
    """Remove the bans that have ended: of an address, nobody is to know longer."""
    bans = store.records(NETWORK_BANS)
    kept = bans.find(BANS_ID)
    if kept and lasting(kept) != kept.bans:
        with bans.edit(BANS_ID) as kept:
            kept.bans = lasting(kept)


# -- who used a network -------------------------------------------------------------------------


def networks_to_keep(user: User) -> dict[str, int]:
    """Return the networks of a player's sessions, the last first, and those of a suspension.

    With each comes when its sessions ended, which is now for open ones.
    """
    last_first = sorted(user.sessions, key=lambda each: -max(each.used, each.since))
    ended = dict.fromkeys((each.address for each in last_first if each.address), now_ms())
    before = user.suspension.networks if user.suspension else {}
    known = ended | {each: time for each, time in before.items() if each not in ended}
    return dict(itertools.islice(known.items(), NETWORKS_KEPT))


def count_hit(by: Authority, new: NetworkBan) -> tuple[int, int]:
    """Return how many accounts used a network lately, and how many of them a ban of it hits."""
    hit = [is_hit(user, new) for user in _find_accounts(by, [new.network])]
    return len(hit), sum(hit)


def accounts_beside(by: Authority, user_id: int) -> tuple[list[User], list[str]]:
    """Return the other accounts of a player's networks, newest first, and these networks.

    Accounts that the actor may not moderate are left out.
    """
    user = by.store.users.read(user_id)
    by.require(may_moderate, user)
    networks = [*networks_to_keep(user)]
    found = [each for each in _find_accounts(by, networks) if each.id != user_id]
    return [each for each in found if by.has(may_moderate, each)], networks


def _find_accounts(by: Authority, networks: list[str]) -> Iterator[User]:
    """Yield those of the newest accounts that had a session or a sign-up in networks lately.

    Networks may be addresses as `client_address` returns them. It counts against LOOKS.
    """
    by.count_own("networks by", LOOKS)
    table, sign_ups = NetworkTable((each, True) for each in networks), _read_sign_ups(by.store)
    place = None
    for _ in range(ACCOUNTS_READ // READ_AT_ONCE):
        users = by.store.users.newest(READ_AT_ONCE, place)
        for user in users:
            used = {sign_ups.get(user.id, ""), *networks_to_keep(user)}
            if any(map(table.find, used)):
                yield user
        if len(users) < READ_AT_ONCE:
            return
        place = day_of(users[-1].created), users[-1].id


def _read_sign_ups(store: Storage) -> dict[int, str]:
    """Return the addresses of sign-ups in the last LINES_READ lines of the log, by user id."""
    found = {}
    for _, text in itertools.islice(store.audit.before(), LINES_READ):
        line = decode_line(text) if b'"user sign-up"' in text else None
        if line and type(line.get("user")) is int and type(line.get("address")) is str:
            found[line["user"]] = line["address"]
    return found
