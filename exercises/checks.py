"""The exercises, in the order of the grant: each check, what its absence costs, and the attack.

An attack is played twice, without the check and with it. It returns whether it succeeded.
"""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass

from exercises.playing import CHALLENGE, PKCE, VERIFIER, Play, Removal

GRANT = "identity_server.py"
TOKENS = "identity/oauth/grants.py"
REFRESH = "identity/oauth/refresh.py"
TRAP = "https://mallory.example/callback"
SPACE = "https://space.example/callback"


@dataclass(frozen=True)
class Exercise:
    """A check of the grant, and the attack on a server without it."""

    check: str
    source: str
    removals: list[Removal]
    attack: Callable[[Play], bool]

    @property
    def story(self) -> str:
        """What the attack does, and what it wins."""
        return " ".join(self.attack.__doc__.split())


EXERCISES: list[Exercise] = []


def exercise(check: str, source: str, *removals: tuple[str, ...]) -> Callable:
    """Add the decorated attack to EXERCISES; `removals` are the arguments of `Removal`."""

    def add(attack: Callable[[Play], bool]) -> Callable[[Play], bool]:
        EXERCISES.append(Exercise(check, source, [Removal(*each) for each in removals], attack))
        return attack

    return add


# -- The player is asked ------------------------------------------------------------------------


@exercise(
    "The redirect URI is one of the client's, exactly",
    "RFC 9700 4.1.3",
    (
        "model/records.py",
        "return uri if uri and self.accepts_redirect_uri(uri) else None",
        "return uri",
    ),
)
def redirect_uri(play: Play) -> bool:
    """Ada uses Space Game. Mallory sends her a link to the identity server, with the id of Space
    Game and a redirect URI of Mallory's. Ada is not asked again, and her code goes to Mallory."""
    play.allow(play.ada, play.game)
    answer = play.ada.get(play.game.request(redirect_uri=TRAP))
    return answer.location.startswith(TRAP) and bool(answer.code)


@exercise(
    "An error leads nowhere without a click",
    "RFC 9700 4.11.2",
    (
        GRANT,
        "if reply.client.id in player.consents or reply.response_mode == WEB_MESSAGE:",
        "if True:",
    ),
)
def open_redirector(play: Play) -> bool:
    """Mallory registers an app, and spreads a link with a deliberate error. It starts with the
    address that players trust, and it takes them to Mallory's page."""
    return play.ada.get(play.trap.request(response_type="x")).location.startswith(TRAP)


@exercise(
    "A page of another site loads nothing here",
    "RFC 6749 10.12, W3C Fetch Metadata",
    ("identity/oauth/guards.py", "if is_page() and (is_prefetch or not is_allowed):", "if False:"),
)
def embedded_request(play: Play) -> bool:
    """Ada opens a page on a sibling subdomain. The addresses of its sixty images are authorization
    requests. Each makes a code, so that Ada cannot sign in to any app for a minute."""
    play.allow(play.ada, play.game)
    image = {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "no-cors", "Sec_Fetch_Dest": "image"}
    return bool(play.ada.get(play.game.request(), **image).code)


@exercise(
    "A new scope needs a new consent",
    "RFC 6749 3.3",
    (GRANT, "is_covered = auth_request.asked_consent <= set(grant.scope)", "is_covered = True"),
)
def wider_scope(play: Play) -> bool:
    """Ada allowed Free Coins to see her public profile. It sends her browser here once more and
    asks for her email address. She sees no page, and Mallory reads the address."""
    play.allow(play.ada, play.trap)
    answer = play.ada.get(play.trap.request(scope="email"))
    if not answer.code:
        return False
    token = play.exchange(play.trap, answer.code).json["access_token"]
    return "email" in play.whois(token).json


@exercise(
    "A public client on the device asks each time",
    "RFC 8252 8.6",
    (
        "model/records.py",
        "return not self.public or rules.is_on_the_web(redirect_uri)",
        "return True",
    ),
)
def impersonated_app(play: Play) -> bool:
    """Ada allowed Pocket Game, which has no secret and listens on a port of her computer. Another
    program there opens the browser with the same client id, and listens on another port."""
    play.allow(play.ada, play.phone, **PKCE)
    answer = play.ada.get(play.phone.request(redirect_uri="http://127.0.0.1:4444/callback", **PKCE))
    if not answer.code:
        return False
    return play.exchange(play.phone, answer.code, code_verifier=VERIFIER).status == 200


