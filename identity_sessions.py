"""Signing keys, and who is signed in.

`serializer(purpose)` signs what leaves the server and must come back unchanged. A session is a
signed cookie that names a player and an entry in the player's record; taking the entry out ends the
session wherever the cookie was copied to. Passwords are guarded by limits on guessing, and every
post by a check that it comes from a page of this server.
"""

import functools
import hmac
import ipaddress
import json
import re
import secrets
import threading
import time
from datetime import timedelta

from flask import (
    Blueprint,
    Flask,
    Request,
    abort,
    current_app,
    g,
    redirect,
    render_template,
    request,
    session,
    url_for,
)
from flask.sessions import SecureCookieSession, SecureCookieSessionInterface
from itsdangerous import BadSignature, TimestampSigner, URLSafeTimedSerializer
from itsdangerous.encoding import base64_encode
from itsdangerous.signer import SigningAlgorithm
from werkzeug.exceptions import ServiceUnavailable
from werkzeug.security import check_password_hash, generate_password_hash
from werkzeug.wrappers import Response

from storage import (
    Attempt,
    DamagedRecord,
    NoSuchUser,
    Session,
    Storage,
    StorageError,
    StorageFailed,
    StorageFull,
    TooManyAttempts,
    User,
    claim_key,
    now_ms,
)
from storage.disk import sha256

SESSION_MAX_AGE = timedelta(days=14)
SESSIONS_KEPT = 20  # signed-in browsers of one player; the oldest goes first
PASSWORD_METHOD = "scrypt:32768:8:3"  # OWASP's; Werkzeug's own default is a third of it
# What a password is compared with where there is no player: the answer takes as long.
NOBODYS_HASH = f"{PASSWORD_METHOD}$0000000000000000${'0' * 128}"
# About a hundredth of that: what an older hash costs less is made up of these.
SMALL_HASH = f"scrypt:1024:8:1$0000000000000000${'0' * 128}"
HASHES_RUNNING = 2  # at a time in a worker; each takes 32 MiB and a third of a second
HASHES_WAITING = 2
PICTURES_RUNNING = 2  # at a time in a worker
PICTURES_WAITING = 2
GUESSES_AT_NAME = 10  # failures at a name from an address, in storage.ATTEMPTS_WINDOW
GUESSES_FROM_ADDRESS = 100  # failures from an address
BUSY_RETRY_AFTER = 2  # seconds
LINK_MAX_AGE = 3600  # seconds
# Programs post there from anywhere, with a secret of their own; no cookie is looked at.
CROSS_SITE_POSTS_ALLOWED = "/api/oauth/token"
# Load balancers and containers ask by address. It tells nothing of anybody, and reads no cookie.
ANY_HOST_ALLOWED = "/healthz"

sessions = Blueprint("sessions", __name__)


class Busy(ServiceUnavailable):
    """More is under way than this worker takes on; try again in BUSY_RETRY_AFTER seconds."""

    def __init__(self) -> None:
        super().__init__(retry_after=BUSY_RETRY_AFTER)


# ---------------------------------------------------------------------------------------------
# Keys
# ---------------------------------------------------------------------------------------------


def get_storage() -> Storage:
    """The storage of the app that handles this request."""
    return current_app.extensions["storage"]


class HMACSHA256(SigningAlgorithm):
    """itsdangerous' own HMAC, with SHA-256 for its SHA-1, in one call: a third of the cost."""

    def get_signature(self, key: bytes, value: bytes) -> bytes:
        return hmac.digest(key, value, "sha256")


class CompactJSON:
    """itsdangerous' own JSON, with one encoder for its one a call: two thirds of the cost."""

    dumps = staticmethod(json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode)
    loads = staticmethod(json.loads)


class ShortTextSerializer(URLSafeTimedSerializer):
    """itsdangerous' serializer for short texts: it keeps its signer and compresses nothing."""

    def make_signer(self, salt: str | bytes | None = None) -> TimestampSigner:
        if "kept" not in self.__dict__:
            self.kept = super().make_signer(salt)
        return self.kept

    def loads(self, text: str | bytes, max_age: int | None = None) -> object:
        return self.load_payload(self.make_signer().unsign(text, max_age=max_age))

    def dump_payload(self, obj: object) -> bytes:
        return base64_encode(self.serializer.dumps(obj))


