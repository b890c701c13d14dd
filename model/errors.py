"""The errors of storage."""

from model.words import say, say_number


class StorageError(Exception):
    """Storage refuses something or cannot do it; the text is for people."""


class NotFound(StorageError):
    """There is no such record."""


class NoSuchUser(NotFound):
    """No player has this id."""


class NoSuchClient(NotFound):
    """No client has this id."""


class NoSuchCode(NotFound):
    """This authorization code was never issued, or so long ago that it was removed."""


class NoSuchPicture(NotFound):
    """There is no picture with this file name."""


class PictureRefused(StorageError):
    """An upload cannot be made into a picture."""


class NotAPicture(PictureRefused):
    """The file has none of the accepted formats."""


class BrokenPicture(PictureRefused):
    """The file is empty, cut off or damaged."""


class TooManyBytes(PictureRefused):
    """The file is too large."""


class TooManyPixels(PictureRefused):
    """Decoding the picture would need too much memory or time."""


class DecoderNotStarted(PictureRefused):
    """The process that decodes uploads cannot start, for lack of memory, say."""

    def __init__(self) -> None:
        problem = say("The site can't read pictures now. Tell the people who run this site.")
        super().__init__(problem)


class CodeSpent(StorageError):
    """This authorization code was used before; `record` is what `Codes.read` returned."""

    def __init__(self, record) -> None:
        super().__init__("this authorization code was already used")
        self.record = record


class InvalidField(StorageError):
    """A value breaks the rules of its `field`; `problem` is a whole sentence."""

    field = problem = ""  # a subclass has both

    def __init__(self, field: str = "", problem: str = "") -> None:
        self.field, self.problem = field or self.field, problem or self.problem
        super().__init__(f"{self.field}: {self.problem}")


class KeyTaken(InvalidField):
    """Another record has a key that only one may have; `other` is that record, if it is known."""

    def __init__(self, other=None) -> None:
        super().__init__()
        self.other = other


class NameTaken(KeyTaken):
    """Another player has this name, or one that looks the same."""

    field, problem = "name", say("Another player has this name. Choose a different one.")


class NameKept(NameTaken):
    """Another player gave this name up, and it is kept for them."""

    problem = say("Somebody had this name until recently. Choose another one.")


class TooManyNames(InvalidField):
    """A player keeps as many former names as one may."""


class ReportedBefore(KeyTaken):
    """This player has reported this before."""

    field, problem = "form", say("You have reported this before. A moderator reads it.")


class HandleTaken(KeyTaken):
    """This player has another handle, which never changes."""

    field, problem = "handle", "This player has another handle."


class ChangedBefore(InvalidField):
    """Another administrator has changed this since the page was opened."""

    field = "form"
    problem = say("Another administrator has just changed this. Look at it, then decide again.")


class IdTaken(InvalidField):
    """Another player has, or had, this id."""

    field, problem = "id", "Another player has, or had, this id."


class AlreadyThere(StorageError):
    """This record exists already; of a player: the same id, name and email address."""


class EmailTaken(KeyTaken):
    """Another player has this email address."""

    field, problem = "email", say("Another account has this email. Use a different one.")


class OriginTaken(KeyTaken):
    """Another client's game is on the same origin: each could ask in the other's name."""

    field, problem = "game_url", "Another game is on the same origin. Use another host or port."


class TooManyClients(StorageError):
    """A player has reached the limit on clients."""

    def __init__(self, at_most: int) -> None:
        problem = say_number(
            "One player may have %(number)s app. Delete one first.",
            "One player may have %(number)s apps. Delete one first.",
            at_most,
        )
        super().__init__(problem)


class InviteSpent(KeyTaken):
    """This invitation is used, expired or unknown."""

    field, problem = "invite", say("This invitation was used or has expired. Ask for a new one.")


class LastAdministrator(StorageError):
    """Without this player nobody could administer the site."""

    def __init__(self) -> None:
        super().__init__(say("This is the last administrator. Make another administrator first."))


class TooManyAttempts(StorageError):
    """The limit on attempts is reached; the next is possible in `retry_after` seconds."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"too many failed attempts: try again in {retry_after} seconds")
        self.retry_after = retry_after


class DamagedRecord(StorageError):
    """A record cannot be decoded; other records are not affected."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(where, problem)  # by which a process sends it to another
        self.problem = problem

    def __str__(self) -> str:
        return "{} is damaged: {}".format(*self.args)


class StorageFailed(StorageError):
    """Reading or writing failed. Nothing was saved, unless this is SaveUnconfirmed."""


class SaveUnconfirmed(StorageFailed):
    """A change may have been saved, as a later read shows: the connection was lost, say."""


class StorageFull(StorageFailed):
    """The disk or the quota of this installation is full."""


class BadInstallation(StorageError):
    """The installation cannot be used; the text says the fix."""


class BadFile(StorageError):
    """A file that a command was given cannot be read or written."""
