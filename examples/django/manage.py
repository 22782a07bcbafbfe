"""Likes and daily views of posts, in pages and in the admin.

docs/how-to/django-votes.md explains the likes.

python manage.py migrate && python manage.py createsuperuser
gunicorn --workers 2 manage:application

BLOG_DATABASE, BLOG_REDIS: where votes and views are. Default: a SQLite file, redis://localhost.
"""

import os
import sys

from django.core.management import execute_from_command_line
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "site_settings")

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
else:
    application = get_wsgi_application()
