"""The home page; the play page and heartbeats come to stand here."""

from flask import Blueprint, render_template

from identity_sessions import signed_in_player

games = Blueprint("games", __name__)


@games.get("/")
def home() -> str:
    """What this site is, or a welcome to the player who is signed in."""
    return render_template("home.html", player=signed_in_player())
