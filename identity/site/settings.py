"""The settings: environment variables, read once and checked; an error message says the fix."""

import os
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from identity.site.catalogues import LANGUAGES
from model.addresses import check_email
from model.rules import SITE_NAME_LENGTH, check_game_url, is_on_the_web, origin_of
from model.texts import find_unprintable, show_character
from model.words import say
from storage import check_url

ROOT = str(Path(__file__).parents[2])  # a checkout, or site-packages
IS_WHEEL = os.path.isdir(os.path.join(ROOT, "identity", "templates"))  # setup.cfg puts them there
# The folder of templates, static files and examples; a wheel has them inside `identity`.
RESOURCES = os.path.join(ROOT, "identity") if IS_WHEEL else ROOT
# Not in site-packages, whose folders pip replaces: XDG Base Directory Specification.
_DATA_HOME = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
DATA = os.path.join(_DATA_HOME, "identity-server") if IS_WHEEL else ROOT
PICTURES = os.path.join(DATA, "pfp") if IS_WHEEL else os.path.join(ROOT, "static", "pfp")


@dataclass(frozen=True)
class Setting:
    """The default and the description of an environment variable, IDENTITY_ and its name."""

    default: str
    help: str


SETTINGS = {
    "STORAGE": Setting(
        "files",
        "where records and pictures are: files in the next two folders, or postgresql://...",
    ),
    "DATA_DIR": Setting(
        os.path.join(DATA, "instance"),
        "folder of the records; with a database, only of the running server's address",
    ),
    "PICTURE_DIR": Setting(PICTURES, "folder of the profile pictures; not used with a database"),
    "BASE_URL": Setting("http://127.0.0.1:8000", "where people reach this server; https in public"),
    "SITE_NAME": Setting("Identity Server", "what the pages call this site"),
    "ABOUT_URL": Setting("", "page about privacy and contact, linked in every footer"),
    "WELCOME": Setting(
        say("One account for all our games. It keeps your name, picture and play time."),
        "what guests read about this site on its home page",
    ),
    "LANGUAGE": Setting(
        "en", f"language of letters and pages for who asks for none: {', '.join(LANGUAGES)}"
    ),
    "PLAYERS": Setting("everyone", "who may see the list of players: everyone or members"),
    "INDEX_PROFILES": Setting("off", "whether search engines may list profiles: on or off"),
    "EMAIL": Setting("optional", "whether a new account needs an email: optional or required"),
    "SMTP_URL": Setting(
        "",
        "server that sends letters: smtp[s]://user:password@host:port, each part %-encoded; "
        "smtp+cleartext:// is without TLS",
    ),
    "MAIL_FROM": Setting("", "address that letters come from, such as players@example.org"),
    "SIGN_UP": Setting(
        "invite",
        "who may create an account: open, approval (a moderator lets each in), invite or closed",
    ),
    "SIGN_UPS_AN_HOUR": Setting(
        "15", "open sign-ups in half an hour to an hour after which later ones wait for approval"
    ),
    "UNCONFIRMED_DAYS": Setting(
        "7", "days after which an open sign-up ends that never confirmed its email nor played"
    ),
    "TICKET_DAYS": Setting("0", "days that an account is old before a game server accepts it"),
    "NETWORK_DAYS": Setting("90", "days for which the log and sessions keep addresses of players"),
    "CLIENT_REGISTRATION": Setting("admins", "who may register clients: admins or members"),
    "OPENID": Setting("off", "whether programs can sign players in by OpenID Connect: on or off"),
    "REFRESH_DAYS": Setting("30", "days until an app that did not ask for a player is signed out"),
    "SIGN_IN_DAYS": Setting("365", "days for which an app keeps a player signed in at most"),
    "WEBHOOK_PRIVATE": Setting(
        "off", "whether the chat may be at a private address, also by http: on or off"
    ),
    "METRICS": Setting(
        "off", "whether /metrics answers: off, on for loopback clients, or a bearer token"
    ),
    "PROXIES": Setting("", "how many proxies in front are yours; 1 if the base URL is https"),
}
CHOICES = {"SIGN_UP": ("open", "approval", "invite", "closed")}
CHOICES |= {"CLIENT_REGISTRATION": ("admins", "members")}
CHOICES |= dict.fromkeys(("OPENID", "INDEX_PROFILES", "WEBHOOK_PRIVATE"), ("on", "off"))
CHOICES |= {"LANGUAGE": tuple(LANGUAGES)}
CHOICES |= {"PLAYERS": ("everyone", "members"), "EMAIL": ("optional", "required")}
NUMBERS = {  # the least and the most
    "SIGN_UPS_AN_HOUR": (5, 100),
    "TICKET_DAYS": (0, 365),
    **dict.fromkeys(
        ("REFRESH_DAYS", "SIGN_IN_DAYS", "UNCONFIRMED_DAYS", "NETWORK_DAYS"), (1, 9999)
    ),
}
TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{16,200}=*")  # RFC 6750 2.1
WELCOME_LENGTH = 500  # characters
UNEXPANDED = re.compile(r"""^[~ ]|["'`$\\]| $""")


