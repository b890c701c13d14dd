"""A Flask site that signs in with Authlib, whose settings are in settings.py."""

import os

from flask import redirect, session
from settings import app, oauth

# This server's cookie on the same host has the default name.
app.config.update(SECRET_KEY="of the tests", SESSION_COOKIE_NAME="site")


@app.get("/sign-in")
def sign_in():
    return oauth.identity_server.authorize_redirect(f"{os.environ['ADDRESS']}/callback")


@app.get("/callback")
def callback():
    token = oauth.identity_server.authorize_access_token()
    session["id_token"] = dict(token["userinfo"])
    session["userinfo"] = oauth.identity_server.userinfo(token=token)
    return redirect("/")


@app.get("/")
def show():
    return dict(session)


app.run(port=int(os.environ["PORT"]))
