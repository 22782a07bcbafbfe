"""The hotcount.Votes of a model: the database's URL, and one object a process and database."""

from __future__ import annotations

import os
from typing import Any, cast
from urllib.parse import quote, urlencode

from django.core.exceptions import ImproperlyConfigured
from django.db import connections, router
from django.db.transaction import TransactionManagementError

import hotcount
from hotcount.integrations.django._schema import DIALECTS, names_of, settings, vote_model_of
from hotcount.joint_hits import face as face_of

# -- the database -----------------------------------------------------------

# Parameters of psycopg that are not libpq's, or that hotcount has by itself.
_OF_PSYCOPG = ("client_encoding", "context", "cursor_factory", "prepare_threshold", "row_factory")
_OF_LIBPQ = (
    *("application_name", "channel_binding", "connect_timeout", "gssencmode", "keepalives"),
    *("keepalives_count", "keepalives_idle", "keepalives_interval", "options", "passfile"),
    *("sslcert", "sslcrl", "sslkey", "sslmode", "sslrootcert", "target_session_attrs"),
    "tcp_user_timeout",
)
_OF_MYSQL = (
    *("autocommit", "charset", "client_flag", "collation", "connect_timeout", "conv"),
    *("init_command", "isolation_level", "read_timeout", "sql_mode", "use_unicode"),
    "write_timeout",
)


def database_url(using: str = "default") -> str:
    """The URL of one of DATABASES, for hotcount.Database; in tests that of the test database.

    Args:
        using: The alias.

    Raises:
        ImproperlyConfigured: hotcount does not speak to that backend, or does not know an option.
    """
    connection = connections[using]
    if connection.vendor not in DIALECTS:
        raise ImproperlyConfigured(
            f"DATABASES[{using!r}] has the backend {connection.settings_dict['ENGINE']!r}; "
            "hotcount speaks to PostgreSQL, MySQL and MariaDB, and SQLite"
        )
    if connection.vendor == "sqlite":
        return _sqlite_url(using)
    parameters = connection.get_connection_params()
    if connection.vendor == "mysql":
        return _mysql_url(using, parameters)
    return _postgres_url(using, parameters)


def _sqlite_url(using: str) -> str:
    name = str(connections[using].settings_dict["NAME"])
    if connections[using].is_in_memory_db():
        raise ImproperlyConfigured(
            f"DATABASES[{using!r}] is a SQLite database in memory, which votes cannot reach: they "
            "are written over connections of their own. For tests name a file: "
            f"DATABASES[{using!r}]['TEST'] = {{'NAME': BASE_DIR / 'test.sqlite3'}}"
        )
    if name.startswith("file:"):
        raise ImproperlyConfigured(
            f"DATABASES[{using!r}] has a NAME that is a URI of SQLite's; give the path of the file"
        )
    return "sqlite:///" + quote(os.path.abspath(name))


def _postgres_url(using: str, parameters: dict[str, Any]) -> str:
    given = {name: value for name, value in parameters.items() if name not in _OF_PSYCOPG}
    login = _login(given.pop("user", ""), given.pop("password", ""))
    host, port = str(given.pop("host", "")), str(given.pop("port", ""))
    path = quote(str(given.pop("dbname", "")), safe="")
    for name in given:
        if name not in _OF_LIBPQ:
            raise _unknown(using, name, _OF_LIBPQ)
    query = {name: str(value) for name, value in given.items()}
    role = connections[using].settings_dict["OPTIONS"].get("assume_role")
    if role:
        query["options"] = f"{query.get('options', '')} -c role={role}".strip()
    query |= {name: value for name, value in (("host", host), ("port", port)) if value}
    return f"postgresql://{login}/{path}?{urlencode(query, quote_via=quote)}".rstrip("?")


