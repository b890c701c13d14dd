"""Makes the tables of a Django site and runs it."""

import os

import django
from django.core.management import call_command

os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
django.setup()
call_command("migrate", run_syncdb=True, verbosity=0)
call_command("runserver", os.environ["PORT"], use_reloader=False, skip_checks=True)
