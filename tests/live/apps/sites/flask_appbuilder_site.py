"""A site of Flask-AppBuilder that shows the account; its settings are in config.py."""

import os

from flask import Flask
from flask_appbuilder import AppBuilder
from flask_appbuilder.utils.legacy import get_sqla_class
from flask_login import current_user

app = Flask(__name__)
app.config.from_object("config")
database = get_sqla_class()()
with app.app_context():
    database.init_app(app)
    AppBuilder(app, database.session)


@app.get("/account")
def show():
    roles = [each.name for each in current_user.roles]
    return {"username": current_user.username, "name": current_user.first_name, "roles": roles}


app.run(port=int(os.environ["PORT"]))
