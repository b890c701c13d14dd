"""The records of players and apps; `model.kinds` has the keys and rules of all records.

Times are integer milliseconds since 1970 UTC unless a name says otherwise.
"""

import hashlib
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass, field

from model import rules
from model.words import dump_words, plain

CLOCK_TOLERANCE = 60  # seconds by which the clocks of two machines may differ
GRANTS_KEPT = 200  # of one user; each look-up reads all of them
TEST_KEPT = 900_000  # milliseconds: by then the code and the token of a test have expired
NOTICES_KEPT = 5  # of one kind, of one user
OFFLINE = "offline_access"  # the scope of refresh tokens (OpenID Connect Core 11)
PLAYER, MODERATOR, ADMINISTRATOR = 0, 1, 2  # User.mod_level
COVER_SIZES = {"small": (320, 200), "large": (640, 400)}  # pixels
PICTURE_SIZES = {"large": 256, "medium": 64, "small": 16}  # pixels along each side


def now_ms() -> int:
    """Return the time in milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000


def sha256(text: str) -> str:
    """Return the SHA-256 in hex: stored in place of a secret, or as a safe file name."""
    return hashlib.sha256(text.encode()).hexdigest()


def added(default: object = MISSING, factory: object = MISSING):
    """Return a field stored only with a value: programs from before it refuse records with it."""
    return field(default=default, default_factory=factory, metadata={"added": True})


def sid_of(entry_id: str) -> str:
    """Return what ID tokens call a session or a family of this id, which it does not tell."""
    return sha256(f"sid {entry_id}")[:32]


@dataclass(slots=True)
class Grant:
    """A player's consent to one client (RFC 6749 1.3). Tokens name the grant by its id."""

    id: str
    scope: list[str]  # remembered; empty for a test of the app, which is not
    since: int
    played: int = added(0)  # when the player was last here in the client's game; 0: never
    hidden: bool = added(False)  # the profile does not show that the player played it
    families: list[str] = added(factory=list)  # the ids of those that count, oldest first

    def end_tokens(self) -> None:
        """Revoke the grant's codes and access tokens by a new id. The consent itself stays."""
        self.id = secrets.token_urlsafe(12)

    def end_family(self, family_id: str) -> None:
        """End one sign-in of the app, if it counts, and all access tokens with it."""
        if family_id in self.families:
            self.families.remove(family_id)
            self.end_tokens()


@dataclass(slots=True)
class Session:
    """One signed-in browser."""

    id: str
    since: int
    browser: str  # for people: "Firefox on Linux"
    used: int = added(0)  # the last use, or up to an hour before it; 0: unknown
    address: str | None = added(None)  # of that use, as `client_address` returns it
    first_id: str = added("")  # of the session that this one continues, for an app; "": none

    @property
    def sid(self) -> str:
        """What ID tokens call it; it stays when an app asks for the password again."""
        return sid_of(self.first_id or self.id)


@dataclass(slots=True)
class Suspension:
    """Why a player cannot sign in, and until when."""

    by: int | str | None  # a user id or "command"; None: unknown, of an imported player
    since: int = field(default_factory=now_ms)
    reason: str = ""
    until: int | None = None  # None: until somebody lifts it
    networks: dict[str, int] = added(factory=dict)  # of sessions that it ended, and when


@dataclass(slots=True)
class Notice:
    """What somebody did to a player's name, app or report, in a text that is read once."""

    text: str  # in English
    since: int = field(default_factory=now_ms)
    kind: str = added("")  # of the letter that says the same, "" without one
    words: str = added("")  # the text as `model.words.dump_words` returns it, to be translated


def picture_file_of(user_id: int, timestamp: int | None) -> str:
    """Return the file name of a picture; an imported account may have no timestamp."""
    return f"{user_id}.webp" if timestamp is None else f"{user_id}-{timestamp}.webp"


