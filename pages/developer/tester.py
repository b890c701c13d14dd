"""The tester: the grant of one app, run for its developer, with every message on the page.

Here this site is a client of itself. It redirects the browser to /oauth/authorize with a redirect
URI of its own (`tester_redirect_uri`), checks the response, and sends the token and whois requests
through the WSGI application, so the real endpoints answer with their real limits. The test is kept
in the session, one at a time. A client secret is used for one request and never kept.

In the test of a device (RFC 8628) the page is the program without a browser: it shows the user
code, and each press of a button is one poll. The request names its tester, so nobody else can
answer it.
"""

import hmac
import json
import secrets
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import urlencode

from flask import Blueprint, current_app, redirect, request, session
from werkzeug.datastructures import MultiDict
from werkzeug.test import EnvironBuilder
from werkzeug.wrappers import Response

from identity.acts import accounts
from identity.http.context import base_url
from identity.oauth.clients import CODE_FIELDS, CODE_GRANT, DEVICE_GRANT
from identity.oauth.device import TESTER
from identity.oauth.terms import CODE_TOO_OLD, CODE_USED, SCOPES, tester_redirect_uri
from model.records import Client, User, now_ms
from model.rules import warn_unencrypted
from pages.developer.apps import read_own_client
from pages.developer.samples import authorization_parameters, link_and_exchange, samples_of
from pages.kit.actors import authority_of
from pages.kit.forms import FormRefused, form_view
from pages.kit.rendering import render_page

TEST_MAX_AGE = 600_000  # milliseconds from its start
SECRETS = ("code", "client_secret", "code_verifier", "device_code", "access_token", "Authorization")
SHORTEST_SHOWN = 12  # characters of a secret of which the first four are shown
SCOPE_CHOICES = [  # values of the parameter `scope`, in words
    (" ".join(names), " and ".join(SCOPES[name].removeprefix("your ") for name in names))
    for names in (list(SCOPES)[:number] for number in (1, 2, 3))
]
DISABLED = "The test can't go on, because the app is disabled."
NOT_OURS = (
    "An answer came back that belongs to no test in this browser, so it was ignored. Its state is "
    "missing, wrong, or was used before. Your app must ignore such an answer too. Start again."
)
NO_CODE = "This test is over, or was started in another browser. Start again."

tester = Blueprint("tester", __name__)

# -- a test and its messages ------------------------------------------------------------------


@dataclass
class Trial:
    """A test in progress, as the session keeps it."""

    client_id: str
    scope: str
    started: int
    state: str = ""
    verifier: str | None = None
    # Of the redirect, empty before it; or of the request of a device.
    response: dict[str, str] = field(default_factory=dict)

    @property
    def by_device(self) -> bool:
        return "device_code" in self.response

    @property
    def stage(self) -> str:
        """Where the page stands, by what the test waits for."""
        return "exchange" if "code" in self.response else "poll" if self.by_device else "start"


class Message(NamedTuple):
    """A request or a response as the page shows it: its first line, then names and values."""

    line: str
    fields: list[tuple[str, object]]


def make_message(line: str, values: dict) -> Message:
    """Return a message that shows only the first four characters of secrets."""
    shown = {name: shorten(values[name]) for name in SECRETS if name in values}
    return Message(line, list({**values, **shown}.items()))


def shorten(secret: str) -> str:
    """Return the first four characters of a secret, none of a short one; "Bearer" stays."""
    scheme = "Bearer " if secret.startswith("Bearer ") else ""
    secret = secret.removeprefix(scheme)
    return f"{scheme}{secret[:4] if len(secret) >= SHORTEST_SHOWN else ''}…"


def find_trial(client: Client) -> Trial | None:
    """Return the session's test, None if there is none, it is too old or of another client."""
    kept = session.get("trial", {})
    if kept.get("client_id") != client.id:
        return None
    trial = Trial(**kept)
    return trial if abs(now_ms() - trial.started) <= TEST_MAX_AGE else None


def parameters_of(client: Client, trial: Trial) -> dict[str, str]:
    """Return the parameters of a test's authorization request."""
    uri = tester_redirect_uri(client)
    return authorization_parameters(client, uri, trial.scope, trial.state, trial.verifier)


def messages_of(client: Client, trial: Trial | None) -> list[list[Message]]:
    """Return the messages before the token request, a list for each step; [] before an answer."""
    if trial is None or not trial.response:
        return []
    if trial.by_device:
        sent = {"client_id": client.id, "scope": trial.scope}
        asked = make_message(f"POST {base_url()}/oauth/device", sent)
        return [[asked, make_message("200 OK", trial.response)], []]
    asked = make_message(f"GET {base_url()}/oauth/authorize", parameters_of(client, trial))
    returned = make_message(f"GET {tester_redirect_uri(client)}", trial.response)
    return [[asked], [returned]]


# -- the page ---------------------------------------------------------------------------------