def serializer(purpose: str, store: Storage | None = None) -> URLSafeTimedSerializer:
    """Signs and verifies text for one purpose; what was signed for another never verifies.

    The keys are those of `store`; without it, of the app that handles this request. A rotated key
    reaches every worker at its next call. `loads(text, max_age=seconds)` raises
    itsdangerous.BadSignature, its subclass SignatureExpired included.
    """
    return _make_serializer((store or get_storage()).keys(), purpose)


@functools.lru_cache(maxsize=64)
def _make_serializer(keys: tuple[bytes, ...], purpose: str) -> URLSafeTimedSerializer:
    # A key of its own for each purpose, made once: itsdangerous would derive it at each call.
    own_keys = [hmac.digest(key, purpose.encode(), "sha256") for key in keys]
    options = {"key_derivation": "none", "algorithm": HMACSHA256()}
    return ShortTextSerializer(own_keys, serializer=CompactJSON, signer_kwargs=options)


class SignedCookieSessions(SecureCookieSessionInterface):
    """Flask's session cookie, signed by `serializer`; nothing is computed where there is none."""

    def get_signing_serializer(self, app: Flask) -> URLSafeTimedSerializer:
        return serializer("session")

    def open_session(self, app: Flask, request: Request) -> SecureCookieSession:
        if "HTTP_COOKIE" not in request.environ:
            return self.session_class()
        # Two of that name: one was planted, and nothing tells which.
        if len(request.cookies.getlist(self.get_cookie_name(app))) > 1:
            return self.session_class()
        return super().open_session(app, request)


# ---------------------------------------------------------------------------------------------
# Who is signed in
# ---------------------------------------------------------------------------------------------


def signed_in_player() -> User | None:
    """The player whose browser sent this request, or None. Raises DamagedRecord."""
    if "player" not in g:
        g.player = _find_session_player()
    return g.player


def _find_session_player() -> User | None:
    if "user" not in session:
        return None
    try:
        user = get_storage().read_user(session["user"])
    except NoSuchUser:
        return None
    # The cookie's own age is not enough: each message to the player makes it anew.
    oldest = now_ms() - SESSION_MAX_AGE // timedelta(milliseconds=1)
    known = any(each.id == session["id"] and each.since > oldest for each in user.sessions)
    return user if known and not user.suspended else None


def ask_to_sign_in() -> Response:
    """Send the browser to the sign-in page, which leads back to this address."""
    leads_to = request.full_path if request.method == "GET" else "/account"
    return redirect(url_for("sessions.sign_in", next=leads_to), 303)


def require_player() -> User:
    """The signed-in player; else the browser is sent to sign in, and comes back."""
    player = signed_in_player()
    if player is None:
        abort(ask_to_sign_in())
    return player


def start_session(user: User, password: str, new_hash: str | None = None) -> bool:
    """Sign in a player whose password was checked: an entry in their record and a new cookie.

    A hash of an older kind is replaced. With `new_hash`, that of a new password, every other
    session ends. False, and nothing is saved, where since `user` was read the password was changed
    or the player suspended. Raises Busy, StorageFailed.
    """
    kept_hash = new_hash or user.password_hash
    if not kept_hash.startswith(f"{PASSWORD_METHOD}$"):
        with password_gate:
            kept_hash = hash_password(password)
    browser = browser_in_words(request.headers.get("User-Agent", ""))
    entry = Session(secrets.token_urlsafe(16), now_ms(), browser)
    with get_storage().edit_user(user.id) as edited:
        # Else restoring the player would bring back a session that began during the suspension.
        if edited.password_hash != user.password_hash or edited.suspended:
            return False
        edited.password_hash = kept_hash
        # One save for both: who is told that it failed has the old password, and the link to it.
        others = [] if new_hash else edited.sessions
        edited.sessions = [*others, entry][-SESSIONS_KEPT:]
    session.clear()
    session.update(user=user.id, id=entry.id)
    session.permanent = True
    return True


