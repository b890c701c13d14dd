"""The application, for `identity-server serve`, any other WSGI server, and `flask run`."""

from identity.senders import send_messages
from identity_server import create_app

application = create_app()
send_messages(application)
