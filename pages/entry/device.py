"""Where a player signs in on another device (RFC 8628 3.3), and the QR code of that address.

A code in a link only fills in the form: looking it up takes a press here, and is limited.
"""

import contextlib
import io

from flask import Blueprint, abort, current_app, request, session
from itsdangerous import BadSignature
from werkzeug.wrappers import Response

from identity.access.sessions import require_player
from identity.acts.apps import note_sign_in
from identity.acts.families import tell_first
from identity.http.context import base_url, get_storage
from identity.http.limits import (
    AttemptLimit,
    client_address,
    count_attempts,
    count_guest,
    limits_of_address,
    refund_attempts,
)
from identity.http.responses import ANY_ORIGIN, NO_STORE, storage_http_error
from identity.http.signing import serializer
from identity.http.stamps import check_age
from identity.oauth import device as flow
from identity.oauth.grants import require_admitted
from identity.site.formatting import HOUR, format_age
from model.errors import CodeSpent, NoSuchCode, StorageFailed
from model.grant_records import DeviceRequest
from model.records import OFFLINE, Client, User, now_ms
from model.words import say
from pages.kit import forms
from pages.kit.actors import authority_of
from pages.kit.rendering import render_consent_page, render_page

WRONG_CODES = 10  # an hour, of a player and from an address
QR_CODES = 100  # for an address in ATTEMPTS_WINDOW; it starts as many requests
NOT_A_CODE = say("Type the eight letters that your device shows.")
UNKNOWN = say("We don't know this code. Compare it with your device, or start again there.")
EXPIRED = say("This code has expired. Start again on your device.")
USED = say("This code was used. Start again on your device.")
LOST = say("That could not be saved. Start again on your device.")
OUT_OF_DATE = say("That page was out of date. Type the code again.")
NO_SUCH_APP = say("This app can't sign anyone in now. Tell its developer.")
NOT_YOURS = say("This code is of a test. Only the developer who started it can answer it.")

device = Blueprint("device", __name__)


@device.get("/device")
def show_form() -> str:
    """Show the form for a code, which the query may fill in as `user_code`."""
    return form_page(require_player(), {})


def form_page(player: User, problems: dict[str, str]) -> str:
    """Return the page with the form, or with the notice of a decision."""
    typed = (request.form if request.method == "POST" else request.args).get("user_code", "")[:100]
    user_code = flow.parse_user_code(typed)
    shown = flow.show_user_code(user_code) if user_code else typed
    notice = forms.pop_notice()
    return render_page("entry/device.html", player, typed=shown, notice=notice, problems=problems)


device_form = forms.form_view(lambda: (require_player(),), form_page)


@device.post("/device")
@device_form
def look_up(player: User) -> str:
    """Show which app asks with the `user_code`. Each try counts before; a right one is refunded."""
    user_code = flow.parse_user_code(request.form.get("user_code", ""))
    forms.refuse_problems(user_code=None if user_code else NOT_A_CODE)
    limits = limits_of_address(request.remote_addr, "user code from", WRONG_CODES, window=HOUR)
    limits.append(AttemptLimit("user code of", str(player.id), WRONG_CODES, HOUR))
    with forms.as_form_errors("user_code"):
        counted = count_attempts(get_storage(), limits)
    asked = read_request(user_code)
    refund_attempts(get_storage(), counted)
    return decision_page(player, read_client(player, asked), user_code, asked)


def read_request(user_code: str) -> DeviceRequest:
    """Return the request that waits for an answer. Raises FormRefused if none does any more."""
    try:
        asked = flow.read_request(get_storage(), user_code)
    except NoSuchCode:
        raise forms.FormRefused({"user_code": UNKNOWN}, 403) from None
    except CodeSpent:
        raise forms.FormRefused({"user_code": USED}, 403) from None
    if now_ms() - asked.issued > flow.DEVICE_CODE_MAX_AGE * 1000:
        raise forms.FormRefused({"user_code": EXPIRED}, 403)
    return asked


def read_client(player: User, asked: DeviceRequest) -> Client:
    """Return the client of a request, if this player may answer. Raises FormRefused, Forbidden."""
    client = get_storage().clients.find(asked.client_id)
    if client is None or client.disabled or not client.device:
        raise forms.FormRefused({"form": NO_SUCH_APP}, 403)
    if asked.tester not in (None, player.id):
        raise forms.FormRefused({"form": NOT_YOURS}, 403)
    require_admitted(client, player)
    return client


def decision_page(
    player: User, client: Client, user_code: str, asked: DeviceRequest, problem: str | None = None
) -> str:
    """Return the page that asks the player; its request is signed for this session."""
    signed = serializer("device decision").dumps([user_code, session["id"], now_ms()])
    return render_consent_page(
        "entry/device_consent.html",
        player,
        client,
        asked.scope,
        problem,
        remembered=asked.tester is None,
        user_code=flow.show_user_code(user_code),
        again=flow.complete_uri("", user_code),
        age=format_age(asked.issued),
        is_page=not asked.network,
        is_near=asked.network == client_address(request.remote_addr),
        request_field=signed,
    )


@device.post("/device/decision")
@device_form
def decide(player: User) -> Response | tuple:
    """Take the player's `decision` on the signed `request`, and store the answer for the device.

    A decision in the first second of the page does not count, and the page is shown again.
    """
    user_code, shown = read_signed_request()
    asked = read_request(user_code)
    client = read_client(player, asked)
    if problem := check_age(shown):
        return decision_page(player, client, user_code, asked, problem), 400
    decision = request.form.get("decision")
    if decision not in ("allow", "deny"):
        abort(400, say("Choose Allow or Cancel."))
    try:
        flow.claim_request(get_storage(), user_code)
    except (NoSuchCode, CodeSpent):
        raise forms.FormRefused({"user_code": USED}, 403) from None
    try:
        flow.store_answer(get_storage(), asked, player if decision == "allow" else None)
    except StorageFailed as error:
        status = storage_http_error(error, current_app.logger).code
        raise forms.FormRefused({"form": LOST}, status) from error
    if decision == "deny":
        return forms.redirect_with_notice(
            say("Cancelled. Your device is not signed in."), "/device"
        )
    note_sign_in(get_storage(), client.id)
    if OFFLINE in asked.scope:
        tell_first(authority_of(player), player, client)
    return forms.redirect_with_notice(say("Done. Go back to your device."), "/device")


def read_signed_request() -> tuple[str, int]:
    """Return the page's user code, and when it was shown, in milliseconds. Raises FormRefused."""
    with contextlib.suppress(BadSignature):
        values = serializer("device decision").loads(request.form.get("request", ""))
        user_code, session_id, shown = values
        if session_id == session["id"]:
            return user_code, shown
    raise forms.FormRefused({"user_code": OUT_OF_DATE})


@device.get("/oauth/device/qr")
def show_qr() -> Response:
    """Return a QR code of the address with this `user_code`, which need not exist, as PNG."""
    user_code = flow.parse_user_code(request.args.get("user_code", ""))
    if user_code is None:
        abort(404)
    count_guest("QR code for", QR_CODES)
    import segno  # takes a tenth of a second

    image = io.BytesIO()
    segno.make_qr(flow.complete_uri(base_url(), user_code)).save(image, kind="png", scale=8)
    headers = {**ANY_ORIGIN, **NO_STORE, "Cross-Origin-Resource-Policy": "cross-origin"}
    return Response(image.getvalue(), headers=headers, content_type="image/png")
