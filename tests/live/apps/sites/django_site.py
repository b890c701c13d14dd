"""A Django site that shows the account of the player; its settings are in settings.py."""

import os

import django
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.middleware.csrf import get_token
from django.urls import include, path

os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
django.setup()
FORM = """<form method="post" action="%s"><input type="hidden" name="csrfmiddlewaretoken"
value="%s"><button>Sign in</button></form>"""


def show(request: HttpRequest) -> HttpResponse:
    """Show the signed-in user and what the account is keyed on, or a button to sign in."""
    user = request.user
    if not user.is_authenticated:
        return HttpResponse(FORM % (os.environ["SIGN_IN"], get_token(request)))
    shown = {"username": user.username, "email": user.email, "name": user.get_full_name()}
    for accounts in ("social_auth", "socialaccount_set"):
        if hasattr(user, accounts):
            shown["uid"] = getattr(user, accounts).get().uid
    return JsonResponse(shown)


urlpatterns = [path("", show), path(os.environ["PREFIX"], include(os.environ["URLS"]))]
call_command("migrate", run_syncdb=True, verbosity=0)
if email := os.environ.get("SUPERUSER"):
    get_user_model().objects.create_superuser("root", email)
call_command("runserver", os.environ["PORT"], use_reloader=False, skip_checks=True)
