"""The tester of the device grant (RFC 8628), as pages.tester is that of the code grant.

Here the page is the program without a browser: it shows the user code, and each press of a button
is one poll. The device code is kept in the session. The request names its tester, so nobody else
can answer it, and the consent is not remembered.
"""

from dataclasses import asdict
from http import HTTPStatus

from flask import Blueprint, redirect, request, session
from werkzeug.wrappers import Response

from identity.clients import DEVICE_GRANT
from pages.developer import find_own_client
from pages.forms import FormRefused, form_view
from pages.moderation import acts_of
from pages.tester import (
    DISABLED,
    NO_CODE,
    Trial,
    call_api,
    choose_scope,
    explain_refusal,
    find_trial,
    show_page,
    use_token,
)
from storage.records import Client, User, now_ms

STILL_WAITING = {  # the errors of a poll after which a program goes on, in words
    "authorization_pending": (
        "The player has not decided yet. Your app waits for the interval, and asks again."
    ),
    "slow_down": (
        "You asked again within the interval. The player has not decided yet; your app waits "
        "5 seconds longer from now on."
    ),
}

device_tester = Blueprint("device_tester", __name__)


@device_tester.post("/developer/<client_id>/try/device")
@form_view(find_own_client, show_page)
def start_test(player: User, client: Client) -> Response:
    """Ask for a code as a program does. The test takes the place of an earlier one."""
    session.pop("trial", None)
    if client.disabled:
        raise FormRefused({"form": DISABLED}, 409)
    scope = choose_scope(request.form)
    form = {"client_id": client.id, "scope": scope}
    _, status, body = call_api("POST", "/oauth/device", form=form, tester=player.id)
    if status != HTTPStatus.OK:
        raise FormRefused(
            {"form": f"The site refused the request: {body['error_description']}"}, status
        )
    session["trial"] = asdict(Trial(client.id, scope, now_ms(), response=body))
    return redirect(f"/developer/{client.id}/try", 303)


@device_tester.post("/developer/<client_id>/try/device/token")
def poll(client_id: str) -> str | tuple:
    """Ask for the token once (RFC 8628 3.4). If there is one, end the grant as `finish_test`."""
    player, client = find_own_client(client_id)
    trial = find_trial(client)
    if client.disabled or trial is None or trial.device_code is None:
        problem = DISABLED if client.disabled else NO_CODE
        return show_page(player, client, {"form": problem}), 409
    form = {"grant_type": DEVICE_GRANT, "device_code": trial.device_code, "client_id": client.id}
    asked, status, body = call_api("POST", "/api/oauth/token", form=form)
    if status == HTTPStatus.OK:
        del session["trial"]
        look_up, problems = use_token(player, client, body["access_token"])
        return show_page(player, client, problems, trial, [asked, look_up], stage="done")
    message = body["message"]
    if message in STILL_WAITING:
        return show_page(player, client, {}, trial, [asked], note=STILL_WAITING[message])
    problems = explain_refusal(client, status, message)
    if status == HTTPStatus.SERVICE_UNAVAILABLE:  # the same code can be sent again
        return show_page(player, client, problems, trial, [asked]), status
    del session["trial"]
    acts_of(player).end_test(player.id, client.id, has_token=False)
    return show_page(player, client, problems, trial, [asked], stage="start"), status