def show_page(
    player: User,
    client: Client,
    problems: dict[str, str],
    trial: Trial | None = None,
    calls: list[list[Message]] | None = None,
    stage: str | None = None,
    note: str | None = None,
) -> str:
    """Return the page with a test, by default the session's, its `calls` of the API, and samples.

    The `stage` is "done", or one of the test's, which is the default. A `note` says how it goes on.
    """
    trial = trial or find_trial(client)
    redirect_uri, scope = request.args.get("redirect_uri"), choose_scope(request.args)
    if redirect_uri not in client.redirect_uris:
        redirect_uri = next(iter(client.redirect_uris), None)
    has_code_grant = bool(client.redirect_uris or client.game_url) or not client.device
    return render_page(
        "developer/tester.html",
        player,
        client=client,
        trial=trial,
        scopes=SCOPE_CHOICES[: 1 if client.no_email else None],
        tester_uri=tester_redirect_uri(client),
        messages=[*messages_of(client, trial), *(calls or [])],
        problems=problems or refusal_of(trial),
        chosen={"redirect_uri": redirect_uri, "scope": scope},
        link=redirect_uri and link_and_exchange(client, redirect_uri, scope),
        samples=samples_of(client, redirect_uri, scope) if has_code_grant else [],
        warning=warn_unencrypted([redirect_uri or ""]),
        stage=stage or (trial.stage if trial and not client.disabled else "start"),
        note=note,
        has_code_grant=has_code_grant,
        by_device=trial.by_device if trial else not has_code_grant,
        device_grant=DEVICE_GRANT,
    )


def choose_scope(parameters: MultiDict) -> str:
    """Return the `scope` of a query or a form, the smallest choice if it is none of the choices."""
    scope = parameters.get("scope")
    return scope if scope in dict(SCOPE_CHOICES) else SCOPE_CHOICES[0][0]


def refusal_of(trial: Trial | None) -> dict[str, str]:
    """Return the problem, by field, if the response to the authorization request is an error."""
    if trial is None or "error" not in trial.response:
        return {}
    error, description = (trial.response.get(each, "") for each in ("error", "error_description"))
    usual = f"The site refused the request ({error}): {description}. Start again."
    return {"form": AUTHORIZATION_ADVICE.get(error, usual)}


@tester.get("/developer/<client_id>/try")
def show_test(client_id: str) -> str:
    """Show the test in progress; `redirect_uri` and `scope` in the query are for the samples."""
    return show_page(*read_own_client(client_id), {})


# -- 1 and 2: through the browser (RFC 6749 4.1.1 and 4.1.2), or for a device (RFC 8628 3.1) ----


def replace_trial(client: Client) -> Trial:
    """End the session's test, and return a new one. Raises FormRefused for a disabled client."""
    session.pop("trial", None)
    if client.disabled:
        raise FormRefused({"form": DISABLED}, 409)
    return Trial(client.id, choose_scope(request.form), now_ms())


@tester.post("/developer/<client_id>/try")
@form_view(read_own_client, show_page)
def start_test(player: User, client: Client) -> Response:
    """Start a test, in place of an earlier one, and redirect to the authorization endpoint."""
    trial = replace_trial(client)
    trial.state = secrets.token_urlsafe(16)
    if client.needs_challenge or request.form.get("pkce") != "no":
        trial.verifier = secrets.token_urlsafe(32)
    session["trial"] = asdict(trial)
    return redirect(f"/oauth/authorize?{urlencode(parameters_of(client, trial))}", 303)


@tester.get("/developer/<client_id>/try/callback")
def take_response(client_id: str) -> Response | tuple:
    """Keep the response to this session's authorization request, and redirect to the tester.

    The address of the tester has no code, and can be loaded again.
    """
    player, client = read_own_client(client_id)
    trial, state = find_trial(client), request.args.get("state", "")
    # RFC 6749 10.12: without this check, another site could bring a code of another account.
    expected = trial.state if trial and not trial.response else ""
    if not expected or not hmac.compare_digest(expected.encode(), state.encode()):
        return show_page(player, client, {"form": NOT_OURS}), 400
    known = ("code", "iss", "error", "error_description")
    trial.response = {name: request.args[name][:200] for name in known if name in request.args}
    trial.response["state"] = state
    session["trial"] = asdict(trial)
    return redirect(f"/developer/{client.id}/try", 303)


@tester.post("/developer/<client_id>/try/device")
@form_view(read_own_client, show_page)
def start_device_test(player: User, client: Client) -> Response:
    """Ask for a code as a device does (RFC 8628 3.1), in place of an earlier test."""
    trial = replace_trial(client)
    form = {"client_id": client.id, "scope": trial.scope}
    _, status, trial.response = call_api("POST", "/oauth/device", form=form, tester=player.id)
    if status != HTTPStatus.OK:
        problem = f"The site refused the request: {trial.response['error_description']}"
        raise FormRefused({"form": problem}, status)
    session["trial"] = asdict(trial)
    return redirect(f"/developer/{client.id}/try", 303)


# -- 3 and 4: between the app and this site (RFC 6749 4.1.3, RFC 6750 2.1) ----------------------


