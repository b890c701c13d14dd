"""Signing in on another device (RFC 8628), for programs that can open no browser.

    POST /oauth/device    the program gets a device code, and shows a user code   start_device_flow
    /device               the player types the user code, and decides            pages.entry.device
    POST /oauth/token     the program polls with the device code until then       read_player_answer

The store of codes has both halves, each of them used once: the request of a device by its user
code, and the player's answer by the id of the device. The device code is signed, and names that id:
a poll stores nothing.
"""

import math
import secrets
import time
from collections import OrderedDict

from itsdangerous import BadSignature, SignatureExpired

from identity.http.fast_path import ApiRequest
from identity.http.limits import client_address, count_attempts, limits_of_address
from identity.http.responses import NO_STORE, JsonResponse
from identity.http.signing import serializer
from identity.oauth.authorization import OPENID, granted_scope, read_scope
from identity.oauth.clients import (
    allow_pages_of_client,
    authenticate_client,
    read_form_parameters,
    single_parameters,
)
from identity.oauth.grants import save_consent
from identity.oauth.reauthentication import session_amr, session_start
from identity.oauth.refresh import prepare_family
from identity.oauth.terms import InvalidGrant, UnauthorizedClient
from identity.site.pasted import find_code
from model.errors import NoSuchCode
from model.grant_records import AuthorizationCode, DeviceRequest
from model.records import OFFLINE, Client, User
from storage import Storage

DEVICE_CODE_MAX_AGE = 600  # seconds
INTERVAL = 5  # seconds between two polls
POLLS_KEPT = 10_000  # devices
REQUESTS = 100  # from an address in ATTEMPTS_WINDOW; each is stored, and nobody has signed in
LETTERS = "BCDFGHJKLMNPQRSTVWXZ"  # RFC 8628 6.1: without vowels no code is a word
# Beginnings of names in the store of codes. A token request must not send such a name as its code.
USER_CODE_PREFIX, ANSWER_PREFIX = PREFIXES = "user code ", "device "
TESTER = "identity.tester"  # in the environ of this site's own requests: the id of who tests
REFUSED = 0  # the user id in the answer of a player who refused
DEVICE_CODE_USED = "this device code was used before; each is valid once"

_polls: OrderedDict[str, float] = OrderedDict()  # device ids, and time.monotonic() of the last poll


class DeviceGrantError(InvalidGrant):
    """A token request of a device that gets no token; `error` is its code in RFC 8628 3.5."""

    def __init__(self, error: str, description: str) -> None:
        super().__init__(description)
        self.error = error


def require_device_client(client: Client) -> None:
    """Raise UnauthorizedClient unless this client may sign players in on another device."""
    if not client.device:
        raise UnauthorizedClient("this client is not registered for signing in on another device")


# -- the program asks for a code (RFC 8628 3.1) -------------------------------------------------


def start_device_flow(api_request: ApiRequest) -> JsonResponse:
    """Return a device code and a user code (RFC 8628 3.2); both are good for ten minutes.

    The request is stored under the user code, for the page /device. Raises InvalidRequest,
    UnauthorizedClient, TooManyAttempts, StorageFailed.
    """
    sent, store = read_form_parameters(api_request), api_request.storage
    allow_pages_of_client(api_request, dict(sent))  # its pages may read each response, errors too
    form = single_parameters(sent, ("client_id", "client_secret", "scope"))
    client = authenticate_client(api_request, form)
    require_device_client(client)
    address = api_request.environ.get("REMOTE_ADDR")
    count_attempts(store, limits_of_address(address, "device request from", REQUESTS))
    asked_scope = form.get("scope", "")
    tester = api_request.environ.get(TESTER)
    scope = read_scope(asked_scope, client, api_request.openid, offline=tester is None)
    granted = granted_scope(asked_scope, scope)
    user_code = "".join(secrets.choice(LETTERS) for _ in range(8))  # 34 bits
    # A page of any site can ask in its visitor's browser, and send the visitor to /device then.
    is_page = api_request.environ.get("HTTP_ORIGIN", api_request.base_url) != api_request.base_url
    device_id, network = secrets.token_urlsafe(16), "" if is_page else client_address(address)
    record = DeviceRequest(client.id, scope, device_id, network, granted=granted, tester=tester)
    store.codes.add(USER_CODE_PREFIX + user_code, record)
    shown, base_url = show_user_code(user_code), api_request.base_url
    body = {
        "device_code": serializer("device code", store).dumps([client.id, device_id]),
        "user_code": shown,
        "verification_uri": f"{base_url}/device",
        "verification_uri_complete": complete_uri(base_url, user_code),
        "verification_qr_uri": f"{base_url}/oauth/device/qr?user_code={shown}",
        "expires_in": DEVICE_CODE_MAX_AGE,
        "interval": INTERVAL,
    }
    return JsonResponse(body, NO_STORE)