def end_session() -> None:
    """Sign this browser out; its cookie goes even where the record cannot be written."""
    user_id, ended = session.get("user"), session.get("id")
    session.clear()
    if user_id is None:
        return
    try:
        drop_session(user_id, ended)
    except StorageError as error:  # damaged or deleted among them
        current_app.logger.warning("session of user %d not removed: %s", user_id, error)


def drop_session(user_id: int, session_id: str) -> None:
    """End one of a player's sessions, wherever its cookie is. Raises StorageFailed."""
    with get_storage().edit_user(user_id) as user:
        user.sessions = [each for each in user.sessions if each.id != session_id]


def local_address(text: str) -> str:
    """`text` where it is an address on this server to be sent to, else "/"."""
    # Browsers read "//host" and "/\host" as another host, and drop tabs and line ends.
    return text if re.fullmatch(r"/(?![/\\])[^\x00-\x1f\x7f]*", text) else "/"


def browser_in_words(user_agent: str) -> str:
    """What a player recognises a browser by: "Firefox on Linux"."""
    browsers = (  # in this order: most of them claim to be those below
        ("Edg", "Edge"),
        ("OPR/", "Opera"),
        ("SamsungBrowser", "Samsung Internet"),
        ("Firefox", "Firefox"),
        ("FxiOS", "Firefox"),
        ("Chrome", "Chrome"),
        ("CriOS", "Chrome"),
        ("Safari", "Safari"),
    )
    systems = (
        ("Android", "Android"),
        ("iPhone", "an iPhone"),
        ("iPad", "an iPad"),
        ("Windows", "Windows"),
        ("Mac OS X", "a Mac"),
        ("CrOS", "ChromeOS"),
        ("Linux", "Linux"),
    )
    browser = next((name for mark, name in browsers if mark in user_agent), "a browser")
    system = next((name for mark, name in systems if mark in user_agent), "an unknown system")
    return f"{browser} on {system}"


# ---------------------------------------------------------------------------------------------
# Passwords, and limits on guessing them
# ---------------------------------------------------------------------------------------------


class Gate:
    """`with gate:` a few run at a time, a few wait, and the next is Busy at once."""

    def __init__(self, running: int, waiting: int) -> None:
        self._places = threading.Semaphore(running + waiting)
        self._running = threading.Semaphore(running)

    def __enter__(self) -> None:
        if not self._places.acquire(blocking=False):
            raise Busy
        self._running.acquire()

    def __exit__(self, *_: object) -> None:
        self._running.release()
        self._places.release()


password_gate = Gate(HASHES_RUNNING, HASHES_WAITING)
picture_gate = Gate(PICTURES_RUNNING, PICTURES_WAITING)
# By method, what the last password took in seconds of processor time: machines slow down at times.
last_costs: dict[str, float] = {}
# Why a password was not looked at; the last where the try could not be counted.
PASSWORD_REFUSED = (TooManyAttempts, Busy, StorageFailed)


def hash_password(password: str) -> str:
    """What is kept of a password."""
    return generate_password_hash(password, PASSWORD_METHOD)


def find_by_password(name: str, password: str) -> User | None:
    """The player with this name or email, where the password is right. Raises PASSWORD_REFUSED."""
    user = get_storage().find_user(name)
    right = is_right_password(user.password_hash if user else "", password, name)
    return user if right else None


def is_right_password(kept_hash: str, password: str, *names: str) -> bool:
    """Whether this is the password; "" is nobody's hash, and takes the same time.

    A wrong one counts against the limits on guessing, at each of the names that it would open.
    Raises PASSWORD_REFUSED.
    """
    with password_gate:  # before the count: a try refused as Busy is none
        counted = count_guess(*names)
        right = _fits(kept_hash or NOBODYS_HASH, password)
    if right:
        give_back(counted)
    return right


