"""The records of who may come in: applications, texts, bans of networks.

Times are integer milliseconds since 1970 UTC.
"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Application:
    """A sign-up that waits for a moderator. It is no player: it has no id of one, and no rights."""

    id: str  # the time, and random letters: ids are in the order in which applications came
    name: str
    email: str  # "" for none
    password_hash: str
    created: int
    expires: int
    text: str = ""  # for moderators: how the person found the site
    address: str | None = None  # as `client_address` returns it
    email_verified: bool = False
    language: str = ""  # of the page
    agreed: dict[str, int] = field(default_factory=dict)  # as `User.agreed`
    underage: bool = False
    changed: int = 0  # when the person wrote what it says
    approved: int = 0  # when an account began to be made of it, which ends it
    declined: int = 0  # when; what it said is gone then, but for the name and the password
    reason: str = ""  # of the moderator who declined it


@dataclass(slots=True)
class Text:
    """A text of administrators, by its id: "terms", "privacy", or "refused" and "allowed" domains.

    Each domain is on a line of its own.
    """

    id: str
    text: str
    version: int = 0  # of the terms


@dataclass(slots=True)
class NetworkBan:
    """A network from which for a while nobody signs up, nor signs in with a new account."""

    network: str  # "192.0.2.0/24"
    since: int
    until: int
    by: int | str  # a user id or "command"
    reason: str = ""
    waits: bool = False  # who signs up there waits for a moderator, and is not refused
    reach: int = 0  # days before `since`: accounts of that time are refused, too


@dataclass(slots=True)
class NetworkBans:
    """All bans of networks."""

    id: str
    bans: list[NetworkBan] = field(default_factory=list)
