"""The application, for `identity-server serve`, any other WSGI server, and `flask run`."""

from identity_server import create_app, send_messages

application = create_app()
send_messages(application)
