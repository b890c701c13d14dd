"""Rendering: the values and headers that pages get besides their own."""

import contextlib
from collections.abc import Callable
from typing import NamedTuple

from flask import Flask, current_app, g, render_template, request, session
from markupsafe import Markup, escape

from identity.access.sessions import query_to
from identity.acts import rights
from identity.acts.naming import name_owner
from identity.acts.notes import find_warning
from identity.acts.reports import count_waiting
from identity.http.context import base_url, get_storage, mail_is_on, site_look, site_name
from identity.http.languages import page_language, shown
from identity.http.responses import security_policy
from identity.http.stamps import issue_stamp
from identity.oauth.claims import given_email
from identity.oauth.terms import JOIN, find_pending_authorization, redirect_targets
from identity.site.door import is_asked
from identity.site.formatting import (
    DAY,
    format_age,
    format_date,
    format_duration,
    format_stamp,
    format_time,
    join_words,
)
from identity.site.languages import sentence_functions, speaking, spoken
from model.client_rules import TAGS
from model.errors import StorageError
from model.records import OFFLINE, Client, User, now_ms
from model.rules import REPORT_REASONS
from model.site_records import Look
from model.words import load_words, say, say_in
from pages.kit.files import cover_address, picture_address


def is_open_to_members() -> bool:
    return current_app.config["CLIENT_REGISTRATION"] == "members"


def may_register(player: User) -> bool:
    return rights.may_register(player, is_open_to_members())


def lists_profiles() -> bool:
    """Return True if search engines may list profiles."""
    return current_app.config["INDEX_PROFILES"] == "on"


NOTICE_DAYS = 30  # then no new session shows it
# Templates that show a game, or close at once.
WITHOUT_NOTICES = ("grant/play.html", "community/signed_in.html", "grant/web_message.html")
WITHOUT_NOTICES += ("entry/terms.html",)  # which asks itself
STAMPED_FOR_GUESTS = "entry/application.html"

IN_ENGLISH = Markup('<span lang="en">{}</span>')  # what the server or a library says
TOUCH_ICON = "/static/touch-icon.png"  # the door
# Of the images of previews, by their folder: width and height in pixels.
IMAGE_SIZES = {"/static": (180, 180), "/look": (256, 256), "/pfp/large": (256, 256)}
IMAGE_SIZES["/covers/large"] = (640, 400)


ROLES = {  # by group, in the list of what an app will see
    "players": say_in("role", "players"),
    "moderators": say_in("role", "moderators"),
    "administrators": say_in("role", "administrators"),
}


class Preview(NamedTuple):
    """What chat programs and search engines show of a page: public values only.

    `image` and `address` are paths on this server; the image is in a folder of IMAGE_SIZES.
    A page with a secret in its query has no `address`. Search engines are told not to list a page
    without one, nor one with `noindex`.
    """

    title: str
    description: str = say("One account for all our games, with your name, picture and play time.")
    image: str = TOUCH_ICON  # or the logo
    address: str | None = None
    noindex: bool = False

    @property
    def image_size(self) -> tuple[int, int]:
        return IMAGE_SIZES[self.image.rpartition("/")[0]]


def load_templates(app: Flask) -> None:
    """Load all templates, once: after an upgrade the disk has those of another version."""
    app.jinja_env.globals.update(
        site_name=site_name,
        picture_address=picture_address,
        cover_address=cover_address,
        report_reasons=REPORT_REASONS,
        tag_words=TAGS,
    )
    app.jinja_env.globals.update(sentence_functions())
    app.jinja_env.filters.update(
        date=format_date,
        day=lambda time: format_stamp(time, "%Y-%m-%d"),  # as forms have it
        time=mark_time,
        age=format_age,
        days=lambda number: format_duration(number * DAY),
        number=lambda number: spoken().number(number),
        # For the values of sentences: a name in it keeps its own direction.
        bdi=marking_up("<bdi>%s</bdi>"),
        name=marking_up('<bdi class="name">%s</bdi>'),
        host=marking_up('<bdi dir="ltr">%s</bdi>'),
        code=marking_up('<code dir="ltr">%s</code>'),
    )
    for name in app.jinja_env.list_templates():
        app.jinja_env.get_template(name)


def marking_up(template: str) -> Callable[[str], Markup]:
    """Return a filter that puts a text into a template of HTML."""
    return lambda text: Markup(template % escape(text))  # a tenth of the time of Markup.format


