"""What the commands share. `identity_admin` puts them together."""

import click

import storage
from identity_settings import SettingError, read_settings

BY = "command"  # who did it, in the audit log


class Refusing(click.Group):
    """A group whose commands tell what was refused in one line, with exit status 1."""

    def invoke(self, ctx: click.Context):
        try:
            return super().invoke(ctx)
        except storage.InvalidField as error:
            words = error.field.replace("_", " ").replace("uri", "URI")
            raise click.ClickException(f"{words} {error.problem}") from error
        except (storage.StorageError, SettingError) as error:
            raise click.ClickException(" ".join(str(error).split())) from error


def open_installation() -> storage.Storage:
    """The storage that the settings point at."""
    values = read_settings()
    return storage.open_storage(values["DATA_DIR"], values["PICTURE_DIR"])


def read_user_named(store: storage.Storage, name: str) -> storage.User:
    """The player who bears this name or has this email address. Raises NoSuchUser."""
    user = store.find_user(name)
    if user is None:
        raise storage.NoSuchUser(f"there is no player {name!r}")
    return user
