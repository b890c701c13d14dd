"""The settings: environment variables, read once, each checked with a message that says the fix."""

import os
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from flask import Config

from storage import HOST

ROOT = os.path.dirname(os.path.abspath(__file__))


@dataclass(frozen=True)
class Setting:
    """An environment variable, IDENTITY_ and its name."""

    default: str
    help: str


SETTINGS = {
    "DATA_DIR": Setting(os.path.join(ROOT, "instance"), "folder of the records"),
    "PICTURE_DIR": Setting(os.path.join(ROOT, "static", "pfp"), "folder of the profile pictures"),
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
    config["BASE_URL"] = _check_base_url(config["BASE_URL"])
    config["PROXIES"] = _check_proxies(str(config["PROXIES"]), config["BASE_URL"])
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


def _check_base_url(url: str) -> str:
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


def _check_proxies(number: str, base_url: str) -> int:
    https = base_url.startswith("https:")
    if not re.fullmatch(r"[0-9]?", number):
        raise SettingError("PROXIES", "must be a number: how many proxies in front are yours")
    if number == "0" and https:
        raise SettingError(
            "PROXIES", "is 0, but an https base URL needs a proxy in front: set 1, or http"
        )
    return int(number or https)


def origin_of(url: str) -> str:
    """Scheme, host and port of a URL, put together anew. Raises ValueError."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    host = re.sub(r":[0-9]*$", "", host).lower()
    if not HOST.fullmatch(host):
        raise ValueError(f"no host in {url!r}")
    default = {"https": 443, "http": 80}.get(parts.scheme)
    port = "" if parts.port in (None, default) else f":{parts.port}"
    return f"{parts.scheme}://{host}{port}"


def trusted_hosts(base_url: str) -> frozenset[str]:
    """The names this server answers to; on a loopback address all that mean it."""
    host = re.sub(r":[0-9]+$", "", base_url.partition("://")[2])
    loopback = frozenset(("localhost", "127.0.0.1", "[::1]"))
    return loopback if host in loopback else frozenset((host,))


def usual_hosts(base_url: str) -> frozenset[str]:
    """What a Host header usually is: one of this server's names, or that and the port."""
    port = re.search(r"(:[0-9]+)?$", base_url)[0]
    names = trusted_hosts(base_url)
    return names | {f"{name}{port}" for name in names}
