"""The pages of developers: registering apps and changing them."""

import contextlib
import functools

from flask import Blueprint, abort, request
from werkzeug.wrappers import Response

from identity.access.sessions import require_player
from identity.acts import apps
from identity.acts.apps import CLIENTS_EACH
from identity.acts.naming import name_owner
from identity.acts.rights import may_administer, may_manage
from identity.http.context import base_url, get_storage, mail_is_on, site_name
from identity.oauth.openid import is_on
from identity.oauth.programs import (
    Program,
    find_program_pages,
    find_warnings,
    handle_of_owner,
    program_of,
    read_named_program,
    read_page,
    split_settings,
)
from identity.site.formatting import format_hours_ago
from identity.site.pasted import unwrap
from identity.site.settings import check_game
from model.client_rules import TAGS, check_logout_uri, check_new_uris, check_opens, check_tags
from model.errors import DamagedRecord, NoSuchClient
from model.kinds import CLIENTS
from model.names import check_client_name
from model.records import Client, User
from model.rules import USER_ID, check_bio, check_groups
from pages.developer.samples import ANY_LOOPBACK, exchange_command, starting_samples
from pages.kit import forms
from pages.kit.actors import authority_of
from pages.kit.documents import DEVELOPERS
from pages.kit.paging import place_in
from pages.kit.proof import ask_proof, with_proof
from pages.kit.rendering import is_open_to_members, may_register, render_page
from pages.kit.uploads import read_images

CLIENTS_SHOWN = 100  # on one page
# Values of the field `kind`, beside "program", with the field that the `address` stands for.
KINDS = {"game": "game_url", "elsewhere": "redirect_uris", "device": "redirect_uris"}
URIS = ("redirect_uris", "post_logout_redirect_uris")  # fields with a URI on each line
WHO = {"everybody": [], "moderators": ["moderators"]}  # groups by values of the field `who`
HARMLESS = {"name", "description", "tags"}  # other fields say where codes go, and to whom
NO_ADDRESS = "Enter the address of your app."
NOWHERE = "Enter a redirect URI or a game URL."
NOWHERE_PUBLIC = "Enter a redirect URI or a game URL, or tick Sign in on another device."
NOTES = '<h2 id="good-to-know">Good to know</h2>'  # on the page of a program, before its last part

developer = Blueprint("developer", __name__)

# -- one's own clients --------------------------------------------------------------------------


def require_developer() -> User:
    """Return the signed-in player; a guest signs in. Raises Forbidden unless `may_register`."""
    player = require_player()
    if not may_register(player):
        abort(403, "Only administrators can register apps here. Ask one of them.")
    return player


@developer.get("/developer")
def show_clients() -> str:
    """Show the clients that the player manages, and the form for another one."""
    return clients_page(require_developer(), {})


def clients_page(player: User, problems: dict[str, str]) -> str:
    """Return the page of a player's clients; `problems` are of the form for another one."""
    stands_for = KINDS.get(request.form.get("kind", ""), "")
    if not request.form.get(stands_for):  # what is wrong is the address
        problems = {"address" if each == stands_for else each: problems[each] for each in problems}
    clients, more = clients_shown(player, place_in(CLIENTS, "after"))
    return render_page(
        "developer/apps.html",
        player,
        clients=[(each, name_owner(get_storage(), each)) for each in clients],
        more=more,
        clients_each=CLIENTS_EACH,
        programs=[(name, read_page(page).title) for name, page in find_program_pages().items()],
        typed=request.form if problems else {"require_pkce": "yes"},
        openid=is_on(),
        problems=problems,
        notice=forms.pop_notice(),
    )


