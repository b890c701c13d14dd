"""What storage refuses or cannot do. Each error can be had from `storage` itself."""


class StorageError(Exception):
    """What storage refuses or cannot do; the text is for the person who reads it."""


class NotFound(StorageError):
    """There is no such record."""


class NoSuchUser(NotFound):
    """No player has this id."""


class NoSuchClient(NotFound):
    """No client has this id."""


class NoSuchCode(NotFound):
    """This authorization code was never issued, or so long ago that it was removed."""


class NoSuchPicture(NotFound):
    """There is no picture at this address."""


class PictureRefused(StorageError):
    """An upload that does not become a picture."""


class NotAPicture(PictureRefused):
    """This is none of the formats that we take."""


class BrokenPicture(PictureRefused):
    """One of the formats that we take, but empty, cut off or damaged."""


class TooManyBytes(PictureRefused):
    """The file is too large."""


class TooManyPixels(PictureRefused):
    """A file of a size that we take, whose picture would need too much memory or time."""


class CodeSpent(StorageError):
    """This authorization code was used before; `record` is what it stood for."""

    def __init__(self, record) -> None:
        super().__init__("this authorization code was already used")
        self.record = record


class InvalidField(StorageError):
    """A value breaks the rules of its field; `problem` is a whole sentence."""

    def __init__(self, field_name: str, problem: str) -> None:
        super().__init__(f"{field_name}: {problem}")
        self.field = field_name
        self.problem = problem


class NameTaken(InvalidField):
    """Another player has this name, or one that looks the same."""

    def __init__(self) -> None:
        super().__init__("name", "Another player has this name. Choose a different one.")


class IdTaken(InvalidField):
    """Another player has, or had, this id."""

    def __init__(self) -> None:
        super().__init__("id", "Another player has, or had, this id.")


class AlreadyThere(StorageError):
    """This very player is there: the same id, name and email address."""


class EmailTaken(InvalidField):
    """Another player has this email address."""

    def __init__(self) -> None:
        super().__init__("email", "Another account has this email. Use a different one.")


class OriginTaken(InvalidField):
    """Another client's game is on the same origin: each could ask in the other's name."""

    def __init__(self) -> None:
        super().__init__(
            "game_url", "Another game is on the same origin. Use another host or port."
        )


class TooManyClients(StorageError):
    """A player has as many clients as one may have."""

    def __init__(self, at_most: int) -> None:
        super().__init__(f"One player may have {at_most} apps. Delete one first.")


class InviteSpent(InvalidField):
    """This invitation is used, expired or unknown."""

    def __init__(self) -> None:
        super().__init__("invite", "This invitation was used or has expired. Ask for a new one.")


class LastAdministrator(StorageError):
    """Without this player nobody could administer the site."""

    def __init__(self) -> None:
        super().__init__(
            "This is the last administrator. Make another player an administrator first."
        )


class TooManyAttempts(StorageError):
    """The limit on guessing is reached; `retry_after` seconds from now there is room again."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"too many failed attempts: try again in {retry_after} seconds")
        self.retry_after = retry_after


class DamagedRecord(StorageError):
    """A record cannot be read as what it should be; nobody else's is affected."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where} is damaged: {problem}")
        self.problem = problem


class StorageFailed(StorageError):
    """The disk refused: what was to be saved is not saved, what stood before stands."""


class StorageFull(StorageFailed):
    """The disk, or this installation's share of it, is full."""


class BadInstallation(StorageError):
    """The data folder as a whole cannot be used; the text says the fix."""


class BadFile(StorageError):
    """A file that somebody named can be neither read as what it should be, nor written."""
