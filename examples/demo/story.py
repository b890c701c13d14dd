"""What has happened in the community before the demo starts: games, acts, and who plays now."""

import contextlib
import json
import secrets
from dataclasses import dataclass

from community import COMMUNITY, Member

from identity.acts import accounts, apps, invitations, notes, reports
from identity.acts.actors import Actor, Authority, NotAllowed
from model.errors import StorageError
from model.kind import DAY_MS
from model.records import MODERATOR, Client, Grant, User, now_ms, sha256
from storage import Storage

MINUTE = 60_000  # milliseconds
HEARTBEAT_EVERY = 60  # seconds, as the play page sends them
# Whose flower is on which plot, by user id in hexadecimal.
GARDEN = """
............
..1b...4a...
.3928.61b45.
.c517429638.
..a4b8351c..
...96a278...
....35c1....
.....74.....
"""
PLOTS = {str(n): int(c, 16) for n, c in enumerate("".join(GARDEN.split())) if c != "."}


@dataclass(frozen=True)
class Game:
    """A game of the community: fields of `model.records.Client`."""

    name: str
    owner: str
    description: str
    days: float  # since it was registered
    pick: int  # another number, another id, and another generated cover
    script: str = ""  # of examples/tiny_games/; "": the Space Game, which has a server of its own
    listed: bool = True
    tags: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The client id: the same in each demo, and so are the address and the cover."""
        return sha256(f"{self.name} {self.pick}")[:24]


SPACE_GAME = Game(
    "Space Game", "chidi", "A minute of falling stars, and of rocks.", 181.2, 12, tags=("action",)
)
GARDEN_GAME = Game(
    "Secret Garden",
    "gita",
    "Plant flowers together. Your ticket lets you in.\n\nEach of us has one plot and one colour. A "
    "flower grows while its gardener is here, and wilts a little on the days without them. What "
    "you plant stays: the garden is the same for everybody, so look where the others have been.",
    96.4,
    8,
    "garden",
    tags=("multiplayer", "simulation"),
)
GAMES = (
    SPACE_GAME,
    GARDEN_GAME,
    Game(
        "Who Is Who",
        "finn",
        "Two of each face, and one is yours.",
        74.3,
        11,
        "who",
        tags=("cards",),
    ),
    Game("Snake Island", "iris", "Grow long, and do not bite yourself.", 52.1, 1, "snake"),
    Game("City Lights", "bruno", "Turn them all off. It is late.", 32.9, 0, "lights"),
    Game(
        "Desert Fifteen",
        "kofi",
        "Fifteen stones, one free place.",
        12.4,
        12,
        "fifteen",
        tags=("puzzle",),
    ),
    Game("Mole Cave", "dalia", "Twelve holes, one mole. My first game!", 1.3, 2, "moles", False),
)
GRANTED = {"garden", "who"}  # scripts of the games that all players have allowed to know them
PLAYING = {"emi": SPACE_GAME, "gita": GARDEN_GAME}  # at any time


class Earlier(Authority):
    """A player who acted some days ago: the line in the audit log, which waits, says so."""

    def __init__(self, story: "Story", name: str, days: float) -> None:
        super().__init__(story.store, Actor(story.ids[name]))
        self._lines, self._time = story.lines, now_ms() - round(days * DAY_MS)

    def log(self, act: str, **ids: int | str) -> None:
        self._lines.append({"time": self._time, "act": act, "by": self.actor.id, **ids})


class Story:
    """The past of a community whose players have just been added."""

    def __init__(self, store: Storage, users: list[User]) -> None:
        self.store = store
        self.ids = {user.name: user.id for user in users}
        self.lines: list[dict] = []  # of the audit log

    def add_all(self, urls: dict[str, str]) -> str:
        """Add everything; `urls` has the game URLs by script. Return the Space Game's secret."""
        client_secrets = {game: self.add_game(game, urls[game.script]) for game in GAMES}
        for member in COMMUNITY:
            self.add_past(member)
        self.add_acts()
        for line in sorted(self.lines, key=lambda line: line["time"]):
            self.store.audit.add_line(json.dumps(line).encode())
        self.play()
        return client_secrets[SPACE_GAME]

    def add_game(self, game: Game, url: str) -> str:
        """Register a game with an id that is known, and list it. Return its secret, "" for none."""
        owner = Earlier(self, game.owner, game.days)
        client = Client(game.id, game.name, "", [url], owner.actor.id)
        client.game_url, client.description = url, game.description
        client.tags = list(game.tags)
        client.created, client.public = now_ms() - round(game.days * DAY_MS), bool(game.script)
        secret = "" if client.public else client.replace_secret()
        self.store.clients.add(client)
        owner.log("client add", client=client.id)
        if game.listed:
            apps.set_listed(Earlier(self, "ada", game.days - 0.6), client.id, True)
        return secret

    def add_past(self, member: Member) -> None:
        """Give a player a past here: a sign-up, a flair, time in games, and a confirmed email."""
        user_id, now = self.ids[member.name], now_ms()
        listed = [game.id for game in GAMES if game.listed]
        Earlier(self, member.name, member.joined).log("user sign-up", user=user_id)
        if member.flair != "none":
            by = Earlier(self, "ada", member.joined * 0.7)
            accounts.grant_flair(by, user_id, member.flair)
        with self.store.users.edit(user_id) as user:
            user.created = now - round(member.joined * DAY_MS)
            user.email_verified = user.email != ""
            user.bio, user.equipped_flair = member.bio, member.flair
            user.play_ms = member.play_minutes * MINUTE
            user.last_heartbeat = now - member.last_played * MINUTE
            user.last_game = listed[-user_id % len(listed)]  # the games in turn
            for game in (each for each in GAMES if each.script in GRANTED):
                new_id = secrets.token_urlsafe(12)
                grant = Grant(new_id, ["userinfo"], user.created, user.last_heartbeat)
                user.grants[game.id] = grant

    def add_acts(self) -> None:
        """Add what moderators and players did, and what waits for a moderator."""
        accounts.set_mod_level(Earlier(self, "ada", 150), self.ids["bruno"], MODERATOR)
        days, hugo_id = 6.2, self.ids["hugo"]
        reason = "Shouting in the chat, three times."
        accounts.suspend(Earlier(self, "bruno", days), hugo_id, reason, 7)
        with self.store.users.edit(hugo_id) as hugo:  # it began, and so it ends, earlier
            hugo.suspension.since -= round(days * DAY_MS)
            hugo.suspension.until -= round(days * DAY_MS)
        text = "He wrote to me and said sorry. Tomorrow he is back; let us greet him."
        notes.add(Earlier(self, "bruno", 0), hugo_id, text)
        invitations.create(Earlier(self, "ada", 0), 14, 5, "Finn's chess club", "chess club")
        kofi = self.store.users.read(self.ids["kofi"])
        text = "940 points in one minute? There are not that many stars."
        reports.report(Earlier(self, "jun", 0), kofi, "cheating", text)

    def play(self) -> None:
        """Let the players of PLAYING play for another minute."""
        for name, game in PLAYING.items():
            player = Authority(self.store, Actor(self.ids[name]))
            with contextlib.suppress(StorageError, NotAllowed):  # deleted or suspended since
                accounts.add_heartbeat(player, player.actor.id, game.id)
