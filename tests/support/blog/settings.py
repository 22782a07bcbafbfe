"""The project's settings."""

from __future__ import annotations

import json
import os
from typing import Any

import pymysql  # type: ignore[import-untyped]

pymysql.install_as_MySQLdb()

SECRET_KEY = "of a test"
ALLOWED_HOSTS = ["*"]
DEBUG = True
USE_TZ = True
ROOT_URLCONF = "tests.support.blog.urls"
DEFAULT_AUTO_FIELD = os.environ.get("BLOG_AUTO_FIELD", "django.db.models.BigAutoField")
INSTALLED_APPS = [
    "hotcount.integrations.django",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "tests.support.blog",
    *os.environ.get("BLOG_APPS", "").split(),
]
if "BLOG_WITHOUT_HOTCOUNT" in os.environ:
    INSTALLED_APPS.remove("hotcount.integrations.django")
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
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
STATIC_URL = "static/"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DATABASES: dict[str, Any] = {
    "default": json.loads(os.environ["BLOG_DATABASE"]),
    **json.loads(os.environ.get("BLOG_DATABASES", "{}")),
}
MIGRATION_MODULES = {"blog": "blog_migrations"}
HOTCOUNT_VOTES: dict[str, Any] = json.loads(os.environ.get("BLOG_VOTES", "{}"))