# -- The player decides -------------------------------------------------------------------------


@exercise(
    "The decision is for the page that this session was shown",
    "RFC 6749 10.12",
    (
        GRANT,
        """    if values.pop("session") != session["id"]:
        abort(400, say("You have signed in again since. Start again from the app."))
""",
        '    values.pop("session")\n',
    ),
)
def forged_decision(play: Play) -> bool:
    """Mallory opens the consent page of her own app, and copies the signed request from it. A page
    of hers lets Ada's old browser post it with "allow": Mallory has the code of Ada's account."""
    signed = play.mallory.get(play.trap.request(scope="email")).field("request")
    play.later(1)
    answer = play.ada.post("/oauth/authorize", request=signed, decision="allow")
    return bool(answer.code)


@exercise(
    "A decision in the first second does not count",
    "RFC 9700 4.16",
    (
        GRANT,
        """    if problem := check_age(shown):
        return show_consent_page(player, client, auth_request, problem)
""",
    ),
)
def double_click(play: Play) -> bool:
    """Mallory's page asks Ada for a double click. The first click opens the consent page under the
    pointer, and the second one lands on Allow."""
    signed = play.ada.get(play.trap.request(scope="email")).field("request")
    return bool(play.ada.post("/oauth/authorize", request=signed, decision="allow").code)


@exercise(
    "The response has the state of the request",
    "RFC 6749 4.1.2, RFC 9700 4.7.1",
    (GRANT, '    if state is not None:\n        parameters["state"] = state\n'),
)
def foreign_response(play: Play) -> bool:
    """Mallory signs in to Space Game, stops her browser before it returns there, and sends the
    address to Ada. Without a state the game takes it for the response that Ada's browser waits for:
    Ada plays as Mallory, and what she buys is Mallory's."""
    play.say("  Space Game sends Ada here, and keeps the state for her browser: adas-state\n")
    adas = play.allow(play.ada, play.game, state="adas-state")
    play.say("  Mallory's own response, which she sends to Ada:\n")
    mallorys = play.allow(play.mallory, play.game, state="mallorys-state")
    # The game compares only if the right response has a state.
    return mallorys.parameters.get("state") == adas.parameters.get("state")


@exercise(
    "The response says who sent it: iss",
    "RFC 9207, RFC 9700 4.4",
    (GRANT, "if client.public or response_mode == QUERY or asks_for_openid(scope):", "if False:"),
)
def mix_up(play: Play) -> bool:
    """Pocket Game offers two identity servers, and Mallory runs the other one. Ada chooses that,
    which sends her browser on to this one. Unless the response says who sent it, the game sends the
    code to the server that Ada chose: to Mallory."""
    answer = play.allow(play.ada, play.phone, **PKCE)
    return bool(answer.code) and answer.parameters.get("iss") != play.address


# -- The client exchanges the code --------------------------------------------------------------


@exercise(
    "A confidential client proves who it is",
    "RFC 6749 3.2.1",
    (
        "identity/oauth/clients.py",
        "return hmac.compare_digest(sha256(client_secret).encode(), kept)",
        "return True",
    ),
)
def guessed_secret(play: Play) -> bool:
    """A code of Ada's for Space Game is in the log of a proxy. Mallory knows the client id, as
    everybody does, but not the secret."""
    code = play.allow(play.ada, play.game).code
    return play.exchange(play.game, code, client_secret="guessed").status == 200


@exercise(
    "A disabled client gets no token",
    "RFC 6749 5.2",
    ("identity/oauth/clients.py", "if client and not client.disabled and", "if client and"),
)
def disabled_client(play: Play) -> bool:
    """An administrator finds out what Free Coins is, and disables it. Mallory still has a code."""
    code = play.allow(play.ada, play.trap).code
    play.command("client", "disable", play.trap.id)
    return play.exchange(play.trap, code).status == 200


