"""Warnings about an installation, each with a fix, for `settings` and `serve`."""

import ipaddress
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from shlex import quote

from identity.settings import ROOT, host_of
from storage.flat_files.problems import user_name

MIN_FREE_SPACE = 200 * 2**20  # bytes
MIN_FREE_FILES = 10_000  # inodes: a player takes six
CLOCK_SLACK = 60  # seconds
MAX_CODE_AGE = 10 * 365 * 86_400  # seconds: a later clock is taken for wrong
# RFC 6762, 6761, 8375, and suffixes that home routers use. A name without a dot is private, too.
PRIVATE_NAME = re.compile(r"[^.]+|.*\.(local|localhost|internal|home\.arpa|lan|home|test)")


@dataclass(frozen=True)
class Advice:
    """A problem and its fix, each as a clause that starts in lower case and has no full stop."""

    problem: str
    fix: str


def check_environment(values: dict, bind: tuple[str, int]) -> list[Advice]:
    """Return what looks wrong with these settings, their folders and this machine."""
    found = [*check_clock(values), *check_folders(values), *check_disk_space(values)]
    # In a container the port mapping of the host decides who reaches the address of --bind.
    if os.getpid() != 1:
        found += check_addresses(values, *bind)
    return [*found, *check_access(values)]


# -- network ------------------------------------------------------------------------------------


def is_loopback(host: str) -> bool:
    """Return True for a host that only this machine reaches."""
    return host == "localhost" or host.endswith(".localhost") or _is_address(host, "is_loopback")


def is_public(host: str) -> bool:
    """Return True for a host that may be reached from the internet."""
    address = re.fullmatch(r"\[.*\]|[0-9.]+", host)
    return _is_address(host, "is_global") if address else not PRIVATE_NAME.fullmatch(host)


def _is_address(host: str, kind: str) -> bool:
    try:
        return getattr(ipaddress.ip_address(host.strip("[]")), kind)
    except ValueError:
        return False


def check_access(values: dict) -> Iterator[Advice]:
    """Find settings that open the server too far."""
    host = host_of(values["BASE_URL"])
    if values["BASE_URL"].startswith("http:") and is_public(host):
        yield Advice(
            "passwords and tokens travel unencrypted: IDENTITY_BASE_URL is http on a public name",
            "put nginx with a certificate in front (deploy/nginx.conf), and set "
            f"IDENTITY_BASE_URL=https://{host}",
        )
    if values["SIGN_UP"] == "open" and not values["PROXIES"] and not is_loopback(host):
        yield Advice(
            "anyone may sign up, and no proxy in front limits the rate of requests",
            "put nginx in front (deploy/nginx.conf) and set IDENTITY_PROXIES=1, or set "
            "IDENTITY_SIGN_UP=invite",
        )


def check_addresses(values: dict, bind_host: str, bind_port: int) -> Iterator[Advice]:
    """Compare the base URL and the number of proxies with the address of --bind."""
    base_url, proxies = values["BASE_URL"], values["PROXIES"]
    host = host_of(base_url)
    port = int((re.search(r":([0-9]+)$", base_url) or ("", "80"))[1])
    listens = f"{bind_host}:{bind_port}"
    if proxies and not is_loopback(bind_host):
        yield Advice(
            f"clients that reach {listens} past the proxy can forge the address that limits count",
            f"use --bind 127.0.0.1:{bind_port}, or let a firewall admit only the proxy",
        )
    elif not proxies and is_loopback(bind_host) and not is_loopback(host):
        yield Advice(
            f"only this machine reaches {listens}, so a proxy must be in front, but "
            "IDENTITY_PROXIES is 0: rate limits count all clients as one address",
            "set IDENTITY_PROXIES=1",
        )
    elif not proxies and is_loopback(host) and not is_loopback(bind_host):
        yield Advice(
            f"other machines reach {listens} and get 400: the server answers to {host} only",
            "set IDENTITY_BASE_URL to the address that browsers use, or use "
            f"--bind 127.0.0.1:{bind_port}",
        )
    elif not proxies and port != bind_port:
        yield Advice(
            f"links lead to {base_url}, but the server listens at port {bind_port}",
            f"use --bind {bind_host}:{port}, or give IDENTITY_BASE_URL the port {bind_port}",
        )


