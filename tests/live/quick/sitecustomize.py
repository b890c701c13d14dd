"""Imported first by each Python process of a quick server: tests/live/running.py.

Presses count at once, passwords are hashed cheaply, and programs without a browser may poll every
two seconds. Processes other than the server's import nothing of the product here.
"""

import sys

# gunicorn's master, which forks its workers; granian's workers, which are new processes.
if "wsgi:application" in sys.orig_argv or "--multiprocessing-fork" in sys.orig_argv:
    from identity.access import admission, passwords
    from identity.http import stamps
    from identity.oauth import device

    METHOD = "pbkdf2:sha256:1"
    passwords.PASSWORD_METHOD = METHOD
    passwords.NOBODYS_HASH = f"{METHOD}$0000000000000000${'0' * 64}"  # matches no password
    stamps.MINIMUM_AGE = 0
    device.INTERVAL = 2
    admission.FREE_SIGN_UPS = 10**6  # without a proof of work
    admission.HALF_AN_HOUR = 1  # second, of which the number is a setting