class SettingError(ValueError):
    """A setting cannot be used; the message names the variable and the fix."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"IDENTITY_{name} {problem}")


def read_settings(overrides: dict | None = None) -> dict:
    """Return all SETTINGS, from the environment and then `overrides`, checked.

    Values are text, and numbers for PROXIES and NUMBERS. Raises SettingError.
    """
    # Not flask.Config.from_prefixed_env: every start of the command would import Flask.
    prefix = "IDENTITY_"
    found = {k.removeprefix(prefix): v for k, v in os.environ.items() if k.startswith(prefix)}
    for name in found.keys() - SETTINGS.keys():
        problem = f"is unknown{_meant_by(name)}; the settings are {', '.join(SETTINGS)}"
        raise SettingError(name, problem)
    for name, value in found.items():
        _require_value_alone(name, value)
    defaults = {name: setting.default for name, setting in SETTINGS.items()}
    config = defaults | found | (overrides or {})
    config["BASE_URL"] = _read_base_url(config["BASE_URL"])
    config |= {name: _read_number(name, str(config[name])) for name in NUMBERS}
    config["PROXIES"] = _read_proxies(str(config["PROXIES"]), config["BASE_URL"])
    for name in ("DATA_DIR", "PICTURE_DIR"):
        config[name] = _read_folder(name, config[name])
    _require_plain_texts(config)
    if problem := check_url(config["STORAGE"]):  # it may hold a password, and is not shown
        raise SettingError("STORAGE", problem)
    for name, choices in CHOICES.items():
        if config[name] not in choices:
            expected = f"is {config[name]!r}, expected one of {', '.join(choices)}"
            raise SettingError(name, expected)
    if config["SMTP_URL"]:
        _require_mail_settings(config["SMTP_URL"], config["MAIL_FROM"])
    if config["OPENID"] == "on":
        _require_openid_settings(config["BASE_URL"])
    if config["METRICS"] != "off":
        _require_metrics_settings(config["METRICS"])
    return config


def _read_number(name: str, value: str) -> int:
    least, most = NUMBERS[name]
    if not re.fullmatch("0|[1-9][0-9]{0,3}", value) or not least <= int(value) <= most:
        unit = "a number of days" if name.endswith("DAYS") else "a number"
        raise SettingError(name, f"is {value!r}, expected {unit} from {least} to {most}")
    return int(value)


def _meant_by(name: str) -> str:
    """Return a clause that names the setting with the nearest name, or ""."""
    from difflib import get_close_matches  # no other start of the command needs it

    nearest = get_close_matches(name.upper(), SETTINGS, n=1)
    return f": perhaps IDENTITY_{nearest[0]} is meant" if nearest else ""


def _require_value_alone(name: str, value: str) -> None:
    """Raise SettingError if a value has the line end or the quotes of a file of settings.

    `docker run --env-file` keeps quotes, for one. The value may be a secret, and is not shown.
    """
    if value.endswith("\r"):
        fix = "save the file of settings with Unix line ends (sed -i 's/\\r$//' FILE)"
        raise SettingError(name, f"ends with a carriage return: {fix}")
    if re.fullmatch(r"""(["']).*\1""", value, re.DOTALL):
        raise SettingError(name, f"is in quotes ({value[0]}), which are not needed: remove them")
    if re.fullmatch(r'"[^"]*|[^"]*"', value):
        raise SettingError(name, 'has a " too many, at its beginning or end: remove it')


def _read_folder(name: str, folder: str) -> str:
    """Return the absolute path of a folder.

    One that does not exist has no character that a shell would have removed or expanded, or that
    nobody sees: it would become a new and empty installation. Raises SettingError.
    """
    if not folder:  # abspath("") is the current folder
        raise SettingError(name, "is empty, expected a folder: name one, or unset the variable")
    is_default = folder == SETTINGS[name].default
    match = UNEXPANDED.search(folder)
    odd = match[0] if match else find_unprintable(folder)
    if odd and not is_default and not os.path.isdir(folder):
        expected = "expected a folder as the system knows it, without quotes, ~ and variables"
        raise SettingError(name, f"is {folder!r}, which has {odd!r}: {expected}")
    return os.path.abspath(folder)


def _require_plain_texts(config: dict) -> None:
    """Raise SettingError for a text that the pages cannot show."""
    name, about, welcome = config["SITE_NAME"], config["ABOUT_URL"], config["WELCOME"]
    for each, text in (("SITE_NAME", name), ("WELCOME", welcome)):
        if refused := find_unprintable(text):
            raise SettingError(each, f"is {text!r}, and {show_character(refused)} can't be shown")
    if not 1 <= len(name.strip()) <= SITE_NAME_LENGTH:
        raise SettingError(
            "SITE_NAME", f"is {name!r}, expected 1 to {SITE_NAME_LENGTH} characters on one line"
        )
    if about and not re.fullmatch(r"https?://\S+", about):
        raise SettingError("ABOUT_URL", f"is {about!r}, expected an https:// or http:// address")
    if len(welcome) > WELCOME_LENGTH:
        expected = f"expected up to {WELCOME_LENGTH} characters on one line"
        raise SettingError("WELCOME", f"is {welcome!r}, {expected}")


def _require_mail_settings(url: str, sender: str) -> None:
    """Raise SettingError if no letters can be sent. The URL may hold a password."""
    try:
        parse_smtp_url(url)
    except ValueError as error:
        raise SettingError("SMTP_URL", f"{error}") from None
    if not sender or check_email(sender) or not sender.isascii():
        expected = "expected an address in ASCII such as players@example.org"
        raise SettingError("MAIL_FROM", f"is {_without_password(sender)!r}, {expected}")


SMTP_PORTS = {"smtp": 587, "smtps": 465, "smtp+cleartext": 25}  # RFC 6409, 8314, 5321


class SmtpServer(NamedTuple):
    """The server that letters are given to."""

    host: str
    port: int
    tls: bool  # from the first byte; otherwise by STARTTLS
    user: str = ""
    password: str = ""
    cleartext: bool = False  # no TLS


def parse_smtp_url(url: str) -> SmtpServer:
    """Return the server of IDENTITY_SMTP_URL. Raises ValueError, which shows no password."""
    expected = "expected smtp://host:port or smtps://user:password@host:port, each part %-encoded"
    try:
        parts = urlsplit(url)
    except ValueError:  # whose text has the password
        raise ValueError(f"cannot be used, {expected}") from None
    if url.count("@") > 1 or "#" in url or "?" in url:
        raise ValueError("has an @, # or ? in the user or the password: write %40, %23 or %3F")
    is_known = parts.scheme in SMTP_PORTS and parts.hostname and url.isprintable()
    if not is_known or parts.path not in ("", "/") or " " in url:
        raise ValueError(f"cannot be used, {expected}")
    try:
        port = parts.port or SMTP_PORTS[parts.scheme]
    except ValueError:
        raise ValueError("has a port that is no number from 1 to 65535") from None
    if bool(parts.username) != bool(parts.password):
        raise ValueError("needs a user and a password, or none of both")
    cleartext = parts.scheme == "smtp+cleartext"
    if cleartext and parts.username:
        raise ValueError("has no TLS, so it takes no password: use smtp:// or smtps://")
    credentials = [unquote(each or "") for each in (parts.username, parts.password)]
    if not "".join(credentials).isascii():  # smtplib can send no others
        raise ValueError("has letters outside ASCII in the user or the password: use others")
    return SmtpServer(parts.hostname, port, parts.scheme == "smtps", *credentials, cleartext)


def _require_openid_settings(base_url: str) -> None:
    """Raise SettingError if OpenID Connect cannot be on."""
    if base_url.startswith("http:") and is_on_the_web(base_url):
        raise SettingError("OPENID", f"is on, and needs https: IDENTITY_BASE_URL is {base_url}")


def _require_metrics_settings(value: str) -> None:
    """Raise SettingError if there can be no metrics."""
    if value != "on" and not TOKEN.fullmatch(value):  # which is a secret, and not shown
        expected = "expected off, on, or a token of 16 characters or more (openssl rand -hex 24)"
        raise SettingError("METRICS", f"cannot be used, {expected}")
    if find_spec("prometheus_client") is None:
        fix = "pip install 'identity-server[metrics]', or set IDENTITY_METRICS=off"
        raise SettingError("METRICS", f"is set, and needs the package prometheus-client: {fix}")


def _without_password(text: str) -> str:
    """Return a text without the password in a URL: settings may be swapped."""
    return re.sub("(//[^:@]*):.*@", r"\1:***@", text, flags=re.DOTALL)


def _read_base_url(url: str) -> str:
    """Return the origin in a base URL, without a slash at its end. Raises SettingError."""
    typed = url.strip().lower().rstrip("/")
    try:
        origin = origin_of(typed)
    except ValueError:
        origin = ""
    if typed != origin or not origin.startswith(("https://", "http://")):
        expected = "expected an origin without a path, such as https://id.example.org"
        raise SettingError(
            "BASE_URL", f"is {_without_password(url)!r}, {_slip_in(typed)}{expected}"
        )
    return origin


def _slip_in(base_url: str) -> str:
    """Return a clause about a usual slip in a base URL, or ""."""
    scheme, separator, _ = base_url.partition("://")
    if base_url and not separator:
        return "which does not begin with https://: "
    if not base_url.isascii():
        return "whose host is not in ASCII (write xn--..., as browsers send it): "
    if re.search(r"\.(:|$)", base_url):
        return "whose host has a full stop at its end: "
    if base_url.endswith({"https": ":443", "http": ":80"}.get(scheme, " ")):
        return f"with the port that every {scheme} address has (leave it out): "
    return ""


def _read_proxies(number: str, base_url: str) -> int:
    """Return how many proxies are in front; by default 1 for https, else 0. Raises SettingError."""
    https = base_url.startswith("https:")
    if not re.fullmatch(r"[0-9]?", number):
        expected = "expected a number from 0 to 9: how many proxies in front are yours"
        raise SettingError("PROXIES", f"is {number!r}, {expected}")
    if number == "0" and https:
        problem = "is 0, but an https base URL needs a proxy in front: set 1, or an http base URL"
        raise SettingError("PROXIES", problem)
    return int(number or https)


def host_of(origin: str) -> str:
    """Return the host of an origin, without its port."""
    return re.sub(r":[0-9]+$", "", origin.partition("://")[2])


def site_words(site_name: str, base_url: str) -> tuple[str, str]:
    """Return the site's name and host, which attackers try as passwords."""
    return site_name, host_of(base_url)


def _port_of(origin: str) -> str:
    """Return the port of an origin with its colon, or "" for the default port."""
    return re.search(r"(:[0-9]+)?$", origin)[0]


def trusted_hosts(base_url: str) -> frozenset[str]:
    """Return the host names this server accepts; all loopback names if `base_url` has one."""
    host = host_of(base_url)
    loopback = frozenset(("localhost", "127.0.0.1", "[::1]"))
    return loopback if host in loopback else frozenset((host,))


def usual_hosts(base_url: str) -> frozenset[str]:
    """Return the Host headers this server accepts: a trusted host, with or without the port."""
    port = _port_of(base_url)
    names = trusted_hosts(base_url)
    return names | {f"{name}{port}" for name in names}


def check_game(game_url: str, base_url: str) -> str | None:
    """Return what is wrong with a game URL on the site at `base_url`, or None."""
    if problem := check_game_url(game_url):
        return problem
    origin = origin_of(game_url)
    own_hosts, port = trusted_hosts(base_url), _port_of(base_url)
    if origin.partition("://")[2] in {f"{name}{port}" for name in own_hosts}:
        return "Use another origin than this site's own."
    # RFC 6265 8.5: browsers send a cookie to every port of its host, so to that game's server too.
    # On a loopback address that server is the developer's own.
    if "localhost" not in own_hosts and host_of(origin) in own_hosts:
        return "Use another host than this site's own: browsers would send it this site's cookies."
    shown_inside_https = r"https:|http://(localhost|127\.0\.0\.1)(:|$)"
    if base_url.startswith("https:") and not re.match(shown_inside_https, origin):
        return "Start with https://. Browsers show no other page inside this site."
    return None
