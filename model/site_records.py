"""The records of the site itself, and of its moderation; `model.kinds` has their keys and rules.

Times are integer milliseconds since 1970 UTC.
"""

from dataclasses import dataclass, field

from model.records import added


@dataclass(slots=True)
class Invite:
    """An invitation to create accounts."""

    id: str  # of one that an earlier version made, its SHA-256
    expires: int  # when this record goes
    secret: str = ""  # the SHA-256 of the invitation; "": it is the id
    good_until: int = 0  # 0: until `expires`
    uses: int = 1  # how many accounts
    used_by: list[int] = field(default_factory=list)  # ids that were given to accounts
    note: str = ""  # for whom, for administrators
    flair: str = ""  # that the new players get; "": none
    by: int | str | None = None  # a user id or "command"; None: unknown
    created: int = 0
    revoked: int = 0  # when; 0: it is not
    names_inviter: bool = added(False)  # its page says by whom it is

    @property
    def ends(self) -> int:
        """When it stopped, or stops, being good."""
        return self.revoked or self.good_until or self.expires


@dataclass(slots=True)
class Report:
    """What a player told the moderators of another player or of a game."""

    id: str  # the time, and random letters: ids are in the order in which reports came
    by: int
    about: str  # "user:" and a user id, or "client:" and a client id
    reason: str  # one of REPORT_REASONS
    text: str
    created: int
    expires: int
    answer: str | None = None  # of a moderator, for moderators; None: it waits for one
    answered_by: int | None = None
    answered: int | None = None


@dataclass(slots=True)
class Note:
    """What a moderator wrote about a player, for moderators, or as a warning to the player."""

    id: str
    user_id: int
    by: int
    text: str
    created: int
    warns: bool = added(False)
    confirmed: int = added(0)  # when the player confirmed the warning; 0: not yet


@dataclass(slots=True)
class Look:
    """What administrators changed of the pages; None and "" leave it to the settings."""

    id: str
    changed: int
    welcome: str | None = None
    contact: str | None = None
    accent: str = ""  # "#7a3fb0"
    logo: int | None = None  # the id of a Logo
    name: str = added("")
    announcement: str = added("")  # to all players
    announced: int = added(0)  # when
    announced_until: int = added(0)
    terms: int = added(0)  # the version of the text "terms"; 0: there are none
    terms_from: int = added(0)  # when this version counts
    terms_asked: int = added(0)  # the oldest version that players may have agreed to; 0: any
    shows_privacy: bool = added(False)  # each page links the one about privacy
    refuses_throwaway: bool = added(False)  # addresses of the domains that a library lists
    only_allowed: bool = added(False)  # joins, by the domain of the address in the text "allowed"
    lists_changed: int = added(0)  # when a list of domains was; 0: there is none
    minimum_age: int = added(0)  # years; 0: nobody is asked
    admits_younger: bool = added(False)  # with the flag `User.underage`


@dataclass(slots=True)
class Logo:
    """The logo of the site."""

    id: int  # when it was uploaded
    image: str  # a webp file in Base64


@dataclass(slots=True)
class OpenIdKey:
    """A key that signs ID tokens with RS256 (RFC 7518 3.3), or the public half of an old one."""

    id: str  # the `kid`: the thumbprint of the public key (RFC 7638)
    modulus: str  # RFC 7518 6.3.1.1; the exponent is 65537
    private_key: str  # PKCS #8 in Base64; "" once it has been replaced
    signs_from: int
    expires: int  # until then programs may verify with it

    @property
    def jwk(self) -> dict[str, str]:
        """The public key for `/oauth/keys` (RFC 7517 4)."""
        usage = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": self.id}
        return usage | {"n": self.modulus, "e": "AQAB"}


@dataclass(slots=True)
class Webhook:
    """Where the community's chat is told what happens."""

    id: str
    changed: int
    url: str  # a credential
    format: str  # "discord" or "json"
    events: list[str]
    key: str = ""  # that signs messages of the format json


@dataclass(slots=True)
class Message:
    """A message that waits to be sent."""

    id: str  # ids are in the order in which messages came
    channel: str  # "chat", "mail" or "logout"
    event: str  # what it tells of; of a letter, its kind
    body: str  # of a letter, all of it with its headers; "": it is composed as it is sent
    created: int
    expires: int  # when this record goes
    tries: int = 0
    pauses: int = 0  # how often the channel was paused after this message was tried
    due: int = 0  # when it is tried next
    problem: str = ""  # of the last try
    given_up: int = 0  # when; 0: it is not
    claimed: int = 0  # until when a sender has it, by the clock of the storage
    to: str = ""  # the email address of a letter, or the id of an app
    browser: str = ""  # that asked for the link in a letter: the hash of a secret that it keeps
    good_until: int = 0  # when the link in a letter ends; 0: it has none
    language: str = added("")  # of the page that asked for a letter


@dataclass(slots=True)
class State:
    """How the last run of something ended, or when it last happened."""

    # "backup"; "unconfirmed" (see mail_channel.py); "address" and "network" (see networks.py);
    # "clockmail" and "clockchat" (see clock.py); "checklist" (its act)
    id: str
    time: int  # of the last success or event; 0: none
    problem: str = ""  # of a later failure, or what was received or found: a text for its module
    times: list[int] = field(default_factory=list)  # of the last events
