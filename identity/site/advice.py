"""Warnings about an installation, each with a fix, for `settings`, `serve` and `/admin`."""

import os
import re
from collections import Counter
from collections.abc import Iterator

from identity.site.clock import check_clock
from identity.site.formatting import pluralize
from identity.site.hosts import find_rp_id, is_loopback, is_public_host
from identity.site.networks import check_networks, check_proxies
from identity.site.settings import host_of
from model.client_rules import may_get_email
from model.kinds import PASSKEYS
from model.words import say
from storage import Storage, find_advice
from storage.maintenance import Advice

GRANIAN_ADVICE = Advice(
    "granian is without a proxy in front (IDENTITY_PROXIES is 0): it believes headers with "
    "underscores, such as X_Forwarded_For, and waits without end for the rest of a body",
    "put nginx in front (deploy/nginx.conf) and set IDENTITY_PROXIES=1, or use --server gunicorn",
)


def check_environment(
    values: dict, bind: tuple[str, int], server: str = "gunicorn"
) -> list[Advice]:
    """Return what looks wrong with these settings, this machine and the place of the records.

    `bind` and `server` are the options of `serve`.
    """
    found = check_installation(values)
    # In a container the port mapping of the host decides who reaches the address of --bind.
    if os.getpid() != 1:
        found += check_addresses(values, *bind)
    if server == "granian" and not values["PROXIES"]:
        found.append(GRANIAN_ADVICE)
    return found


def check_states(store: Storage, values: dict) -> list[Advice]:
    """Return what looked wrong in the last day: addresses, networks and the clock."""
    return [
        *check_proxies(store, values["PROXIES"]),
        *check_networks(store, values["BASE_URL"]),
        *check_clock(store),
    ]


def check_installation(values: dict) -> list[Advice]:
    """Return what looks wrong wherever the server listens."""
    folders = values["DATA_DIR"], values["PICTURE_DIR"]
    return [*find_advice(*folders, values["STORAGE"]), *check_access(values)]


# -- a site for this machine alone ---------------------------------------------------------------


def explain_loopback(base_url: str) -> list[str]:
    """Return three sentences: who can open links to a loopback address, and how friends could.

    [] for the base URL of a site that others may reach.
    """
    if not is_loopback(host_of(base_url)):
        return []
    return [
        say(
            "Nobody else can open links to %(address)s: they work on this machine alone.",
            address=base_url,
        ),
        say(
            "To let friends in, give the server a name, like id.example.org, and https "
            "(nginx, Caddy)."
        ),
        say(
            "Then set %(setting)s, and restart the server.",
            setting="IDENTITY_BASE_URL=https://id.example.org",
        ),
    ]


# -- passkeys -----------------------------------------------------------------------------------


def passkey_note(base_url: str) -> str | None:
    """Return which base URL could have passkeys; None if this one can."""
    if find_rp_id(base_url):
        return None
    if is_loopback(host_of(base_url)):
        port = base_url.removeprefix("http://127.0.0.1").removeprefix("http://[::1]")
        return f"passkeys need a name: set IDENTITY_BASE_URL=http://localhost{port} to try them"
    return "passkeys need a domain and https: set IDENTITY_BASE_URL to such an address"


def check_passkey_hosts(store: Storage, base_url: str) -> Iterator[Advice]:
    """Yield advice for passkeys of other hosts than the base URL's. Every passkey is read."""
    passkeys, own = store.records(PASSKEYS), host_of(base_url)
    hosts = passkeys.read_from_many(passkeys.ids(), lambda passkey: passkey.rp_id)
    for host, number in sorted(Counter(hosts).items()):
        if host != own:
            yield Advice(
                f"{pluralize(number, 'passkey')} for {host}: no browser offers them at {base_url}",
                f"set IDENTITY_BASE_URL=https://{host}, or let the players add new ones",
            )


# -- emails -------------------------------------------------------------------------------------


def check_emails(store: Storage, values: dict) -> Iterator[Advice]:
    """Yield advice if apps may get emails that nobody verifies. Without mail, every app is read."""
    if values["SMTP_URL"]:
        return
    ids = store.clients.ids()
    apps = store.clients.read_from_many(ids, lambda each: each.name if may_get_email(each) else "")
    if names := sorted(filter(None, apps)):
        more = f" and {pluralize(len(names) - 1, 'more app')}" if names[1:] else ""
        yield Advice(
            f"{names[0]}{more} may ask for emails, which are not verified: if such a program "
            "recognises people by their email, anybody can become anybody there",
            "set IDENTITY_SMTP_URL and IDENTITY_MAIL_FROM, or for each of these apps run "
            "`identity-server client set CLIENT_ID --no-email`",
        )


# -- network ------------------------------------------------------------------------------------


def check_access(values: dict) -> Iterator[Advice]:
    """Yield advice on settings that open the server too far."""
    host = host_of(values["BASE_URL"])
    if values["BASE_URL"].startswith("http:") and is_public_host(host):
        yield Advice(
            "passwords and tokens travel unencrypted: IDENTITY_BASE_URL is http on a public name",
            "put nginx with a certificate in front (deploy/nginx.conf), and set "
            f"IDENTITY_BASE_URL=https://{host}",
        )
    anyone = values["SIGN_UP"] in ("open", "approval")
    if anyone and not values["PROXIES"] and not is_loopback(host):
        yield Advice(
            "anyone may sign up, and no proxy in front limits the rate of requests",
            "put nginx in front (deploy/nginx.conf) and set IDENTITY_PROXIES=1, or set "
            "IDENTITY_SIGN_UP=invite",
        )


def check_addresses(values: dict, bind_host: str, bind_port: int) -> Iterator[Advice]:
    """Yield advice if the base URL or the number of proxies does not suit the address of --bind."""
    base_url, proxies = values["BASE_URL"], values["PROXIES"]
    host = host_of(base_url)
    port = int((re.search(r":([0-9]+)$", base_url) or ("", "80"))[1])
    listens = f"{bind_host}:{bind_port}"
    if proxies and not is_loopback(bind_host):
        yield Advice(
            f"clients that reach {listens} past the proxy can forge the address that limits count",
            f"use --bind 127.0.0.1:{bind_port}, or let a firewall admit only the proxy",
        )
    elif not proxies and is_loopback(bind_host) and not is_loopback(host):
        yield Advice(
            f"only this machine reaches {listens}, so a proxy must be in front, but "
            "IDENTITY_PROXIES is 0: rate limits count all clients as one address",
            "set IDENTITY_PROXIES=1",
        )
    elif not proxies and is_loopback(host) and not is_loopback(bind_host):
        yield Advice(
            f"other machines reach {listens} and get 400: the server answers to {host} only",
            "set IDENTITY_BASE_URL to the address that browsers use, or use "
            f"--bind 127.0.0.1:{bind_port}",
        )
    elif not proxies and port != bind_port:
        yield Advice(
            f"links lead to {base_url}, but the server listens at port {bind_port}",
            f"use --bind {bind_host}:{port}, or give IDENTITY_BASE_URL the port {bind_port}",
        )