@dataclass(slots=True)
class User:
    """One player, and everything the server knows about them."""

    id: int
    name: str
    email: str  # "" for none
    password_hash: str
    mod_level: int = PLAYER
    suspension: Suspension | None = None  # it may have ended
    bio: str = ""
    flairs: list[str] = field(default_factory=lambda: ["none"])
    equipped_flair: str = "none"
    play_ms: int = 0
    last_heartbeat: int = 0
    pfp_timestamp: int | None = None  # None: an imported account that never changed its picture
    created: int = field(default_factory=now_ms)
    grants: dict[str, Grant] = field(default_factory=dict)  # by client id
    sessions: list[Session] = field(default_factory=list)  # oldest first
    notices: list[Notice] = field(default_factory=list)  # oldest first
    invite: str | None = None  # the id of the invitation that the account was made with
    unlisted: bool = added(False)  # not in the list of players
    hides_game: bool = added(False)  # others do not see which game the player is in
    last_game: str | None = added(None)  # the client id that the last heartbeat named
    invited_by: int | str | None = added(None)  # a user id or "command"
    last_sign_in: int = added(0)  # 0: unknown
    email_verified: bool = added(False)  # the player confirmed the address; a new one has to be
    quiet_sign_ins: bool = added(False)  # of 1.1.0, which had no `muted`: it had "sign-in" alone
    muted: list[str] = added(factory=list)  # the kinds of letters that the player turned off
    warning: str | None = added(None)  # the id of a note that the pages show until it is confirmed
    dismissed: int = added(0)  # when an announcement was made that the player hid
    language: str = added("")  # of pages and letters, from LANGUAGES; "": as the browser asks
    pfp_generated: bool = added(False)  # the picture is drawn when it is asked for, and not stored
    agreed: dict[str, int] = added(factory=dict)  # when, by "terms 2" or "age 16"
    underage: bool = added(False)  # younger than the site asks for: no app learns of the player
    application: str = added("")  # the id of the application that a moderator approved
    came_alone: bool = added(False)  # by an open sign-up: it ends if it stays unconfirmed, unused

    @property
    def logins(self) -> list[str]:
        """What the user can sign in with: the name, and the email address if there is one."""
        return [self.name, self.email] if self.email else [self.name]

    @property
    def has_played(self) -> bool:
        """True if a game was open since the sign-up, which counts as the first heartbeat."""
        return self.last_heartbeat not in (0, self.created)

    @property
    def suspended(self) -> bool:
        """True while a suspension lasts."""
        suspension = self.suspension
        return suspension is not None and (suspension.until is None or now_ms() < suspension.until)

    @property
    def administers(self) -> bool:
        """True for an administrator who can sign in."""
        return self.mod_level == ADMINISTRATOR and not self.suspended

    @property
    def may_administer(self) -> bool:
        """True for an administrator, unless suspended until somebody lifts that."""
        can_return = self.suspension is None or self.suspension.until is not None
        return self.mod_level == ADMINISTRATOR and can_return

    @property
    def groups(self) -> list[str]:
        """The groups of the player: by mod level, and one for each flair but that of everybody."""
        flairs = (f"flair:{flair}" for flair in self.flairs if flair != "none")
        return [*rules.GROUPS[: self.mod_level + 1], *flairs]

    def notify(self, text: str, kind: str = "") -> None:
        """Add a notice with a later time than the others, and keep the newest NOTICES_KEPT.

        Those of a kind push out no other: a moderator could hide what somebody did to the account.
        """
        others = [each for each in self.notices if each.text != text]
        dropped = [each for each in others if each.kind == kind][: 1 - NOTICES_KEPT]
        kept = [each for each in others if each not in dropped]
        since = max([now_ms(), *(each.since + 1 for each in self.notices)])
        self.notices = [*kept, Notice(plain(text), since, kind, dump_words(text))]

    @property
    def consents(self) -> dict[str, Grant]:
        """The grants that the player gave to be remembered, by client id."""
        return {client_id: grant for client_id, grant in self.grants.items() if grant.scope}

    @property
    def families(self) -> set[str]:
        """The ids of the families of refresh tokens that count."""
        return {each for grant in self.grants.values() for each in grant.families}

    @property
    def sign_ins(self) -> set[str]:
        """The ids of where the player is signed in: sessions of browsers, and families of apps."""
        return {each.id for each in self.sessions} | self.families

    def forget_sign_ins(self) -> None:
        """Drop what is in no backup: where the player is signed in, also by apps."""
        self.sessions = []
        for grant in self.grants.values():
            grant.families = []

    def end_app_sessions(self, client_ids: Iterable[str]) -> None:
        """End where these apps keep the player signed in, and where they are about to.

        A code that was not exchanged yet ends as well: otherwise it would bring a family back.
        """
        for grant in map(self.grants.get, client_ids):
            if OFFLINE in grant.scope:
                grant.families = []
                grant.end_tokens()

    def keep_grants(self, exists: Callable[[str], bool]) -> None:
        """Keep the newest GRANTS_KEPT grants of the clients that exist; drop those of old tests."""
        now = now_ms()
        grants = [
            (name, grant)
            for name, grant in self.grants.items()
            if exists(name) and (grant.scope or now - grant.since < TEST_KEPT)
        ]
        # A time in the future is from before the clock was set back; the last added is the newest.
        latest = max((grant.since for _, grant in grants if grant.since <= now), default=now)
        grants.sort(key=lambda item: min(item[1].since, latest))
        newest = dict(grants[-GRANTS_KEPT:])
        self.grants = {name: grant for name, grant in self.grants.items() if name in newest}

    @property
    def picture_file(self) -> str:
        """The file name of the picture, in the folder of each size."""
        return picture_file_of(self.id, self.pfp_timestamp)