def _fits(kept_hash: str, password: str) -> bool:
    started = time.thread_time()
    try:
        right = check_password_hash(kept_hash, password)
    except ValueError as error:
        raise DamagedRecord("a password hash", str(error)) from error
    if kept_hash.startswith(f"{PASSWORD_METHOD}$"):
        last_costs[PASSWORD_METHOD] = time.thread_time() - started
    elif not right:
        # An older hash, of an imported account, may cost less: that would tell that there is one.
        if PASSWORD_METHOD not in last_costs:
            _fits(NOBODYS_HASH, password)
        while time.thread_time() - started < last_costs[PASSWORD_METHOD]:
            check_password_hash(SMALL_HASH, "")
    return right


def how_many(number: int, noun: str) -> str:
    """A number of things: "1 player", "2,000 players"."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def refusal_in_words(error: Exception) -> tuple[str, int, dict[str, str]]:
    """What to say where PASSWORD_REFUSED was raised: the words, the status and the headers."""
    if isinstance(error, TooManyAttempts):
        minutes = -(-error.retry_after // 60)
        problem = f"Too many wrong passwords. Try again in {how_many(minutes, 'minute')}."
        return problem, 429, {"Retry-After": str(error.retry_after)}
    if isinstance(error, Busy):
        return trouble_in_words(error)
    # Without a count there is no limit on guessing, so no password is looked at.
    current_app.logger.error("passwords refused, tries cannot be counted: %s", error)
    wait = {"Retry-After": str(BUSY_RETRY_AFTER)}
    return "Passwords cannot be checked right now. Try again later.", 503, wait


def trouble_in_words(error: Busy | StorageFailed) -> tuple[str, int, dict[str, str]]:
    """What to say where the server has no room for what is asked: words, status and headers."""
    wait = {"Retry-After": str(BUSY_RETRY_AFTER)}
    if isinstance(error, Busy):
        return "Too many people ask for this right now. Try again in a moment.", 503, wait
    current_app.logger.error("%s", error)
    if isinstance(error, StorageFull):
        return "The disk is full: nothing was saved. Tell the people who run this site.", 507, wait
    return "Nothing can be saved right now. Try again in a moment.", 503, wait


def count_guess(*names: str) -> list[Attempt]:
    """Count one try at a password, before it is looked at.

    Raises TooManyAttempts, StorageFailed.
    """
    storage = get_storage()
    address = client_address(request.remote_addr)
    counted = [storage.count_attempt("password from", address, GUESSES_FROM_ADDRESS)]
    try:
        for name in names:
            subject = f"{address} {claim_key(name)}"
            counted.append(storage.count_attempt("password of", subject, GUESSES_AT_NAME))
    except TooManyAttempts:
        give_back(counted)
        raise
    return counted


def give_back(counted: list[Attempt]) -> None:
    """Count these tries no more: they were no guesses."""
    for attempt in counted:
        get_storage().give_back_attempt(attempt)


def client_address(remote_address: str | None) -> str:
    """Whom tries are counted against: an IPv4 address, or the /64 that one IPv6 customer has."""
    try:
        address = ipaddress.ip_address(remote_address or "")
    except ValueError:
        return "unknown"
    if address.version == 4:
        return str(address)
    return str(address.ipv4_mapped or ipaddress.IPv6Address(int(address) >> 64 << 64))


# ---------------------------------------------------------------------------------------------
# One-time links
# ---------------------------------------------------------------------------------------------


def issue_first_account_link() -> str:
    """The address that makes the first account, an administrator's; good until there is one."""
    return f"{own_origin()}/sign-up?invite={serializer('first account').dumps('')}"


def is_first_account_invite(invite: str) -> bool:
    """True for the `invite` of `issue_first_account_link`."""
    try:
        serializer("first account").loads(invite)
    except BadSignature:
        return False
    return True


def issue_sign_in_link(user: User) -> str:
    """The address where a player sets a new password; good once, for LINK_MAX_AGE seconds."""
    # Signed over the password hash: setting a password ends it, and every other such link.
    signed = serializer("sign-in link").dumps([user.id, sha256(user.password_hash)])
    return f"{own_origin()}/new-password?link={signed}"