# -- folders, disk, clock -----------------------------------------------------------------------


def check_folders(values: dict) -> Iterator[Advice]:
    """Find folders and keys that others can read, or that this process cannot write."""
    data_dir, keys = values["DATA_DIR"], f"{values['DATA_DIR']}/secret_key"
    for path, mode in ((data_dir, "700"), (keys, "600")):
        readable = os.path.isdir(data_dir) and os.path.exists(path)
        if readable and os.stat(path).st_mode & 0o077:
            fix = f"chmod {mode} {quote(path)}"
            yield Advice(f"other users of this machine can read {path}", fix)
    for name in ("DATA_DIR", "PICTURE_DIR"):
        yield from check_folder(f"IDENTITY_{name}", values[name])


def check_folder(variable: str, folder: str) -> Iterator[Advice]:
    """Find out why this process cannot write in a folder, or cannot create it."""
    existing = folder
    while not os.path.exists(existing):
        existing = os.path.dirname(existing)
    owner, runs_as = user_name(os.stat(existing).st_uid), user_name(os.geteuid())
    if not os.path.isdir(existing):
        yield Advice(f"{existing} is not a folder", f"set {variable} to a folder")
    elif existing == folder and owner != runs_as:
        yield Advice(
            f"{folder} belongs to {owner}, and this runs as {runs_as}: files of one "
            "cannot be read by the other",
            f"run every command as {owner} (sudo -u {owner} ...), or "
            f"chown -R {runs_as} {quote(folder)}",
        )
    elif not os.access(existing, os.W_OK | os.X_OK, effective_ids=True):
        if owner == runs_as:
            fix = f"chmod u+rwx {quote(existing)}"
        elif os.access(existing, os.X_OK, effective_ids=True):
            fix = f"install -d -o {runs_as} {quote(folder)}, as root"
        else:
            fix = f"set {variable} to another folder"
        yield Advice(f"{runs_as} cannot write in {existing}", fix)


def check_disk_space(values: dict) -> Iterator[Advice]:
    """Find disks with little room for more records and pictures."""
    folders = [values[each] for each in ("PICTURE_DIR", "DATA_DIR") if os.path.exists(values[each])]
    disks = {os.stat(each).st_dev: each for each in folders}
    for folder in disks.values():
        disk = os.statvfs(folder)
        free = disk.f_bavail * disk.f_frsize
        fix = "free some space: nothing can be saved on a full disk"
        if free < MIN_FREE_SPACE:
            yield Advice(f"only {free // 2**20} MiB are free on the disk of {folder}", fix)
        if disk.f_files and disk.f_favail < MIN_FREE_FILES:  # 0: the file system has no limit
            problem = f"only {disk.f_favail} more files fit on the disk of {folder} (df -i)"
            yield Advice(problem, fix)


def check_clock(values: dict) -> Iterator[Advice]:
    """Find a clock that was set back, or that is far from the date of the code."""
    now = time.time()
    installed = os.stat(f"{ROOT}/identity_server.py").st_mtime
    # The mtime of a folder is that of the newest record in it.
    places = [f"{values['DATA_DIR']}/{name}" for name in ("users", "codes", "audit.log")]
    newest = max([os.stat(each).st_mtime for each in places if os.path.exists(each)], default=0)
    if not max(newest, installed) - CLOCK_SLACK <= now <= installed + MAX_CODE_AGE:
        why = "before the newest record was saved" if now < newest else "far from the code's date"
        yield Advice(
            f"the clock says {time.strftime('%d %B %Y, %H:%M', time.gmtime(now))} UTC, {why}",
            "set the clock (timedatectl set-ntp true): codes, tokens and sessions expire by it",
        )
