"""The blueprints of all pages."""

from pages.account import account
from pages.admin_apps import admin_apps
from pages.admin_players import admin_players
from pages.chat import chat
from pages.developer import developer
from pages.device import device
from pages.discovery import discovery
from pages.documentation import documentation
from pages.files import files
from pages.games import games
from pages.invitations import invitations
from pages.log import log
from pages.logout import logout
from pages.look import look
from pages.moderation import moderation
from pages.overview import overview
from pages.passkeys import passkeys
from pages.players import players
from pages.recovery import recovery
from pages.reports import reports
from pages.sign_in import sign_in
from pages.sign_up import sign_up
from pages.tester import tester
from pages.unsent import unsent
from pages.welcome import welcome

BLUEPRINTS = [
    files,
    sign_in,
    sign_up,
    recovery,
    welcome,
    logout,
    account,
    players,
    moderation,
    reports,
    unsent,
]
BLUEPRINTS += [invitations, admin_players, admin_apps, log, look, overview, chat]
BLUEPRINTS += [passkeys, games, developer, device, documentation, tester, discovery]