def find_linked_user(link: str) -> User | None:
    """The player whom a sign-in link is for, or None where it is spent, old or forged."""
    try:
        user_id, digest = serializer("sign-in link").loads(link, max_age=LINK_MAX_AGE)
        user = get_storage().read_user(user_id)
    except (BadSignature, NoSuchUser):
        return None
    return user if digest == sha256(user.password_hash) else None


# ---------------------------------------------------------------------------------------------
# Requests that are refused before they are looked at
# ---------------------------------------------------------------------------------------------


def refuse_foreign_hosts() -> None:
    """Answer only to our own name: a page may know this server under another (DNS rebinding)."""
    if request.path == ANY_HOST_ALLOWED:
        return
    # Not Flask's TRUSTED_HOSTS: it takes no [::1].
    if re.sub(r":[0-9]+$", "", request.host).lower() not in current_app.config["HOSTS"]:
        abort(400, "this server does not answer to that Host")


def refuse_undecodable_queries() -> None:
    """Werkzeug raises wherever a query is read that has bytes which are not UTF-8."""
    try:
        request.query_string.decode()
    except UnicodeDecodeError:
        abort(400, "the query of this address is not UTF-8")


def refuse_cross_site_posts() -> None:
    """Let a post through only where a page of this server sent it, or no browser did.

    Games live on sibling subdomains, where a SameSite=Lax cookie travels: so same-site is refused.
    """
    if request.method in ("GET", "HEAD", "OPTIONS") or request.path == CROSS_SITE_POSTS_ALLOWED:
        return
    fetch_site = request.headers.get("Sec-Fetch-Site")
    if fetch_site is not None:
        own = fetch_site in ("same-origin", "none")
    else:  # an older browser, or plain http, sends only Origin; a program sends neither
        own = request.headers.get("Origin", own_origin()) == own_origin()
    if not own:
        abort(403, "this was sent from another site; open the page here and send it again")


def own_origin() -> str:
    """The origin that people reach this server at."""
    return current_app.config["BASE_URL"]


# ---------------------------------------------------------------------------------------------
# The sign-in page
# ---------------------------------------------------------------------------------------------


@sessions.get("/sign-in")
def sign_in() -> Response | str:
    """The sign-in form; `next` is where it leads."""
    leads_to = local_address(request.args.get("next", ""))
    if signed_in_player():
        return redirect(leads_to, 303)
    done = session.pop("done", None)  # an account, which could not be signed in
    return render_template("sign_in.html", next=leads_to, name="", problem=None, done=done)


@sessions.post("/sign-in")
def check_sign_in() -> Response | tuple:
    """Sign in by `name` (or email) and `password`, then go on to `next`."""
    name = request.form.get("name", "").strip()
    password = request.form.get("password", "")
    try:
        user = find_by_password(name, password)
    except PASSWORD_REFUSED as error:
        return _sign_in_again(name, *refusal_in_words(error))
    if user is None:
        return _sign_in_again(name, "That name and password do not fit together.")
    if user.suspended:
        return _sign_in_again(name, "This account is suspended. Ask the people who run this site.")
    try:
        unchanged = start_session(user, password)
    except (Busy, StorageFailed) as error:
        return _sign_in_again(name, *trouble_in_words(error))
    if not unchanged:
        return _sign_in_again(name, "This account was changed just now. Try again.")
    return redirect(local_address(request.form.get("next", "")), 303)


def _sign_in_again(
    name: str, problem: str, status: int = 403, headers: dict[str, str] | None = None
) -> tuple:
    leads_to = local_address(request.form.get("next", ""))
    page = render_template("sign_in.html", next=leads_to, name=name, problem=problem)
    return page, status, headers or {}


@sessions.post("/sign-out")
def sign_out() -> Response:
    """End this session and go on to `next`."""
    end_session()
    return redirect(local_address(request.form.get("next", "")), 303)