def mark_time(time: int, template: str = "") -> Markup:
    """Return a time in UTC as an element that static/times.js shows in the player's own zone.

    By default it has the date and the time, else what an strftime `template` says.
    """
    moment = format_stamp(time, "%Y-%m-%dT%H:%MZ")
    text = format_stamp(time, template) if template else shown(format_time(time))
    return Markup(f'<time datetime="{moment}">{escape(text)}</time>')


def render_page(
    template: str, player: User | None, preview: Preview | None = None, **values
) -> str:
    """Return a page for the signed-in player, None for a guest, on whom its navigation depends.

    The template gets the `stamp` of the forms on it, and a general `preview` unless one is given.
    """
    look, preview = site_look(), preview or Preview(site_name())
    if look.logo and preview.image == TOUCH_ICON:
        preview = preview._replace(image=f"/look/logo-{look.logo}.png")
    is_told = player and template not in WITHOUT_NOTICES
    shared = {
        "look": look,
        "contact": link_to(contact_of(look)),
        "notices": unread_notices(player) if is_told else [],
        "warned": find_warning(get_storage(), player) if is_told else None,
        "asks_terms": is_told and is_asked(player, look),
        "preview": preview,
        "site": base_url(),
        "may_register": player is not None and may_register(player),
        "stamp": issue_stamp() if player or template == STAMPED_FOR_GUESTS else None,
        "waiting": waiting_reports(player) if player else None,
        "sees_players": player is not None or current_app.config["PLAYERS"] == "everyone",
    }
    g.content_language = page_language()
    with speaking(g.content_language) as language:
        return render_template(template, player=player, language=language, **shared, **values)


def welcome_of(look: Look) -> str:
    """Return what guests read on the home page: the look's words, else those of the setting."""
    return current_app.config["WELCOME"] if look.welcome is None else look.welcome


def contact_of(look: Look) -> str:
    """Return the web or email address of the people who run the site, "" for none."""
    return current_app.config["ABOUT_URL"] if look.contact is None else look.contact


def link_to(contact: str) -> str:
    """Return where a link to a web or email address leads."""
    return contact if not contact or contact.startswith("http") else f"mailto:{contact}"


def waiting_reports(player: User) -> int | None:
    """Return how many reports and games wait for a moderator; None while storage fails."""
    with contextlib.suppress(StorageError):
        return count_waiting(get_storage(), player)
    return None


def unread_notices(player: User) -> list[str]:
    """Return what this session has not shown yet: what the sign-in left, and new notices."""
    newest = session.get("told", 0)
    oldest = now_ms() - NOTICE_DAYS * DAY * 1000
    unread = [each for each in player.notices if each.since > max(newest, oldest)]
    if unread:
        session["told"] = unread[-1].since
    told = session.pop("renamed", None), session.pop("unconfirmed", None)  # by the sign-in
    told = [load_words(each, each) for each in told if each]
    return [*told, *(load_words(each.words, each.text) for each in unread)]


def render_consent_page(
    template: str, player: User, client: Client, scope: list[str], problem: str | None, **values
) -> str:
    """Return a page that asks the player to allow a client these scopes, and shows a `problem`."""
    groups = [ROLES.get(each) or each.removeprefix("flair:") for each in player.groups]
    return render_page(
        template,
        player,
        client=client,
        owner=name_owner(get_storage(), client),
        email=given_email(player, mail_is_on()) if "email" in scope else None,
        groups=join_words(groups) if "groups" in scope else None,
        joins=JOIN in scope,
        stays=OFFLINE in scope,
        problems={"form": problem} if problem else {},
        **values,
    )


def render_guest_page(
    template: str, leads_to: str, connects: bool = False, **values
) -> tuple[str, dict[str, str]]:
    """Return a page whose form signs in and leads to an address of this server, and its headers.

    If `leads_to` is an authorization request, the page gets `client_name`, and the form may lead to
    the client. A page that `connects` has a script that sends requests to this server.
    """
    client, redirect_uri = find_pending_authorization(leads_to) or (None, None)
    client_name = client and client.name
    if request.method == "GET" and "session_error" not in g:
        session.setdefault("guest", True)  # so that the form tells whether the browser keeps it
    shown = {"next": leads_to, "next_query": query_to(leads_to), "client_name": client_name}
    page = render_page(template, None, asks_cookie=bool(session), **shown, **values)
    targets = redirect_targets(redirect_uri) if client else ""
    return page, security_policy(form_targets=targets, connects=connects)