def _mysql_url(using: str, parameters: dict[str, Any]) -> str:
    given = {name: value for name, value in parameters.items() if name not in _OF_MYSQL}
    user = given.pop("user", "")
    password = given.pop("password", given.pop("passwd", ""))
    name = given.pop("database", given.pop("db", ""))
    host, port = given.pop("host", ""), given.pop("port", None)
    query: dict[str, str] = {}
    if socket := given.pop("unix_socket", ""):
        query["unix_socket"] = str(socket)
    for option, value in dict(given.pop("ssl", None) or {}).items():
        if option not in ("ca", "cert", "key"):
            raise _unknown(using, f"ssl[{option!r}]", ("ca", "cert", "key"))
        query[f"ssl_{option}"] = str(value)
    mode = str(given.pop("ssl_mode", "")).upper()
    if mode == "REQUIRED" and "ssl_ca" not in query:
        query["ssl_verify"] = "false"
    if given:
        raise _unknown(using, next(iter(given)), ("unix_socket", "ssl", "ssl_mode"))
    host = f"[{host}]" if ":" in str(host) else host or "localhost"
    where = "" if socket else f"{host}" + (f":{port}" if port else "")
    return (
        f"mysql://{_login(user, password)}{where}/{quote(str(name), safe='')}"
        f"?{urlencode(query, quote_via=quote)}"
    ).rstrip("?")


def _login(user: Any, password: Any) -> str:
    if not user:
        return ""
    secret = ":" + quote(str(password), safe="") if password else ""
    return quote(str(user), safe="") + secret + "@"


def _unknown(using: str, name: str, known: tuple[str, ...]) -> ImproperlyConfigured:
    return ImproperlyConfigured(
        f"DATABASES[{using!r}]['OPTIONS'] has {name!r}, which hotcount cannot follow; "
        f"it takes {', '.join(known)}"
    )


# -- the objects ------------------------------------------------------------

_objects: dict[tuple[Any, str, str], hotcount.Votes] = {}


def votes_of(model: Any, using: str | None = None, *, face: type = hotcount.Votes) -> Any:
    """The hotcount.Votes of a model: one for this process and database.

    It is made when it is first asked for, works on in a forked child, and close_votes() ends it;
    ask for it each time instead of keeping it.

    Args:
        model: A model that is voted for, or a vote model.
        using: The alias of the database; None: the one that the router names for writes.
        face: hotcount.Votes, or hotcount.aio.Votes for methods to be awaited.

    Raises:
        ImproperlyConfigured: There is no vote model, or the database is none for votes.
        TransactionManagementError: Within the transaction of a TestCase, whose rows no other
            connection sees.
    """
    vote_model, constraint = vote_model_of(model)
    alias = using or router.db_for_write(vote_model)
    if is_in_test_case(alias):
        raise TransactionManagementError(
            f"{model._meta.label} is voted for within the transaction of a TestCase: votes are "
            "written over connections of their own, which do not see its rows. Use TransactionTest"
            f"Case, or write votes by the ORM: {vote_model.__name__}.objects.create()"
        )
    # Not the URL: a backend may make a new password each time, as for IAM.
    key = (vote_model, alias, str(connections[alias].settings_dict["NAME"]))
    votes = _objects.get(key)
    if votes is None:
        made = make_votes(vote_model, constraint, alias)
        votes = _objects.setdefault(key, made)
        if votes is not made:  # Another thread was quicker.
            made.close()
    return votes if face is hotcount.Votes else face_of(cast(Any, face), cast(Any, votes))


def make_votes(vote_model: Any, constraint: Any, using: str) -> hotcount.Votes:
    """A new one."""
    chosen = settings()
    names = names_of(vote_model, constraint, connections[using])
    return hotcount.Votes(
        database_url(using), chosen.cache, chosen.strategy, **{**names, **chosen.options}
    )


def close_votes(using: str | None = None) -> None:
    """Closes the objects of this process and their sessions; the next use opens others.

    `flush`, and with it each test of a TransactionTestCase, does that for its database, so that
    none is in use when the test database is dropped.

    Args:
        using: The alias of the database; None: all.
    """
    for key in list(_objects):
        if using in (None, key[1]):
            votes = _objects.pop(key, None)
            if votes is not None:
                votes.close()
    if using is None:
        settings.cache_clear()


def is_in_test_case(using: str) -> bool:
    """Whether this thread's connection is in the transaction that a TestCase rolls back."""
    blocks = getattr(connections[using], "atomic_blocks", ())
    return any(getattr(block, "_from_testcase", False) for block in blocks)
