"""The addresses of a Django site: those of the program, and a page that shows the account."""

import os

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.middleware.csrf import get_token
from django.urls import include, path

if os.environ["PROGRAM"] == "django-allauth":
    urlpatterns = [path("accounts/", include("allauth.urls"))]
    sign_in = "/accounts/oidc/identity-server/login/"
else:
    urlpatterns = [path("", include("social_django.urls"))]
    sign_in = "/login/oidc/"
FORM = '<form method=post action="%s"><input type=hidden name=csrfmiddlewaretoken value="%s">'


def show(request: HttpRequest) -> HttpResponse:
    """Show the signed-in user and what the account is keyed on, or a button to sign in."""
    user = request.user
    if not user.is_authenticated:
        return HttpResponse(
            FORM % (sign_in, get_token(request)) + "<button>Sign in</button></form>"
        )
    accounts = getattr(user, "social_auth", None) or user.socialaccount_set
    shown = {"username": user.username, "email": user.email, "name": user.get_full_name()}
    return JsonResponse(shown | {"uid": accounts.get().uid})


urlpatterns += [path("", show)]