@dataclass(slots=True)
class Client:
    """An app that asks who a player is (RFC 6749 2)."""

    id: str
    name: str
    secret_sha256: str  # of 256 random bits, so it needs no slow hash; "" for a public client
    redirect_uris: list[str]
    owner_id: int | None = None  # None: the administrators
    disabled: bool = False
    created: int = field(default_factory=now_ms)
    game_url: str | None = None  # of a game that is played on this site
    description: str = ""
    listed: bool = False  # on the home page
    disabled_by: int | str | None = None  # a user id or "command"
    public: bool = False  # RFC 6749 2.1: it runs where no secret can be kept, and has none
    require_pkce: bool = False  # of a confidential client; a public one always has to
    no_email: bool = False  # the email scope is ignored, whoever adds it to a request
    post_logout_redirect_uris: list[str] = added(factory=list)  # of OpenID Connect
    only_groups: list[str] = added(factory=list)  # [] for everybody
    cover: int | None = added(None)  # when the cover was uploaded; None: it is generated
    used: int = added(0)  # the last sign-in there, to the hour; 0: none yet
    declined: bool = added(False)  # a moderator looked at the game, and left it unlisted
    device: bool = added(False)  # of a public client: it signs in on another device (RFC 8628)
    tags: list[str] = added(factory=list)  # of its game, from TAGS in `model.client_rules`
    backchannel_logout_uri: str = added("")  # of OpenID Connect Back-Channel Logout; "": none
    epoch: str = added("")  # another one at each time the app is disabled: families before it end

    @property
    def cover_id(self) -> str | None:
        """The id of the uploaded cover; None if it is generated."""
        return None if self.cover is None else f"{self.id}-{self.cover}"

    @property
    def needs_challenge(self) -> bool:
        """True if no code is issued to this client without a PKCE challenge."""
        return self.public or self.require_pkce

    def admits(self, user: User) -> bool:
        """Return True if this player may sign in to the app."""
        if user.underage:
            return False
        return not self.only_groups or not set(self.only_groups).isdisjoint(user.groups)

    @property
    def is_game(self) -> bool:
        """True for a client with a game URL, unless it breaks the rule after an edit by hand."""
        return self.game_url is not None and rules.check_game_url(self.game_url) is None

    @property
    def game_origin(self) -> str | None:
        """The origin that no other client's game may have; None without a game.

        None also for a loopback address, which is another place on each developer's device.
        """
        is_unique = self.is_game and rules.is_on_the_web(self.game_url)
        return rules.origin_of(self.game_url) if is_unique else None

    def replace_secret(self) -> str:
        """Give a confidential client a new secret, and return it."""
        secret = secrets.token_urlsafe(32)
        self.secret_sha256 = sha256(secret)
        return secret

    def accepts_redirect_uri(self, uri: str) -> bool:
        """Return True for a registered URI; a loopback address may have any port (RFC 8252)."""
        # The rule again: a record may have been edited by hand, and the port may be out of range.
        if rules.check_redirect_uri(uri, self.public):
            return False
        registered = map(rules.without_loopback_port, self.redirect_uris)
        return rules.without_loopback_port(uri) in registered

    def choose_redirect_uri(self, received: str | None) -> str | None:
        """Return the redirect URI of an authorization request, None if it has no registered one.

        A request that names none gets the only one that is registered (RFC 6749 3.1.2.3).
        """
        uri = received or (self.redirect_uris[0] if len(self.redirect_uris) == 1 else None)
        return uri if uri and self.accepts_redirect_uri(uri) else None

    def remembers_consent(self, redirect_uri: str) -> bool:
        """Return True if consent is remembered, as only this client can receive the redirect.

        RFC 8252 8.6: any program of the device can listen at a loopback address, or register a
        private-use scheme, and use the id of a public client.
        """
        return not self.public or rules.is_on_the_web(redirect_uri)