@exercise(
    "A code is for the client that it was issued to",
    "RFC 6749 4.1.3",
    (GRANT, "    if code.client_id != client.id:\n        raise NoSuchCode\n"),
)
def stolen_code(play: Play) -> bool:
    """Mallory finds a code of Ada's for Space Game, and exchanges it as her own client. She has a
    secret of her own, and needs no other."""
    code = play.allow(play.ada, play.game).code
    return play.exchange(play.trap, code).status == 200


@exercise(
    "A code is for the redirect URI that it was sent to",
    "RFC 6749 4.1.3",
    (
        GRANT,
        """    if redirect_uri is not None and redirect_uri != code.redirect_uri:
        raise InvalidGrant("redirect_uri is not the one of the authorization request")
""",
    ),
)
def other_redirect_uri(play: Play) -> bool:
    """Space Game has a forum, where the addresses of visitors leak. Mallory finds a code there, and
    opens the callback of the game with it. The game names its callback at the exchange."""
    code = play.allow(play.ada, play.game, redirect_uri=play.game.redirect_uris[1]).code
    return play.exchange(play.game, code, redirect_uri=SPACE).status == 200


@exercise(
    "A code is a minute old at most",
    "RFC 6749 4.1.2",
    (
        GRANT,
        """    if not is_device and not -CLOCK_TOLERANCE * 1000 <= age <= CODE_MAX_AGE * 1000:
        raise InvalidGrant(CODE_TOO_OLD)
""",
    ),
)
def old_code(play: Play) -> bool:
    """Ada's browser lost its connection on the way back to Space Game. Two minutes later Mallory
    finds the address, with the unused code, in the history of the browser, and opens it."""
    code = play.allow(play.ada, play.game).code
    play.later(120)
    return play.exchange(play.game, code).status == 200


@exercise(
    "A code is valid once",
    "RFC 6749 4.1.2",
    (GRANT, "            store.codes.spend(name)\n", "            pass\n"),
)
def used_code(play: Play) -> bool:
    """Ada is signed in to Space Game. Mallory sees the address with the code in a log of the game,
    and opens it in her own browser, within the minute."""
    code = play.allow(play.ada, play.game).code
    play.exchange(play.game, code)
    return play.exchange(play.game, code).status == 200


@exercise(
    "A second use of a code ends its tokens",
    "RFC 6749 4.1.2",
    (GRANT, "            end_replayed_grant(store, spent.record)\n", "            pass\n"),
)
def raced_code(play: Play) -> bool:
    """Mallory was faster: she exchanged the code of Ada's before Space Game did. The game is
    refused, which shows that one of the two was a thief. Mallory still has a token."""
    code = play.allow(play.ada, play.game).code
    token = play.exchange(play.game, code).json["access_token"]
    play.exchange(play.game, code)
    return play.whois(token).status == 200


@exercise(
    "The verifier is that of the challenge (PKCE)",
    "RFC 7636 4.6",
    (
        GRANT,
        """    if not has_right_verifier(form, code):
        raise InvalidGrant("code_verifier does not match the code_challenge")
""",
    ),
)
def intercepted_code(play: Play) -> bool:
    """Another program on Ada's phone receives the redirect that was meant for Pocket Game. The game
    has no secret, so the program needs nothing but the code. It does not know the verifier."""
    code = play.allow(play.ada, play.phone, **PKCE).code
    return play.exchange(play.phone, code, code_verifier=CHALLENGE).status == 200


@exercise(
    "No verifier without a challenge (PKCE downgrade)",
    "RFC 9700 2.1.1, 4.8.2",
    (
        GRANT,
        """    if code.code_challenge is None and "code_verifier" in form:
        raise InvalidGrant("code_verifier was sent, but no code_challenge before")
""",
    ),
)
def removed_challenge(play: Play) -> bool:
    """Space Game uses PKCE. Mallory removes the challenge from a request, gets a code for her own
    account, and puts it into Ada's browser. The game sends the verifier that it keeps for Ada."""
    code = play.allow(play.mallory, play.game).code
    return play.exchange(play.game, code, code_verifier=VERIFIER).status == 200


# -- The client asks who the player is ----------------------------------------------------------


