"""What happens around each view: bad requests are refused, and windows isolated from openers."""

import contextlib
import re
from urllib.parse import parse_qsl, unquote_to_bytes

from flask import Response, abort, current_app, request
from werkzeug.datastructures import MultiDict
from werkzeug.exceptions import HTTPException
from werkzeug.http import parse_date, parse_range_header

from identity.http.context import base_url
from identity.http.responses import PAGE_HEADERS
from identity.oauth.authorization import SILENT, asks_for_openid
from identity.oauth.openid import is_on
from identity.oauth.terms import AUTHORIZE_PATHS
from model.words import say

# Clients post here from any site, with their own credentials; no cookie is read.
CROSS_SITE_POST_ALLOWED = ("/api/oauth/token", "/oauth/token", "/oauth/userinfo", "/oauth/logout")
CROSS_SITE_POST_ALLOWED += ("/oauth/device", "/oauth/revoke", "/oauth/introspect")
CROSS_SITE_POST_ALLOWED += ("/api/tickets", "/api/tickets/check")
# Load balancers and containers ask by IP address. The response has no player data.
ANY_HOST_ALLOWED = "/healthz"
# What pages of any site may load. No response to a GET of these depends on who is signed in.
FOR_ANY_SITE = ("/api/", "/pfp/", "/static/", "/.well-known/", "/openapi.json", "/healthz")
FOR_ANY_SITE += ("/oauth/token", "/oauth/device", "/oauth/revoke", "/oauth/introspect")
FOR_ANY_SITE += ("/oauth/userinfo", "/oauth/keys")
PICTURE = re.compile("/users/[^/]*/picture")
GIVEN_BACK = (b"state=", b"nonce=")
# A download leaves the page where it is, so that one page could follow this link again and again.
DOWNLOAD = "/account/export"
# Where the window of an app needs the page that opened it. Pages on the way there have the address
# in `next`, or `then`.
FOR_POPUPS = (*AUTHORIZE_PATHS, "/oauth/logout", "/oauth/logout/confirm")
FOR_POPUPS += ("/recover", "/recover/password", "/language")
# Windows of a game's frame are sandboxed, and such a window shows no page with a policy (HTML).
OPENED_BY_GAMES = re.compile("/play/[^/]+/signed-in|/(users|games)/[^/]+")
MOST_STEPS = 4  # on the way; each is read again from the address of the one before
ON_THE_WAY = re.compile("/(sign-in|sign-up|sign-out|terms|welcome(/[a-z]+)?)")


def drop_unsupported_range_headers() -> None:
    """Remove headers that a server has to ignore (RFC 9110) and Werkzeug refuses or fails on."""
    parsed = parse_range_header(request.headers.get("Range"))
    # 14.2: another unit, or malformed; or several ranges, which only nginx supports.
    if not parsed or parsed.units != "bytes" or len(parsed.ranges) > 1:
        request.environ.pop("HTTP_RANGE", None)
    for name in ("HTTP_IF_MODIFIED_SINCE", "HTTP_IF_RANGE"):
        try:
            parse_date(request.environ.get(name))
        except OverflowError:  # 13.1.3, 13.1.5: not a date, so there is no version for the range
            del request.environ[name]
            request.environ.pop("HTTP_RANGE", None)


def require_own_host() -> None:
    """Raise BadRequest for another Host: by DNS rebinding, a page reaches us under its own name."""
    if request.path == ANY_HOST_ALLOWED:
        return
    # Flask's TRUSTED_HOSTS does not accept [::1].
    if re.sub(r":[0-9]+$", "", request.host).lower() not in current_app.config["HOSTS"]:
        abort(400, say("This server has another address. Check the host name."))


def is_page() -> bool:
    """Return True if this request is for a page, whose response may depend on the player."""
    return not (request.path.startswith(FOR_ANY_SITE) or PICTURE.fullmatch(request.path))


def is_from_this_site() -> bool:
    """Return False if a browser sends this request for a page of another site.

    A sibling subdomain is another site here: games live there, and browsers send a SameSite=Lax
    cookie with their requests.
    """
    fetch_site = request.headers.get("Sec-Fetch-Site")
    if fetch_site is not None:
        return fetch_site in ("same-origin", "none")
    # Older browsers, all over plain http, and Chromium for a WebSocket (which nginx passes on as a
    # GET) send only Origin; other programs neither.
    return request.headers.get("Origin", base_url()) == base_url()


