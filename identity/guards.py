"""Checks that refuse a request before its view runs: the host, the query, cross-site posts."""

import re

from flask import abort, current_app, request

from identity.context import base_url

# Clients post here from any site, with their own credentials; no cookie is read.
CROSS_SITE_POST_ALLOWED = "/api/oauth/token"
# Load balancers and containers ask by IP address. The response has no player data.
ANY_HOST_ALLOWED = "/healthz"


def refuse_foreign_hosts() -> None:
    """Refuse a Host that is not ours: with DNS rebinding, a page reaches us under its own name."""
    if request.path == ANY_HOST_ALLOWED:
        return
    # Flask's TRUSTED_HOSTS does not accept [::1].
    if re.sub(r":[0-9]+$", "", request.host).lower() not in current_app.config["HOSTS"]:
        abort(400, "This server has another address. Check the host name.")


def refuse_undecodable_queries() -> None:
    """Refuse a query that is not UTF-8: Werkzeug raises an error wherever it is read."""
    try:
        request.query_string.decode()
    except UnicodeDecodeError:
        abort(400, "The query of this address is not UTF-8.")


def refuse_cross_site_posts() -> None:
    """Refuse a post that a browser sends from a page of another site.

    `same-site` is refused as well: games live on sibling subdomains, where a SameSite=Lax cookie is
    sent.
    """
    if request.method in ("GET", "HEAD", "OPTIONS") or request.path == CROSS_SITE_POST_ALLOWED:
        return
    fetch_site = request.headers.get("Sec-Fetch-Site")
    if fetch_site is not None:
        is_own = fetch_site in ("same-origin", "none")
    else:  # older browsers, and all over plain http, send only Origin; other programs neither
        is_own = request.headers.get("Origin", base_url()) == base_url()
    if not is_own:
        abort(403, "This form came from another site. Open the page here and send it again.")


GUARDS = (refuse_foreign_hosts, refuse_undecodable_queries, refuse_cross_site_posts)
