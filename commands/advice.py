"""What looks wrong with an installation, in words that say the fix: for `settings` and `serve`."""

import ipaddress
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from shlex import quote

from flask import Config

from identity.settings import ROOT, host_of
from storage.flat_files.problems import user_name

LITTLE_ROOM = 200 * 2**20  # bytes
FEW_FILES = 10_000  # that can still be made: a player takes six
CLOCK_SLACK = 60  # seconds
YEARS = 10 * 365 * 86_400  # seconds: nobody runs a program so old
# RFC 6762, 6761, 8375, and what home routers make up. A name without a dot is no public one either.
PRIVATE_NAME = re.compile(r"[^.]+|.*\.(local|localhost|internal|home\.arpa|lan|home|test)")


@dataclass(frozen=True)
class Advice:
    """One thing that looks wrong, as half a sentence, and what to do about it."""

    problem: str
    fix: str


def look_for_problems(values: Config, bind: tuple[str, int]) -> list[Advice]:
    """All that looks wrong with these settings, the folders and this machine."""
    found = [*look_at_clock(values), *look_at_folders(values), *look_at_room(values)]
    # In a container --bind says nothing of who gets there: the host's port mapping does.
    if os.getpid() != 1:
        found += look_at_addresses(values, *bind)
    return [*found, *look_at_access(values)]


# -- who reaches it, and how --------------------------------------------------------------------


def is_here(host: str) -> bool:
    """True for a host that means this machine, to itself."""
    return host == "localhost" or host.endswith(".localhost") or _is_address(host, "is_loopback")


def is_public(host: str) -> bool:
    """True for a host that could be anywhere on the internet."""
    address = re.fullmatch(r"\[.*\]|[0-9.]+", host)
    return _is_address(host, "is_global") if address else not PRIVATE_NAME.fullmatch(host)


def _is_address(host: str, kind: str) -> bool:
    try:
        return getattr(ipaddress.ip_address(host.strip("[]")), kind)
    except ValueError:
        return False


def look_at_access(values: Config) -> Iterator[Advice]:
    """Is it open to more than it should be?"""
    host = host_of(values["BASE_URL"])
    if values["BASE_URL"].startswith("http:") and is_public(host):
        yield Advice(
            "passwords and tokens travel readable: IDENTITY_BASE_URL is http on a public name",
            "put nginx with a certificate in front (deploy/nginx.conf), and set "
            f"IDENTITY_BASE_URL=https://{host}",
        )
    if values["SIGN_UP"] == "open" and not values["PROXIES"] and not is_here(host):
        yield Advice(
            "anyone may sign up, and nothing in front limits how often they try",
            "put nginx in front (deploy/nginx.conf) and set IDENTITY_PROXIES=1, or set "
            "IDENTITY_SIGN_UP=invite",
        )


def look_at_addresses(values: Config, bind_host: str, bind_port: int) -> Iterator[Advice]:
    """Does the base URL lead to where the server listens, through as many proxies as it thinks?"""
    base_url, proxies = values["BASE_URL"], values["PROXIES"]
    host = host_of(base_url)
    port = int((re.search(r":([0-9]+)$", base_url) or ("", "80"))[1])
    listens = f"{bind_host}:{bind_port}"
    if proxies and not is_here(bind_host):
        yield Advice(
            f"whoever reaches {listens} past the proxy can forge the address that limits count",
            f"use --bind 127.0.0.1:{bind_port}, or have a firewall let nobody but the proxy there",
        )
    elif not proxies and is_here(bind_host) and not is_here(host):
        yield Advice(
            f"only this machine reaches {listens}, so a proxy must be in front, but "
            "IDENTITY_PROXIES is 0: all people count as one address",
            "set IDENTITY_PROXIES=1",
        )
    elif not proxies and is_here(host) and not is_here(bind_host):
        yield Advice(
            f"other machines reach {listens}, and get 400: the server answers to {host} only",
            "set IDENTITY_BASE_URL to the address that people type, or use "
            f"--bind 127.0.0.1:{bind_port}",
        )
    elif not proxies and port != bind_port:
        yield Advice(
            f"links lead to {base_url}, but the server listens at port {bind_port}",
            f"use --bind {bind_host}:{port}, or give IDENTITY_BASE_URL the port {bind_port}",
        )