def show_user_code(user_code: str) -> str:
    """Return a user code as people read it: "BCDF-GHJK"."""
    return f"{user_code[:4]}-{user_code[4:]}"


def parse_user_code(typed: str) -> str | None:
    """Return the user code in what somebody typed, in any case and grouping; None without one."""
    return find_code(typed, LETTERS, length=8)


def complete_uri(base_url: str, user_code: str) -> str:
    """Return the address where a user code is filled in."""
    return f"{base_url}/device?user_code={show_user_code(user_code)}"


# -- the player decides -------------------------------------------------------------------------


def read_request(store: Storage, user_code: str) -> DeviceRequest:
    """Return the request with a user code, of any age. Raises NoSuchCode, CodeSpent."""
    return store.codes.read(USER_CODE_PREFIX + user_code, DeviceRequest)


def claim_request(store: Storage, user_code: str) -> None:
    """Use a user code up: of two players one decides. Raises CodeSpent, NoSuchCode, StorageFailed.

    A kill before `store_answer` leaves a request that nobody answers any more: it expires.
    """
    store.codes.spend(USER_CODE_PREFIX + user_code, DeviceRequest)


def store_answer(store: Storage, asked: DeviceRequest, player: User | None) -> None:
    """Store the answer of the signed-in player, None for a refusal. Raises StorageFailed.

    The consent to a test is not remembered.
    """
    answer = AuthorizationCode(asked.client_id, REFUSED, "", asked.scope, None, None)
    if player:
        answer.user_id, answer.granted = player.id, asked.granted
        answer.grant_id = save_consent(player.id, asked, remembered=asked.tester is None).id
        if OPENID in asked.scope:
            answer.auth_time, answer.amr = session_start(player), session_amr()
        if OFFLINE in asked.scope:  # the browser in which the code was typed is another session
            prepare_family(answer, store.clients.read(asked.client_id), None)
    store.codes.add(ANSWER_PREFIX + asked.device_id, answer)


# -- the program polls (RFC 8628 3.4 and 3.5) ---------------------------------------------------


def read_player_answer(
    store: Storage, client: Client, device_code: str
) -> tuple[str, AuthorizationCode]:
    """Return the name of a player's answer in the store of codes, and the answer.

    Raises UnauthorizedClient, InvalidGrant, DeviceGrantError, CodeSpent.
    """
    require_device_client(client)
    try:
        signed = serializer("device code", store).loads(device_code, DEVICE_CODE_MAX_AGE)
    except SignatureExpired:
        problem = "this device code has expired; ask for a new one"
        raise DeviceGrantError("expired_token", problem) from None
    except BadSignature:
        raise InvalidGrant("this is not a device code of this server") from None
    client_id, device_id = signed
    if client_id != client.id:
        raise InvalidGrant("this device code was issued to another client")
    name = ANSWER_PREFIX + device_id
    try:
        answer = store.codes.read(name)
    except NoSuchCode:
        if is_early_poll(device_id):
            problem = f"wait {INTERVAL} seconds longer between two requests from now on"
            raise DeviceGrantError("slow_down", problem) from None
        problem = "the player has not decided yet; ask again"
        raise DeviceGrantError("authorization_pending", problem) from None
    if answer.user_id == REFUSED:
        raise DeviceGrantError("access_denied", "the player refused")
    return name, answer


def is_early_poll(device_id: str) -> bool:
    """Note a device's poll in this worker; True if its last one was less than INTERVAL - 1 ago."""
    now = time.monotonic()
    last = _polls.pop(device_id, -math.inf)
    _polls[device_id] = now
    if len(_polls) > POLLS_KEPT:
        _polls.popitem(last=False)
    return now - last < INTERVAL - 1  # one request may be on its way for longer than the next
