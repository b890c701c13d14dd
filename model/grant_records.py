"""The records of what apps get from players: codes, requests of devices, and families of tokens.

Times are integer milliseconds since 1970 UTC.
"""

from dataclasses import dataclass, field

from model.records import added, now_ms


@dataclass(slots=True)
class AuthorizationCode:
    """The record of an authorization code (RFC 6749 4.1.2), or a player's answer to a device."""

    client_id: str
    user_id: int  # 0: the player refused a device
    grant_id: str
    scope: list[str]
    redirect_uri: str | None  # None: issued to a game or a device, which has none
    code_challenge: str | None  # RFC 7636, method S256
    issued: int = field(default_factory=now_ms)
    granted: str | None = added(None)  # scope; None: all that was asked for
    nonce: str | None = added(None)  # OpenID Connect Core 3.1.2.1; None without the scope openid
    auth_time: int | None = added(None)  # when the player signed in; None without it
    amr: list[str] = added(factory=list)  # how (RFC 8176); [] without it, or by a link
    sid: str = added("")  # of the browser, for the app to know it by (OpenID Connect)
    family: str = added("")  # the id of the family that the code may start; "": none
    device: str = added("")  # the browser of that family, for its player
    epoch: str = added("")  # of the client: a family of another one has ended


@dataclass(slots=True)
class DeviceRequest:
    """The record of a user code: a device waits for a player's answer (RFC 8628 3.1)."""

    client_id: str
    scope: list[str]
    device_id: str  # the answer is stored under it
    network: str  # where the device is, as `client_address` returns it; "": a page asked
    issued: int = field(default_factory=now_ms)
    granted: str | None = added(None)  # scope; None: all that was asked for
    tester: int | None = added(None)  # the user who tests the app: nobody else answers


@dataclass(slots=True)
class Family:
    """One sign-in of an app: its refresh tokens, of which each follows from the one before.

    A token is the id, a full stop and a secret (RFC 9700 4.14). It counts only while a grant of its
    player names the family.
    """

    id: str
    user_id: int
    client_id: str
    epoch: str  # of the client, which has another one after it was disabled
    scope: list[str]
    granted: str  # the scope as the app knows it
    created: int
    expires: int
    salt: str  # with a secret it makes the next one
    current: str  # the SHA-256 of the newest secret
    previous: str = ""  # that of the one before, which still gives the newest; "": none
    used: int = 0  # the last use
    address: str = ""  # of that use, as `client_address` returns it
    device: str = ""  # the browser that allowed it: "Firefox on Linux"; "": another device
    sid: str = ""  # as in ID tokens
    auth_time: int | None = None  # when the player signed in; None without OpenID Connect
    amr: list[str] = field(default_factory=list)  # how (RFC 8176)