def clients_shown(player: User, after: str | None) -> tuple[list[Client], str | None]:
    """Return the clients on one page, and the id `after` which the next page starts, or None.

    Administrators see all clients, oldest first. If there are more than CLIENTS_SHOWN, they are
    paged by id, and the first page starts with the player's own and those of the administrators.
    """
    store = get_storage()
    if not may_administer(player):
        return sorted(store.clients.of_owner(player.id), key=lambda each: each.created), None
    client_ids = store.clients.ids(after, CLIENTS_SHOWN + 1)
    are_all = not after and len(client_ids) <= CLIENTS_SHOWN
    owners = [] if after or are_all else [player.id, None]
    first = [
        each for owner in owners for each in store.clients.of_owner(owner, at_most=CLIENTS_SHOWN)
    ]
    clients = {each.id: each for each in first[:CLIENTS_SHOWN]}
    page = client_ids[: max(1, CLIENTS_SHOWN - len(clients))]  # one, for the page after it
    for client_id in page:
        with contextlib.suppress(NoSuchClient, DamagedRecord):
            clients.setdefault(client_id, store.clients.read(client_id))
    shown = list(clients.values())
    if are_all:
        shown.sort(key=lambda each: each.created)
    return shown, page[-1] if len(page) < len(client_ids) else None


@developer.post("/developer")
@forms.form_view(lambda: (require_developer(),), clients_page)
@with_proof
def register(player: User) -> Response | tuple:
    """Register a `program` at its `address`, or a client of another `kind` by `read_client_form`.

    It is confidential with a `server` of its own, "yes" if ticked.
    """
    form, kind = request.form, request.form.get("kind")
    if kind == "program":
        address = form.get("address", "").strip()
        program = read_named_program(form.get("program", ""), address)
        forms.refuse_problems(program=check_app_name(player, program.title))
        fields = program.client_fields(mail_is_on())
    elif kind not in KINDS:
        raise forms.FormRefused({"kind": "Choose what your app is."})
    else:
        public = kind == "device" or form.get("server") != "yes"
        fields = read_client_form(player, public) | {"public": public}
    by, is_open = authority_of(player), is_open_to_members()
    client, secret = apps.register_client(by, player.id, is_open, **fields)
    if secret is None:
        return forms.redirect_with_notice("App registered.", f"/developer/{client.id}")
    return show_secret(player, client, secret)


def show_secret(player: User, client: Client, secret: str) -> tuple:
    """Return the page of a client with its new secret, which no other response has.

    Its script makes `Location` the address of the page: to reload it would post once more.
    """
    return client_page(player, client, {}, secret), 201, {"Location": f"/developer/{client.id}"}


def check_app_name(player: User, name: str, kept_name: str | None = None) -> str | None:
    """Return what is wrong with the name of an app, or None.

    Only administrators may give a name like the site's; an app keeps the `kept_name` that it has.
    """
    is_free = may_administer(player) or name == kept_name
    return check_client_name(name, None if is_free else site_name())


def fill_in_address() -> dict[str, str]:
    """Return the fields of the form for a new client, with its `address` in the one of its kind."""
    form = request.form.to_dict() | {"game_url": ""}
    stands_for = KINDS[form["kind"]]
    filled_in = f"{form.get('address', '')}\n{form.get(stands_for, '')}".strip()
    if form["kind"] == "device" and form.get("device") != "yes":
        filled_in = filled_in or ANY_LOOPBACK
    return form | {stands_for: filled_in}


