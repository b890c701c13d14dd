"""The blueprints of all pages."""

from pages.account.passkeys import passkeys
from pages.account.profile import account
from pages.account.security import security
from pages.admin.announcement import announcement
from pages.admin.applications import admin_applications
from pages.admin.apps import admin_apps
from pages.admin.chat import chat
from pages.admin.door import door
from pages.admin.guide import guide
from pages.admin.invitations import invitations
from pages.admin.log import log
from pages.admin.look import look
from pages.admin.networks import networks
from pages.admin.overview import overview
from pages.admin.players import admin_players
from pages.admin.reports import admin_reports
from pages.community.games import games
from pages.community.moderation import moderation
from pages.community.players import players
from pages.community.reports import reports
from pages.developer.apps import developer
from pages.developer.discovery import discovery
from pages.developer.documentation import documentation
from pages.developer.tester import tester
from pages.entry.agreement import agreement
from pages.entry.application import application
from pages.entry.device import device
from pages.entry.language import language
from pages.entry.logout import logout
from pages.entry.passkey_sign_in import passkey_sign_in
from pages.entry.recovery import recovery
from pages.entry.sign_in import sign_in
from pages.entry.sign_up import sign_up
from pages.entry.welcome import welcome
from pages.kit.files import files
from pages.kit.unsent import unsent

BLUEPRINTS = [files, unsent, language]
BLUEPRINTS += [sign_in, passkey_sign_in, sign_up, welcome, recovery, device, logout]
BLUEPRINTS += [application, agreement]
BLUEPRINTS += [account, security, passkeys]
BLUEPRINTS += [games, players, reports, moderation]
BLUEPRINTS += [developer, tester, documentation, discovery]
BLUEPRINTS += [overview, guide, admin_reports, admin_players, admin_apps]
BLUEPRINTS += [invitations, log, look, chat, announcement]
BLUEPRINTS += [admin_applications, door, networks]
