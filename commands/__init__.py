"""What the commands share; `identity_admin` is the program that they are part of.

Each module has the commands of one subject: `running` (serve, settings), `players` (user, flair,
audit), `clients`, `invites`, `mail`, `stats`, `archives` (backup, restore, export, import),
`upkeep` (check, rotate-key), `upgrade` (upgrade-check) and `demo`. `printing` shows records as
columns or JSON, `nightly` keeps some of the nightly archives, and `address` finds the running
server's address for links.
"""

import contextlib
import os

import click

from commands.printing import escape
from identity.site.settings import SettingError, read_settings
from model.errors import BadInstallation, NoSuchUser, StorageError
from model.records import User
from storage import Storage, check_url, open_storage
from storage.files import user_name


class Refusing(click.Group):
    """A command group that prints a refusal as one line, with exit status 1."""

    def invoke(self, ctx: click.Context):
        try:
            return super().invoke(ctx)
        except (StorageError, SettingError) as error:
            raise click.ClickException(escape(" ".join(str(error).split()))) from error
        except click.ClickException as error:
            error.message = escape(error.message)
            raise


def open_installation(url: str | None = None, fills: bool = False) -> Storage:
    """Return the storage of the settings; it is closed when the command ends.

    A `url` replaces IDENTITY_STORAGE. Raises SettingError, StorageError, and BadInstallation as
    `installation_place`, or if root `fills` an installation and nothing says whose its files are.
    """
    data_dir, picture_dir, backend = installation_place(url)
    if fills and backend == "files":
        require_owner(data_dir, "700")
        require_owner(picture_dir, "755")
    store = open_storage(data_dir, picture_dir, backend)
    return click.get_current_context().with_resource(contextlib.closing(store))


def installation_place(url: str | None = None) -> tuple[str, str, str]:
    """Return the arguments of `open_storage`, by the settings; a `url` replaces IDENTITY_STORAGE.

    Raises SettingError, and BadInstallation if root would make files that the server cannot read.
    """
    values = read_settings({"STORAGE": url} if url else None)
    if values["STORAGE"] == "files":
        require_no_root_in(values["DATA_DIR"])
    return values["DATA_DIR"], values["PICTURE_DIR"], values["STORAGE"]


def require_no_root_in(folder: str) -> None:
    """Raise BadInstallation if this runs as root, and the folder belongs to another user."""
    owner = os.stat(folder).st_uid if os.path.exists(folder) else 0
    if os.geteuid() == 0 and owner != 0:
        name = user_name(owner)
        raise BadInstallation(
            f"{folder} belongs to {name}, who could not read what root makes in it: run this as "
            f"{name}, with sudo -u {name}"
        )


def require_owner(folder: str, mode: str) -> None:
    """Raise BadInstallation if root would make this folder, or fill another user's."""
    require_no_root_in(folder)
    if os.geteuid() == 0 and not os.path.exists(folder):
        raise BadInstallation(
            f"{folder} does not exist, and root must say whose it will be: make it with "
            f"install -d -m {mode} -o USER {folder}, and run this as that user, the server's"
        )


def read_url(ctx: click.Context, param: click.Parameter, url: str) -> str:
    """Return a URL that IDENTITY_STORAGE may have. Raises BadParameter, which shows no password."""
    if problem := check_url(url):
        raise click.BadParameter(f"this {problem}")
    return url


def read_user_named(store: Storage, name: str) -> User:
    """Return the user with this name or email address. Raises NoSuchUser."""
    user = store.users.find_by_login(name)
    if user is None:
        raise NoSuchUser(f"there is no player {name!r}")
    return user