def read_client_form(player: User, public: bool, client: Client | None = None) -> dict:
    """Return the fields of a form: `name`, `redirect_uris` (one a line), `game_url`, `description`.

    `require_pkce`, `no_email`, `device` and a field for each tag are "yes" if ticked; `who` is
    "flair" or in WHO. The rules for a public client's URIs differ. `client` is None for a new one,
    see `fill_in_address`. Raises FormRefused.
    """
    form = request.form if client else fill_in_address()
    groups = WHO | {"flair": [f"flair:{form.get('flair', '').strip()}"]}
    fields = {
        "name": form.get("name", "").strip(),
        **{each: list(dict.fromkeys(form.get(each, "").split())) for each in URIS},
        "backchannel_logout_uri": unwrap(form.get("backchannel_logout_uri", "")),
        "only_groups": groups.get(form.get("who"), client.only_groups if client else []),
        "game_url": form.get("game_url", "").strip() or None,
        "description": form.get("description", "").strip().replace("\r\n", "\n"),
        "tags": [tag for tag in TAGS if form.get(f"tag-{tag}") == "yes"],
        "require_pkce": form.get("require_pkce") == "yes" and not public,
        "no_email": form.get("no_email") == "yes",
        "device": form.get("device") == "yes" and public,
    }
    problems = problems_of_addresses(fields, public, client)
    if client is None and not fields[KINDS[form["kind"]]] and not fields["device"]:
        problems["address"] = NO_ADDRESS
    elif not (fields["redirect_uris"] or fields["game_url"] or fields["device"]):
        problems["redirect_uris"] = NOWHERE_PUBLIC if public else NOWHERE
    forms.refuse_problems(
        name=check_app_name(player, fields["name"], client and client.name),
        **problems,
        description=check_bio(fields["description"]),
        tags=check_tags(fields["tags"]),
        flair=check_groups(fields["only_groups"]) and "Enter a flair of up to 30 characters.",
    )
    return fields


def problems_of_addresses(
    fields: dict, public: bool, client: Client | None
) -> dict[str, str | None]:
    """Return the problems of the URIs and the game URL of a form, by field, None for none.

    URIs that the client has already are not checked again: under a newer rule no other field could
    be changed.
    """
    changed = {each for each in fields if fields[each] != getattr(client, each, None)}
    problems = {each: check_new_uris(fields[each], public) for each in changed.intersection(URIS)}
    if "backchannel_logout_uri" in changed:
        problems["backchannel_logout_uri"] = check_logout_uri(fields["backchannel_logout_uri"])
    if url := fields["game_url"]:
        problem = check_game(url, base_url())
        problems["game_url"] = problem or ("game_url" in changed and check_opens(url))
    return problems


# -- one client ---------------------------------------------------------------------------------


@developer.get("/developer/<client_id>")
def show_client(client_id: str) -> str:
    """Show one client with the forms of its owner."""
    return client_page(*read_own_client(client_id), {})


def read_own_client(client_id: str) -> tuple[User, Client]:
    """Return the signed-in player and a client that they manage. Raises NoSuchClient, Forbidden."""
    player, client = require_developer(), get_storage().clients.read(client_id)
    if not may_manage(player, client):
        abort(403, "This app belongs to another player.")
    return player, client


def client_page(
    player: User, client: Client, problems: dict[str, dict[str, str]], secret: str | None = None
) -> str:
    """Return a client's page; problems are by form, then by field; a new `secret` is shown once."""
    fields = ("name", "game_url", "description", "require_pkce", "no_email", "device")
    fields += ("backchannel_logout_uri",)
    kept = {each: getattr(client, each) for each in fields}
    kept |= {each: "\n".join(getattr(client, each)) for each in URIS}
    kept |= {f"tag-{tag}": "yes" for tag in client.tags}
    kept |= who_fields(client.only_groups)
    program = None if client.public else program_of(client)
    handle = program and handle_of_owner(get_storage(), client, program)
    owner = name_owner(get_storage(), client)
    # Only then does it matter that an administrator disables the app as well.
    overruled = owner.user is not None and not may_administer(owner.user)
    return render_page(
        "developer/app.html",
        player,
        client=client,
        owner=owner,
        secret=secret,
        may_hand_over=may_administer(player),
        typed_owner=request.form.get("owner", "") if "owner" in problems else "",
        last_used=format_hours_ago(client.used),
        warnings=find_warnings(client, program, mail_is_on()),
        owner_may_enable=overruled and client.disabled_by == client.owner_id != player.id,
        typed=request.form if "client" in problems else kept,
        exchange=exchange_command(client),
        samples=starting_samples(client),
        program=program,
        settings=program and settings_of(program, client, secret, handle),
        notes=program and DEVELOPERS.read(program.name, base_url())["body"].partition(NOTES)[2],
        handle=handle,
        problems=problems,
        notice=forms.pop_notice(),
    )


