"""The smallest set of Django settings that the blog needs."""

import json
import os
from pathlib import Path

BASE_DIR = Path(__file__).parent
SECRET_KEY = os.environ.get("BLOG_SECRET_KEY", "change me")
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
ROOT_URLCONF = "blog.views"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LOGIN_URL = "admin:login"
STATIC_URL = "static/"
USE_TZ = True
INSTALLED_APPS = [
    *("django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes"),
    *("django.contrib.messages", "django.contrib.sessions", "django.contrib.staticfiles"),
    *("hotcount.integrations.django", "blog"),
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
SQLITE = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(BASE_DIR / "blog.sqlite3")}
DATABASES = {"default": json.loads(os.environ.get("BLOG_DATABASE", json.dumps(SQLITE)))}
VIEWS_STORE = os.environ.get("BLOG_REDIS", "redis://localhost")
