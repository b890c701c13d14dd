"""The tester of the device grant (RFC 8628), as pages.tester is that of the code grant.

Here the page is the program without a browser: it shows the user code, and each press of a button
is one poll. The device code is kept in the session. The request names its tester, so nobody else
can answer it, and the consent is not remembered.
"""

from dataclasses import asdict
from http import HTTPStatus

from flask import Blueprint, abort, redirect, request, session
from werkzeug.wrappers import Response

from identity.clients import DEVICE_GRANT
from identity.context import base_url
from identity.device import signs_in_on_devices
from pages.developer import find_own_client
from pages.forms import FormRefused, form_view
from pages.moderation import acts_of
from pages.rendering import render_page
from pages.tester import (
    DISABLED,
    NO_CODE,
    SCOPE_CHOICES,
    Message,
    Trial,
    call_api,
    choose_scope,
    explain_refusal,
    find_trial,
    has_page,
    make_message,
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
REFUSED = "The site refused the request"

device_tester = Blueprint("device_tester", __name__)


def find_device_client(client_id: str) -> tuple[User, Client]:
    """Return the signed-in player and a client for devices that they manage."""
    player, client = find_own_client(client_id)
    if not signs_in_on_devices(client):
        abort(404, "This app is not registered for signing in on another device.")
    return player, client


def start_parameters(client: Client, scope: str) -> dict[str, str]:
    """Return the parameters of a device authorization request (RFC 8628 3.1)."""
    return {"client_id": client.id, "scope": scope}


def show_page(
    player: User,
    client: Client,
    problems: dict[str, str],
    trial: Trial | None = None,
    calls: list[list[Message]] | None = None,
    stage: str | None = None,
    note: str | None = None,
) -> str:
    """Return the page, as that of pages.tester; the `stage` is "start", "poll" or "done"."""
    trial = trial or find_trial(client, of_device=True)
    scope = trial.scope if trial else SCOPE_CHOICES[0][0]
    sent = make_message(f"POST {base_url()}/oauth/device", start_parameters(client, scope))
    started = [sent, make_message("200 OK", trial.response)] if trial else []
    return render_page(
        "try_device.html",
        player,
        client=client,
        trial=trial,
        scopes=SCOPE_CHOICES[: 1 if client.no_email else None],
        messages=[started, [], *(calls or [])],
        problems=problems,
        note=note,
        stage=stage or ("poll" if trial and not client.disabled else "start"),
        has_page=has_page(client),
        chosen_scope=scope,
        device_grant=DEVICE_GRANT,
    )


@device_tester.get("/developer/<client_id>/try/device")
def show_test(client_id: str) -> str:
    """Show the test in progress."""
    return show_page(*find_device_client(client_id), {})


@device_tester.post("/developer/<client_id>/try/device")
@form_view(find_device_client, show_page)
def start_test(player: User, client: Client) -> Response:
    """Ask for a code as a program does. The test takes the place of an earlier one."""
    session.pop("trial", None)
    if client.disabled:
        raise FormRefused({"form": DISABLED}, 409)
    scope = choose_scope(request.form)
    form = start_parameters(client, scope)
    _, status, body = call_api("POST", "/oauth/device", form=form, tester=player.id)
    if status != HTTPStatus.OK:
        raise FormRefused({"form": f"{REFUSED}: {body['error_description']}"}, status)
    session["trial"] = asdict(Trial(client.id, scope, now_ms(), response=body))
    return redirect(f"/developer/{client.id}/try/device", 303)


@device_tester.post("/developer/<client_id>/try/device/token")
def poll(client_id: str) -> str | tuple:
    """Ask for the token once (RFC 8628 3.4). If there is one, end the grant as `finish_test`."""
    player, client = find_device_client(client_id)
    trial = find_trial(client, of_device=True)
    if client.disabled or trial is None:
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