def require_own_frame() -> None:
    """Refuse a page (403) to other sites, except when a browser goes there (W3C Fetch Metadata).

    Images on a sibling subdomain would spend codes and exports, or tell who is signed in. So would
    prefetching, for which Chromium sends `Sec-Fetch-Site: none` whichever page asks.
    """
    fetched_as = request.headers.get("Sec-Fetch-Mode"), request.headers.get("Sec-Fetch-Dest")
    is_link = fetched_as == ("navigate", "document") and request.path != DOWNLOAD
    is_prefetch = "Sec-Purpose" in request.headers
    is_allowed = is_link or is_from_this_site() or is_silent_request()
    if is_page() and (is_prefetch or not is_allowed):
        # Not an error page, which depends on the player.
        refusal = "Only pages of this site may load this address. Open it in a tab of its own."
        abort(Response(refusal, 403, PAGE_HEADERS, content_type="text/plain"))


def is_framed() -> bool:
    """Return True if a browser loads this into a frame (W3C Fetch Metadata)."""
    return request.headers.get("Sec-Fetch-Dest") in ("iframe", "frame", "embed", "object")


def is_silent_request() -> bool:
    """Return True for an authorization request in a frame that shows no page.

    OpenID Connect Core 3.1.2.1: `prompt=none`. Its response does not depend on who is signed in.
    """
    if request.path not in AUTHORIZE_PATHS or request.method != "GET":
        return False
    # Not request.args, which raises an error for a query that is not UTF-8.
    parameters = dict(parse_qsl(request.query_string.decode(errors="replace")))
    is_silent = parameters.get("prompt") == SILENT and asks_for_openid(parameters.get("scope", ""))
    return is_silent and is_framed() and request.headers.get("Sec-Fetch-Mode") == "navigate"


def read_query(text: str) -> MultiDict:
    return MultiDict(parse_qsl(text, keep_blank_values=True))


def is_for_popups(path: str, query: MultiDict) -> bool:
    """Return True for a page of FOR_POPUPS or OPENED_BY_GAMES, or one on the way there.

    The address alone tells: if it depended on the player, so would what an opener sees.
    """
    for _ in range(MOST_STEPS):
        if not ON_THE_WAY.fullmatch(path):
            break
        path, _, text = query.get("then", query.get("next", "")).partition("?")
        query = read_query(text)
    return path in FOR_POPUPS or OPENED_BY_GAMES.fullmatch(path) is not None


def protect_from_opener(response: Response) -> Response:
    """Isolate this page from the window that opened it (Cross-Origin-Opener-Policy, in HTML).

    A page of another site would count the frames of this window, or see it close. The play page may
    keep windows that it opens, as its game may.
    """
    if not is_page():
        return response
    query = read_query(request.query_string.decode(errors="replace"))
    if request.method == "POST" and ON_THE_WAY.fullmatch(request.path):
        with contextlib.suppress(HTTPException):  # a form that is too large
            query.update(request.form)
    if not is_for_popups(request.path, query):
        is_play_page = request.path.startswith("/play/")
        policy = "same-origin-allow-popups" if is_play_page else "same-origin"
        response.headers["Cross-Origin-Opener-Policy"] = policy
    return response


def is_request_by_post() -> bool:
    """Return True for an authorization request by POST (OpenID Connect Core 3.1.2.1).

    It has a `client_id`; the form of our consent page has a `decision`.
    """
    by_post = request.method == "POST" and request.path in AUTHORIZE_PATHS and is_on()
    return by_post and "client_id" in request.form and "decision" not in request.form


def require_utf8_query() -> None:
    """Raise BadRequest for a query that is not UTF-8: Werkzeug raises an error wherever it is read.

    Werkzeug replaces such bytes that are %-encoded: they are refused in what a client gets back.
    """
    sent = request.query_string
    given_back = b"&".join(each for each in sent.split(b"&") if each.startswith(GIVEN_BACK))
    try:
        sent.decode()
        unquote_to_bytes(given_back).decode()
    except UnicodeDecodeError:
        abort(400, say("The query of this address is not UTF-8."))


def require_same_site_post() -> None:
    """Raise Forbidden for a post that a browser sends from a page of another site."""
    if request.method in ("GET", "HEAD", "OPTIONS") or request.path in CROSS_SITE_POST_ALLOWED:
        return
    if not is_from_this_site() and not is_request_by_post():
        abort(403, say("This form came from another site. Open the page here and send it again."))


GUARDS = (
    drop_unsupported_range_headers,
    require_own_host,
    require_own_frame,
    require_utf8_query,
    require_same_site_post,
)
