"""A Django project with posts and their votes, whose database and migrations the environment names.

`python -m django COMMAND` runs it: tests/support/django_site.py.
"""