@tester.post("/developer/<client_id>/try/token", defaults={"grant_type": CODE_GRANT})
@tester.post("/developer/<client_id>/try/device/token", defaults={"grant_type": DEVICE_GRANT})
def finish_test(client_id: str, grant_type: str) -> str | tuple:
    """Exchange the code, ask who the player is, and end the grant before the page is sent.

    With a device code this is one poll: the test goes on until the player has decided.
    """
    player, client = read_own_client(client_id)
    trial = find_trial(client)
    if client.disabled or trial is None or CODE_FIELDS[grant_type] not in trial.response:
        problem = DISABLED if client.disabled else NO_CODE
        return show_page(player, client, {"form": problem}), 409
    form = token_form(client, trial, grant_type)
    exchange, status, body = call_api("POST", "/api/oauth/token", form=form)
    message = body.get("message", "")
    if message in STILL_WAITING:
        return show_page(player, client, {}, trial, [exchange], note=STILL_WAITING[message])
    problems = explain_refusal(client, status, message)
    if status in CAN_RETRY:
        return show_page(player, client, problems, trial, [exchange]), status
    del session["trial"]
    by = authority_of(player)
    if status != HTTPStatus.OK:
        accounts.end_test(by, player.id, client.id, has_token=False)
        return show_page(player, client, problems, trial, [exchange], stage="start"), status
    bearer = {"Authorization": f"Bearer {body['access_token']}"}
    look_up, status, _ = call_api("GET", f"/api/oauth/whois?client_id={client.id}", headers=bearer)
    accounts.end_test(by, player.id, client.id, has_token=True)
    problems = {} if status == HTTPStatus.OK else {"form": WHOIS_REFUSED}
    return show_page(player, client, problems, trial, [exchange, look_up], stage="done")


def token_form(client: Client, trial: Trial, grant_type: str) -> dict[str, str]:
    """Return the parameters of a test's token request."""
    name = CODE_FIELDS[grant_type]
    form = {"grant_type": grant_type, name: trial.response[name], "client_id": client.id}
    if grant_type == CODE_GRANT:
        form["redirect_uri"] = tester_redirect_uri(client)
    if not client.public:
        form["client_secret"] = request.form.get("client_secret", "").strip()
    if trial.verifier:
        form["code_verifier"] = trial.verifier
    return form


def call_api(
    method: str,
    path: str,
    form: dict | None = None,
    headers: dict | None = None,
    tester: int | None = None,
) -> tuple[list[Message], int, dict]:
    """Send a request to this server's API; return [request, response], the status and the body.

    The request goes to the WSGI application, not over the network, from the developer's address.
    The environ names the `tester`, a user id, which no request over the network can do.
    """
    environ = EnvironBuilder(
        path,
        base_url(),
        method=method,
        data=form,
        headers=headers,
        environ_overrides={"REMOTE_ADDR": request.remote_addr, TESTER: tester},
    ).get_environ()
    response = Response.from_app(current_app.wsgi_app, environ, buffered=True)
    status, body = HTTPStatus(response.status_code), json.loads(response.data)
    sent = make_message(f"{method} {base_url()}{path}", {**(form or {}), **(headers or {})})
    return [sent, make_message(f"{status.value} {status.phrase}", body)], status, body


# -- problems and their remedies ----------------------------------------------------------------

AUTHORIZATION_ADVICE = {  # by the error code of the redirect
    "access_denied": (
        "You pressed Cancel, so there is no code. When a player does that, your app gets this "
        "answer too: show your start page again. To see the rest, start again and press Allow."
    ),
    "server_error": (
        "The site can't give you a code right now. It gives up to 60 a minute. Wait a minute, then "
        "start again."
    ),
}
STILL_WAITING = {  # by the message of a poll after which a program asks again
    "authorization_pending": (
        "The player has not decided yet. Your app waits for the interval, and asks again."
    ),
    "slow_down": (
        "You asked again within the interval. The player has not decided yet; your app waits "
        "5 seconds longer from now on."
    ),
}
WHOIS_REFUSED = "The token has ended already: perhaps you removed this app's access. Start again."
TOKEN_ADVICE = {  # by the message of the response, or by its status for all other messages
    CODE_TOO_OLD: (
        "The code is older than 60 seconds. Start again, and press the button within 60 seconds of "
        "Allow. Your app should exchange a code at once."
    ),
    CODE_USED: (
        "This code was used before. A code works once, and its second use ends the tokens of the "
        "first. Start again to get a new code."
    ),
    "access_denied": (  # of a device
        "You pressed Cancel. When a player does that, your app gets this answer too: stop asking, "
        "and say so. To see the rest, start again and press Allow."
    ),
    401: "Wrong client secret. Copy all of it. If it is lost, create a new one.",
    429: "Too many wrong secrets from your network. Wait 15 minutes, then start again.",
    503: "The site can't save right now. Press the button again in a moment.",
}
CAN_RETRY = (401, 503)  # the same code can be sent again


def explain_refusal(client: Client, status: int, message: str) -> dict[str, str]:
    """Return what to do about a refused token request, by field; `message` is the response's."""
    usual = f"The site refused the request: {message}. Start again."
    advice = TOKEN_ADVICE.get(message) or TOKEN_ADVICE.get(status, usual)
    is_about_secret = status == HTTPStatus.UNAUTHORIZED and not client.public
    return {"client_secret" if is_about_secret else "form": advice}
