"""A Flask site that signs in with Authlib."""
# ruff: noqa: F821  SETTINGS makes `oauth`

import os

from flask import Flask, url_for

app = Flask(__name__)
# This server's cookie on the same host has the default name.
app.config.update(SECRET_KEY="of the tests", SESSION_COOKIE_NAME="site")
# SETTINGS


@app.get("/sign-in")
def sign_in():
    return oauth.identity_server.authorize_redirect(url_for("show", _external=True))


@app.get("/callback")
def show():
    token = oauth.identity_server.authorize_access_token()
    user = oauth.identity_server.userinfo(token=token)
    return {"claims": token["userinfo"], "user": user}


app.run(port=int(os.environ["PORT"]))
