"""The first steps of a new site, as its administrators see them until all are done or hidden."""

from collections.abc import Mapping
from typing import NamedTuple

from identity.acts.checklist import CHECKLIST
from identity.site.hosts import is_loopback
from identity.site.look import read_site_name
from identity.site.settings import SETTINGS, host_of
from identity.site.states import find_state
from identity.site.statistics import Numbers
from model.words import say
from storage import Storage


class Step(NamedTuple):
    """A step: its words, the page that does it or describes it, and whether it is done."""

    words: str
    address: str
    done: bool


def first_steps(store: Storage, config: Mapping[str, str], numbers: Numbers) -> list[Step]:
    """Return the first steps, [] once all are done or an administrator has hidden them."""
    if find_state(store, CHECKLIST):
        return []
    has_name = read_site_name(store, config) != SETTINGS["SITE_NAME"].default
    has_address = not is_loopback(host_of(config["BASE_URL"]))
    has_game = bool(numbers.games or store.clients.ids(at_most=1))
    has_guests = numbers.players > 1 or bool(store.invites.ids(at_most=1))
    steps = [
        Step(say("Name your site"), "/admin/look", has_name),
        Step(say("Let friends reach it"), "/admin/docs/administrator", has_address),
        Step(say("Set up email"), "/admin/docs/mail", bool(config["SMTP_URL"])),
        Step(say("Back up every night"), "/admin/docs/backups", numbers.backup.time > 0),
        Step(say("Register your first game"), "/developer", has_game),
        Step(say("Invite your first player"), "/admin/invitations", has_guests),
    ]
    return [] if all(each.done for each in steps) else steps