# -- folders, disk, clock -----------------------------------------------------------------------


def look_at_folders(values: Config) -> Iterator[Advice]:
    """Can nobody else read what is kept, and can whoever runs this put files there?"""
    data_dir, keys = values["DATA_DIR"], f"{values['DATA_DIR']}/secret_key"
    for path, mode in ((data_dir, "700"), (keys, "600")):
        readable = os.path.isdir(data_dir) and os.path.exists(path)
        if readable and os.stat(path).st_mode & 0o077:
            fix = f"chmod {mode} {quote(path)}"
            yield Advice(f"others on this machine may look into {path}", fix)
    for name in ("DATA_DIR", "PICTURE_DIR"):
        yield from look_at_folder(f"IDENTITY_{name}", values[name])


def look_at_folder(variable: str, folder: str) -> Iterator[Advice]:
    """Can whoever runs this put files in a folder, or make it where it is not there yet?"""
    there = folder
    while not os.path.exists(there):
        there = os.path.dirname(there)
    owner, runs_as = user_name(os.stat(there).st_uid), user_name(os.geteuid())
    if not os.path.isdir(there):
        yield Advice(f"{there} is no folder", f"set {variable} to one")
    elif there == folder and owner != runs_as:
        yield Advice(
            f"{folder} belongs to {owner}, and this runs as {runs_as}: what one of them "
            "makes, the other cannot read",
            f"run every command as {owner} (sudo -u {owner} ...), or "
            f"chown -R {runs_as} {quote(folder)}",
        )
    elif not os.access(there, os.W_OK | os.X_OK, effective_ids=True):
        if owner == runs_as:
            fix = f"chmod u+rwx {quote(there)}"
        elif os.access(there, os.X_OK, effective_ids=True):
            fix = f"install -d -o {runs_as} {quote(folder)}, as root"
        else:
            fix = f"set {variable} to a folder elsewhere"
        yield Advice(f"{runs_as} cannot write in {there}", fix)


def look_at_room(values: Config) -> Iterator[Advice]:
    """Is there room for more records and pictures?"""
    folders = [values[each] for each in ("PICTURE_DIR", "DATA_DIR") if os.path.exists(values[each])]
    disks = {os.stat(each).st_dev: each for each in folders}
    for folder in disks.values():
        disk = os.statvfs(folder)
        free = disk.f_bavail * disk.f_frsize
        fix = "make room: a full disk refuses every save"
        if free < LITTLE_ROOM:
            yield Advice(f"only {free // 2**20} MiB are free on the disk of {folder}", fix)
        if disk.f_files and disk.f_favail < FEW_FILES:  # some file systems set no limit: 0
            problem = f"only {disk.f_favail} more files fit on the disk of {folder} (df -i)"
            yield Advice(problem, fix)


def look_at_clock(values: Config) -> Iterator[Advice]:
    """Can it be as late as the clock says?"""
    now = time.time()
    installed = os.stat(f"{ROOT}/identity_server.py").st_mtime
    # A folder is as new as the newest record that was put in it.
    places = [f"{values['DATA_DIR']}/{name}" for name in ("users", "codes", "audit.log")]
    newest = max([os.stat(each).st_mtime for each in places if os.path.exists(each)], default=0)
    if not max(newest, installed) - CLOCK_SLACK <= now <= installed + YEARS:
        behind = (
            "before the newest record was saved" if now < newest else "which is hard to believe"
        )
        yield Advice(
            f"the clock says {time.strftime('%d %B %Y, %H:%M', time.gmtime(now))} UTC, {behind}",
            "set it (timedatectl set-ntp true): codes, tokens and sessions are good by the clock",
        )