@dataclass(slots=True)
class FormerName:
    """A name that a player gave up, which nobody else gets for a while."""

    id: str  # the SHA-256 of the name's unique key
    user_id: int  # of a player who may have left
    expires: int


@dataclass(slots=True)
class FormerEmail:
    """A confirmed address that was replaced, which nobody else gets for a while."""

    id: str  # the SHA-256 of the address's unique key
    user_id: int
    expires: int
    since: int  # when it was replaced first: whoever had it comes before those who came later


@dataclass(slots=True)
class Cover:
    """The uploaded cover of an app: webp files in Base64, by `COVER_SIZES`."""

    id: str  # the client id, "-" and the time of the upload, which is `Client.cover`
    client_id: str
    small: str
    large: str


@dataclass(slots=True)
class Handle:
    """A name that programs know a player by. It never changes and is never given to another."""

    id: str  # the handle
    user_id: int  # of a player who may have left


@dataclass(slots=True)
class Passkey:
    """A player's public key (W3C Web Authentication Level 3, 4). Bytes: base64url, unpadded."""

    id: str  # the SHA-256 of the credential id
    user_id: int
    handle: str  # WebAuthn's `user.id`: 32 random bytes, the same for all passkeys of a player
    credential_id: str
    public_key: str  # a COSE key (RFC 9052 7)
    rp_id: str  # the host that it is for, where no other host can use it
    name: str  # for the player
    created: int
    counter: int = 0  # of signatures; synced passkeys do not count
    used: int = added(0)  # the last sign-in; 0: none yet
    synced: bool = False  # other devices of the player have it, too
    transports: list[str] = field(default_factory=list)  # how a browser reaches the authenticator


@dataclass(slots=True)
class RecoveryCodes:
    """The recovery codes of a player, each good for one sign-in."""

    id: int  # of the player
    hashes: list[str]  # the SHA-256 of each unused code
    created: int


@dataclass(slots=True)
class Attempt:
    """One counted attempt, for `Attempts.refund`."""

    place: str  # by which the backend finds it
