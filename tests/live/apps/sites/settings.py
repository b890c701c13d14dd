"""Settings of a Django site with accounts."""

DEBUG = True
SECRET_KEY = "of the tests"
ROOT_URLCONF = "__main__"
LOGIN_REDIRECT_URL = "/"
ACCOUNT_EMAIL_VERIFICATION = "none"  # the tests have no mail server
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "accounts"}}
INSTALLED_APPS = [f"django.contrib.{name}" for name in ("auth", "contenttypes", "sessions")]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
]
# SETTINGS

# Tables without migrations, which take seconds.
MIGRATION_MODULES = {name.rpartition(".")[2]: None for name in INSTALLED_APPS}