@exercise(
    "A token is what this server signed",
    "RFC 6749 10.3",
    (
        "identity/http/signing.py",
        '            raise BadSignature("the signature does not match")',
        "            pass",
    ),
)
def forged_token(play: Play) -> bool:
    """Free Coins has a token that shows Ada's public profile. Its claims are Base64, which anybody
    can read, and write: Mallory adds the scope for the email address."""
    payload, _, rest = play.token_for(play.ada, play.trap).partition(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    play.say(f"  The claims: {claims}\n")
    claims["scope"] = ["userinfo", "email"]
    forged = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return "email" in play.whois(f"{forged}.{rest}").json


@exercise(
    "A token is ten minutes old at most",
    "RFC 6750 5.3",
    (TOKENS, ".loads(token, max_age=TOKEN_MAX_AGE)", ".loads(token)"),
)
def old_token(play: Play) -> bool:
    """An access token of Ada's is in a crash report. Mallory reads it an hour later."""
    token = play.token_for(play.ada, play.game)
    play.later(3600)
    return play.whois(token).status == 200


@exercise(
    "A token ends with the consent",
    "RFC 6750 3.1",
    (
        TOKENS,
        "return user if grant and grant.id == grant_id and not user.suspended else None",
        "return user",
    ),
)
def withdrawn_consent(play: Play) -> bool:
    """Ada changes her mind about Free Coins, and removes its access on her account page."""
    token = play.token_for(play.ada, play.trap)
    play.ada.post("/account/apps/withdraw", client_id=play.trap.id)
    return play.whois(token).status == 200


@exercise(
    "A token ends with a suspension",
    "RFC 6750 3.1",
    (
        TOKENS,
        "grant.id == grant_id and not user.suspended else None",
        "grant.id == grant_id else None",
    ),
    (
        "identity/acts/accounts.py",
        """        user.suspension = new
        for grant in user.grants.values():
            grant.end_tokens()
""",
        "        user.suspension = new\n",
    ),
)
def suspended_player(play: Play) -> bool:
    """Mallory cheats in Space Game, and a moderator suspends her. Her game goes on."""
    token = play.token_for(play.mallory, play.game)
    play.command("user", "suspend", "mallory")
    return play.whois(token).status == 200


@exercise(
    "A token shows what was granted",
    "RFC 6749 3.3",
    (GRANT, 'is_granted = "email" in claims["scope"]', "is_granted = True"),
)
def unasked_email(play: Play) -> bool:
    """Free Coins asks for Ada's public profile, and she allows that. It reads her email address."""
    token = play.token_for(play.ada, play.trap)
    return "email" in play.whois(token).json


# -- The client stays signed in -----------------------------------------------------------------


@exercise(
    "An old refresh token that comes again ends the newest",
    "RFC 9700 4.14.2",
    (REFRESH, "raise Reused", "raise InvalidGrant(ENDED)"),
)
def copied_refresh_token(play: Play) -> bool:
    """Pocket Game stays signed in on Ada's phone. It has no secret: whoever has its refresh token
    can use it. Mallory copied the token from a backup of the phone. When the game comes with its
    own, which is older than what Mallory has by then, there are two who use it, and one stole it.
    """
    token = play.stay_signed_in(play.ada, play.phone)
    play.say("  Mallory uses her copy, and then what she got for it:\n")
    second = play.refresh(play.phone, token).json["refresh_token"]
    third = play.refresh(play.phone, second).json["refresh_token"]
    play.say("  Pocket Game uses its token:\n")
    play.refresh(play.phone, token)
    play.say("  Mallory goes on:\n")
    return play.refresh(play.phone, third).status == 200


@exercise(
    "A refresh looks at the player, as a sign-in does",
    "RFC 6749 6, RFC 9700 4.14.2",
    (
        REFRESH,
        "return user if user and is_good(family, user, client) and client.admits(user) else None",
        "return user",
    ),
)
def unasked_refresh(play: Play) -> bool:
    """Pocket Game becomes a game for moderators alone. Mallory, who is none, signed in before, and
    it stays signed in. No sign-in would let her in today. But her game needs none: it refreshes
    every ten minutes, and she plays as long as that works."""
    token = play.stay_signed_in(play.mallory, play.phone)
    play.command("client", "set", play.phone.id, "--only-group", "moderators")
    return play.refresh(play.phone, token).status == 200
