"""Settings of a site of Flask-AppBuilder."""

SECRET_KEY = "of the tests"
SESSION_COOKIE_NAME = "site"  # this server's cookie on the same host has the default name
SQLALCHEMY_DATABASE_URI = "sqlite:///accounts.db"
# SETTINGS