def settings_of(
    program: Program, client: Client, secret: str | None, handle: str | None
) -> list[tuple[list[str], str]]:
    """Return the settings of a program for a client: blocks of code, each after its text."""
    return split_settings(program.fill_in(base_url(), client.id, secret, site_name(), handle))


def who_fields(groups: list[str]) -> dict[str, str]:
    """Return the fields of a form for these groups; if it cannot name them, `who` is "other"."""
    if len(groups) == 1 and groups[0].startswith("flair:"):
        return {"who": "flair", "flair": groups[0].removeprefix("flair:")}
    return {"who": next((who for who, each in WHO.items() if each == groups), "other")}


client_form = functools.partial(forms.form_view, read_own_client, client_page)


@developer.post("/developer/<client_id>")
@client_form("client")
def save_client(player: User, client: Client) -> Response:
    """Change a client to the fields of `read_client_form`."""
    fields = read_client_form(player, client.public, client)
    changed = {each for each, value in fields.items() if getattr(client, each) != value}
    if changed - HARMLESS:
        ask_proof(player)
    apps.change_client(authority_of(player), client.id, **fields)
    return forms.redirect_with_notice("App saved.", f"/developer/{client.id}")


@developer.post("/developer/<client_id>/cover")
@client_form("cover")
def save_cover(player: User, client: Client) -> Response:
    """Make the upload `cover` the app's cover."""
    apps.save_cover(authority_of(player), client.id, read_images(player, "cover"))
    return forms.redirect_with_notice("Cover saved.", f"/developer/{client.id}")


@developer.post("/developer/<client_id>/cover/remove")
@client_form("cover", stamped=True)
def remove_cover(player: User, client: Client) -> Response:
    """Remove the uploaded cover: the generated one takes its place."""
    apps.remove_cover(authority_of(player), client.id)
    return forms.redirect_with_notice("Cover removed.", f"/developer/{client.id}")


@developer.post("/developer/<client_id>/secret")
@client_form("secret", stamped=True)
@with_proof
def replace_secret(player: User, client: Client) -> tuple:
    """Replace a client's secret, and show the new one."""
    secret = apps.issue_client_secret(authority_of(player), client.id)
    return show_secret(player, client, secret)


@developer.post("/developer/<client_id>/disable")
@developer.post("/developer/<client_id>/enable")
@client_form("switch", stamped=True)
def switch_client(player: User, client: Client) -> Response:
    """Stop a client from getting codes and tokens, or allow it again."""
    disabled = request.path.endswith("/disable")
    if not disabled:
        ask_proof(player)
    apps.set_disabled(authority_of(player), client.id, disabled)
    notice = "App disabled." if disabled else "App enabled."
    return forms.redirect_with_notice(notice, f"/developer/{client.id}")


@developer.post("/developer/<client_id>/owner")
@client_form("owner", stamped=True)
@with_proof
def hand_over(player: User, client: Client) -> Response:
    """Give the app to the player `owner`, "" for the administrators.

    `seen` is the id of the owner that the form showed: if the owner has changed, nothing is done.
    """
    name, seen = unwrap(request.form.get("owner", "")), request.form.get("seen", "")
    owner = get_storage().users.find_by_login(name) if name else None
    if name and (owner is None or "@" in name):
        raise forms.FormRefused({"owner": "No player has this name. Type it as on their profile."})
    seen_owner = int(seen) if USER_ID.fullmatch(seen) else None
    apps.hand_over(authority_of(player), client.id, owner and owner.id, seen_owner)
    return forms.redirect_with_notice("App handed over.", f"/developer/{client.id}")


@developer.post("/developer/<client_id>/delete")
@client_form("delete", stamped=True)
def delete_client(player: User, client: Client) -> Response:
    apps.delete_client(authority_of(player), client.id)
    return forms.redirect_with_notice("App deleted.", "/developer")
