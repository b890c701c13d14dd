"""The settings: environment variables, read once, each checked with a message that says the fix."""

import os
import re
from dataclasses import dataclass

from flask import Config

from storage import check_game_url, origin_of

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # a checkout, or site-packages
IS_WHEEL = os.path.isdir(os.path.join(ROOT, "identity", "templates"))  # setup.cfg puts them there
# Templates, static files and examples: in a wheel inside a package of ours, not in site-packages.
RESOURCES = os.path.join(ROOT, "identity") if IS_WHEEL else ROOT
# In site-packages pip removes what it likes; so the XDG Base Directory Specification's folder.
_DATA_HOME = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
DATA = os.path.join(_DATA_HOME, "identity-server") if IS_WHEEL else ROOT
PICTURES = os.path.join(DATA, "pfp") if IS_WHEEL else os.path.join(ROOT, "static", "pfp")


@dataclass(frozen=True)
class Setting:
    """An environment variable, IDENTITY_ and its name."""

    default: str
    help: str


SETTINGS = {
    "DATA_DIR": Setting(os.path.join(DATA, "instance"), "folder of the records"),
    "PICTURE_DIR": Setting(PICTURES, "folder of the profile pictures"),
    "BASE_URL": Setting("http://127.0.0.1:8000", "where people reach this server; https in public"),
    "SITE_NAME": Setting("Identity Server", "what the pages call this site"),
    "ABOUT_URL": Setting("", "page about privacy and contact, linked in every footer"),
    "SIGN_UP": Setting("invite", "who may make an account: open, invite or closed"),
    "CLIENT_REGISTRATION": Setting("admins", "who may register clients: admins or members"),
    "PROXIES": Setting("", "how many proxies in front are yours; 1 where the base URL is https"),
}


class SettingError(ValueError):
    """A setting cannot be used; the text names the variable and the fix."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"IDENTITY_{name} {problem}")


def read_settings(overrides: dict | None = None) -> Config:
    """All SETTINGS, from the environment and then `overrides`, checked. Raises SettingError."""
    config = Config(ROOT, {name: setting.default for name, setting in SETTINGS.items()})
    config.from_prefixed_env("IDENTITY", loads=str)  # by default it parses JSON
    for name in config.keys() - SETTINGS.keys():
        raise SettingError(name, f"is no setting; there are {', '.join(SETTINGS)}")
    config.update(overrides or {})
    config["BASE_URL"] = _read_base_url(config["BASE_URL"])
    config["PROXIES"] = _read_proxies(str(config["PROXIES"]), config["BASE_URL"])
    for name in ("DATA_DIR", "PICTURE_DIR"):
        if not config[name]:  # else it would be whatever folder the server runs in
            raise SettingError(name, "is empty: name a folder, or leave the variable out")
        config[name] = os.path.abspath(config[name])
    if not 1 <= len(config["SITE_NAME"].strip()) <= 60 or not config["SITE_NAME"].isprintable():
        raise SettingError("SITE_NAME", "must be a name of 1 to 60 characters")
    if config["ABOUT_URL"] and not re.fullmatch(r"https?://\S+", config["ABOUT_URL"]):
        raise SettingError("ABOUT_URL", "must start with https:// or http://, or be empty")
    for name, choices in (
        ("SIGN_UP", ("open", "invite", "closed")),
        ("CLIENT_REGISTRATION", ("admins", "members")),
    ):
        if config[name] not in choices:
            raise SettingError(name, f"must be one of {', '.join(choices)}, not {config[name]!r}")
    return config


def _read_base_url(url: str) -> str:
    typed = url.strip().lower().rstrip("/")
    try:
        origin = origin_of(typed)
    except ValueError:
        origin = ""
    if typed != origin or not origin.startswith(("https://", "http://")):
        raise SettingError(
            "BASE_URL", f"must look like https://id.example.org, without a path, not {url!r}"
        )
    return origin


def _read_proxies(number: str, base_url: str) -> int:
    https = base_url.startswith("https:")
    if not re.fullmatch(r"[0-9]?", number):
        raise SettingError("PROXIES", "must be a number: how many proxies in front are yours")
    if number == "0" and https:
        raise SettingError(
            "PROXIES", "is 0, but an https base URL needs a proxy in front: set 1, or http"
        )
    return int(number or https)


def host_of(origin: str) -> str:
    """The host of an origin, without its port."""
    return re.sub(r":[0-9]+$", "", origin.partition("://")[2])


def _port_of(origin: str) -> str:
    """The port as it stands there, with its colon; "" where it is the usual one."""
    return re.search(r"(:[0-9]+)?$", origin)[0]


def trusted_hosts(base_url: str) -> frozenset[str]:
    """The names this server answers to; on a loopback address all that mean it."""
    host = host_of(base_url)
    loopback = frozenset(("localhost", "127.0.0.1", "[::1]"))
    return loopback if host in loopback else frozenset((host,))


def usual_hosts(base_url: str) -> frozenset[str]:
    """What a Host header usually is: one of this server's names, or that and the port."""
    port = _port_of(base_url)
    names = trusted_hosts(base_url)
    return names | {f"{name}{port}" for name in names}


def check_game(game_url: str, base_url: str) -> str | None:
    """What is wrong with the address of a game that the site at `base_url` is to show."""
    if problem := check_game_url(game_url):
        return problem
    origin = origin_of(game_url)
    own_hosts, port = trusted_hosts(base_url), _port_of(base_url)
    if origin.partition("://")[2] in {f"{name}{port}" for name in own_hosts}:
        return "Use another origin than this site's own."
    # RFC 6265 8.5: a cookie goes to every port of its host, so to the server of that game as well.
    # On a loopback address that is the developer's own.
    if "localhost" not in own_hosts and host_of(origin) in own_hosts:
        return "Use another host than this site's own: browsers would send it this site's cookies."
    shown_inside_https = r"https:|http://(localhost|127\.0\.0\.1)(:|$)"
    if base_url.startswith("https:") and not re.match(shown_inside_https, origin):
        return "Start with https://. Browsers show no other page inside this site."
    return None
