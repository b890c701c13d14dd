"""Samples for developers: the requests of one client in curl, JavaScript, Python and GDScript.

Each sample is a text template, `templates/developer/sample_*.txt`. It needs no escaping: redirect
URIs have no quotes, backslashes or spaces (`model.rules.check_redirect_uri`), and client ids are
hexadecimal.
"""

import re
import secrets
from typing import NamedTuple
from urllib.parse import urlencode

from flask import render_template

from identity.http.context import base_url
from identity.oauth.terms import code_challenge_of
from model.records import Client
from model.rules import has_origin

LOOPBACK = re.compile(r"http://127\.0\.0\.1(?::[0-9]+)?(/[^?]*)?")  # without a query
ANY_LOOPBACK = "http://127.0.0.1/callback"


class Sample(NamedTuple):
    """A program to paste, with the name of its language and a sentence about where it runs."""

    language: str
    hint: str
    code: str


def authorization_parameters(
    client: Client, redirect_uri: str, scope: str, state: str, verifier: str | None
) -> dict[str, str]:
    """Return the parameters of an authorization request; no `verifier`, no PKCE (RFC 7636 4.3)."""
    parameters = {
        "response_type": "code",
        "client_id": client.id,
        "redirect_uri": redirect_uri,
        "scope": scope,
        "state": state,
    }
    if verifier:
        parameters["code_challenge"] = code_challenge_of(verifier)
        parameters["code_challenge_method"] = "S256"
    return parameters


def link_and_exchange(client: Client, redirect_uri: str, scope: str) -> tuple[str, str]:
    """Return a link to an authorization request, and the curl command that exchanges its code.

    For tests only: an app keeps a verifier of its own in the session of each player.
    """
    state, verifier = secrets.token_urlsafe(12), secrets.token_urlsafe(32)
    parameters = authorization_parameters(client, redirect_uri, scope, state, verifier)
    link = f"{base_url()}/oauth/authorize?{urlencode(parameters)}"
    return link, exchange_command(client, redirect_uri, verifier)


def exchange_command(
    client: Client, redirect_uri: str | None = None, verifier: str = "CODE_VERIFIER"
) -> str:
    """Return a curl command that exchanges a code, with placeholders CODE and CLIENT_SECRET."""
    values = {"redirect_uri": redirect_uri, "verifier": verifier}
    return render_template(
        "developer/sample_exchange.txt", site=base_url(), client=client, **values
    )


def samples_of(client: Client, redirect_uri: str | None, scope: str) -> list[Sample]:
    """Return the samples for a client; without a redirect URI, only a public client's web page."""
    samples = [web_page_of(client, redirect_uri, scope)] if client.public else []
    if redirect_uri:
        values = {"redirect_uri": redirect_uri, "scope": scope}
        if not client.public:
            hint = "For Node.js 20 and newer. Run it in a terminal."
            samples.append(
                make_sample("JavaScript", hint, "developer/sample_node.txt", client, **values)
            )
        hint = "For Python 3.9 and newer, with nothing to install. Run it in a terminal."
        samples.append(make_sample("Python", hint, "developer/sample_python.txt", client, **values))
        samples.append(godot_sample_of(client, scope))
    return samples


def starting_samples(client: Client) -> list[Sample]:
    """Return what the developer of a new app pastes: for a game shown here only a public one's."""
    uri = None if client.game_url else next(iter(client.redirect_uris), None)
    samples = samples_of(client, uri, "userinfo") if uri or client.game_url else []
    is_program = client.public and uri and (uri == ANY_LOOPBACK or not has_origin(uri))
    return samples[1:] if is_program else samples  # a program on a device has no web page


def web_page_of(client: Client, redirect_uri: str | None, scope: str) -> Sample:
    """Return a public client's page: for its redirect URI, or without one for a game shown here."""
    if redirect_uri and not has_origin(redirect_uri):
        redirect_uri = None
    if redirect_uri:
        hint = f"Save this as the page at {redirect_uri}."
    elif client.game_url:
        hint = "For the page of your game, while it is played on this site."
    else:
        hint = "For a web page. Its address must be a redirect URI of this app."
    values = {"redirect_uri": redirect_uri, "scope": scope}
    return make_sample("JavaScript", hint, "developer/sample_page.txt", client, **values)


def godot_sample_of(client: Client, scope: str) -> Sample:
    """Return a script for Godot: of a game if the client is public, otherwise of its server."""
    if not client.public:
        hint = (
            "For Godot 4, on your game's server. A game that players download can't keep a secret."
        )
        return make_sample("Godot", hint, "developer/sample_godot_server.txt", client)
    found = filter(None, map(LOOPBACK.fullmatch, client.redirect_uris))
    path = next((each[1] or "" for each in found), None)
    hint = "For Godot 4, on the player's device. Add the script to a node."
    if path is None:
        path = "/callback"
        hint = f"For Godot 4, on the player's device. It needs the redirect URI {ANY_LOOPBACK}."
    return make_sample("Godot", hint, "developer/sample_godot.txt", client, scope=scope, path=path)


def make_sample(language: str, hint: str, template: str, client: Client, **values) -> Sample:
    """Return the sample that a template makes for a client."""
    code = render_template(template, site=base_url(), client=client, **values)
    return Sample(language, hint, code)
