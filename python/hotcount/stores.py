"""Memory, Redis and Database: the stores of counters, limiters, sets and votes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, Union

from hotcount._core import Handle
from hotcount._lifetime import Lifetime
from hotcount._native import attributes, native
from hotcount._types import Key, ReadOnly, Seconds
from hotcount.errors import ConfigError

Class = TypeVar("Class")
# The calls that ready() checks for.
For = Literal["reads", "writes"]


@attributes
class MemoryBase(Handle):
    """The constructor and the options of the sync and the aio class."""

    __slots__ = ()

    max_keys: ReadOnly[int]
    prefix: ReadOnly[Key]
    when_full: ReadOnly[Literal["admit", "refuse"]]

    @native
    def __init__(
        self,
        url: str = "memory://",
        *,
        max_keys: int = 1_000_000,
        prefix: Key = "",
        when_full: Literal["admit", "refuse"] = "admit",
    ) -> None:
        """Opens the store of that name, or a private one.

        Args:
            url: memory://NAME, or memory:// for a private one.
            max_keys: Most keys at once, 1 or more: about 120 bytes each plus its full length; a
                sorted set with one member about 630, and 140 for each further one.
            prefix: Stands before every key.
            when_full: A Limiter's new key at max_keys is admitted and not remembered ('admit': its
                decision says 'untracked', stats() counts it, the first one warns), or refused with
                CapacityError ('refuse'). Either is an attack on somebody.

        max_keys and when_full count for the opener that makes the store.

        Raises:
            ConfigError: An option has a bad value; the error names it.
            TypeError: An option has a wrong type.
        """

    @native
    def stats(self) -> dict[str, int]:
        """Counts since the store was made, by name: keys, max_keys, swept, refused, untracked.

        They are for people: names may be added. ClosedError after close().

        >>> import hotcount
        >>> hotcount.Memory().stats()["keys"]
        0
        """


class Memory(Lifetime, MemoryBase):
    """A store in this process: the embedded default, and as exact as a server.

    memory://NAME is one store for all objects that name it, until the last of them lets go;
    memory:// is private. Its content ends with the process; a forked child continues with its own
    copy. At max_keys expired keys make room; if there are none, a new key is refused with
    CapacityError, and a Limiter's as when_full says. Nothing live is ever dropped. Safe from many
    threads.

    Example:
        >>> import hotcount
        >>> store = hotcount.Memory("memory://votes", max_keys=1000)
        >>> hotcount.Counter(store).add("photo:42")
        1
        >>> store
        hotcount.Memory('memory://votes', max_keys=1000, prefix='', when_full='admit')
    """

    __slots__ = ("__weakref__",)

    @native
    def ping(self, *, timeout: Seconds | None = None) -> bool:
        """True; ClosedError after close().

        >>> import hotcount
        >>> hotcount.Memory().ping()
        True
        """

    @native
    def ready(self, for_: For = "writes", *, timeout: Seconds | None = None) -> bool:
        """True; ClosedError after close().

        >>> import hotcount
        >>> hotcount.Memory().ready()
        True
        """


@attributes
class RedisBase(Handle):
    """The constructor and the options of the sync and the aio class."""

    __slots__ = ()

    timeout: ReadOnly[float]
    prefix: ReadOnly[Key]
    client_name: ReadOnly[str]
    silence_limit: ReadOnly[float | None]
    max_queue: ReadOnly[int]
    connect_timeout: ReadOnly[float]
    protocol: ReadOnly[int]
    sentinel_credentials: ReadOnly[tuple[str, str] | None]
    sentinel_tls: ReadOnly[bool]
    credentials: ReadOnly[Callable[[], tuple[str, str]] | None]
    address_map: ReadOnly[dict[str, str] | None]

    @native
    def __init__(
        self,
        url: str,
        *,
        timeout: Seconds | None = 1.0,
        prefix: Key = "",
        client_name: str = "hotcount",
        silence_limit: Seconds | None = None,
        max_queue: int = 100_000,
        connect_timeout: Seconds = 1.0,
        protocol: Literal[2, 3] = 3,
        sentinel_credentials: tuple[str, str] | None = None,
        sentinel_tls: bool = True,
        credentials: Callable[[], tuple[str, str]] | None = None,
        address_map: dict[str, str] | None = None,
    ) -> None:
        """Names a server; it connects when it is first used.

        Args:
            url: As the class says.
            timeout: Default time limit of a call in seconds, the wait for a connection included.
            prefix: Stands before every key; execute() sends keys as they are. In a cluster a brace
                begins a hash tag, and all keys are in one slot: "{app}:". The prefix closes it.
            client_name: What CLIENT LIST shows.
            silence_limit: Seconds that a server that owes replies may say nothing before its
                connection is replaced. None: 1.5; for one server timeout if that is longer, because
                only Sentinels and clusters replace a server. The outcome of the commands that were
                sent is then unknown, even if their calls had more time. Longer: for commands that
                take the server longer. Shorter: a dead connection is replaced sooner.
            max_queue: Most calls that wait to be sent on a connection, at about 900 bytes each. At
                the bound a thread waits until its deadline; a call of hotcount.aio fails with
                CapacityError.
            connect_timeout: Seconds for one attempt to connect, from the resolved name to the
                greeting. The name's addresses share it, and no call's own timeout ends it. More: a
                server far away is reached; less: a silent one is given up sooner.
            protocol: 3 speaks RESP3, and RESP2 if the server knows no HELLO. 2 does not ask, for
                proxies that close the connection then. Values are the same.
            sentinel_credentials: User ('' for the default one) and password that the Sentinels
                want; those of the URL are the server's. The attribute does not show the password.
            sentinel_tls: False: the Sentinels speak no TLS although the URL is rediss+sentinel://.
            credentials: Returns (user, password) for each new connection, with '' for the default
                user, where passwords rotate; the URL has none then. A thread of the library calls
                it, one call at a time; its time is part of connect_timeout. A refused password is
                asked for once more. If it raises, calls that wait end as with a wrong password.
            address_map: Where this process reaches nodes of a cluster that announce an address of
                their own network: {"10.0.0.5:7001": "127.0.0.1:17001"}. None: where they say.

        Raises:
            ConfigError: An option has a bad value; the error names it.
            TypeError: An option has a wrong type.
        """

    @native
    def stats(self) -> dict[str, Any]:
        """Counts since the store was opened in this process, by name.

        Those of event loops are up to 20 ms old. Names may be added. ClosedError after close().

        - commands answered; combined, calls that travelled in another's command; sends, bytes_sent,
          bytes_received, connects, reconnects.
        - latency_us_p50, _p99 and _max: microseconds from a command's encoding to its reply, at
          most 7 % above the truth.
        - latency_s_buckets: bounds in seconds, and how many of latency_count replies took at most
          that long, up to 7 % above the bound; latency_s_sum of all.

        Example:
            >>> import hotcount
            >>> hotcount.Redis("redis://localhost").stats()["commands"]
            0
        """


class Redis(Lifetime, RedisBase):
    """A Redis or Valkey server.

    redis://user:password@host:6379/0, redis+unix:///path.sock?db=0 (unix:// too), valkey://;
    rediss:// and valkeys:// over TLS, always verified. It connects at the first call and after
    a failure. Objects of one URL and options share a connection in all threads, not across a fork.

    redis+sentinel://user:password@host:26379,host:26379/SERVICE/0 (rediss+sentinel:// ...) asks
    Sentinels for the server. Name all of them: a majority must answer. Calls wait within their
    timeouts while a primary is replaced, and its connections end before its successor is promoted.

    redis+cluster://user:password@host:6379,host:6379 (rediss+cluster://, valkey+cluster:// ...) is
    a cluster. The hosts are asked for its map; each call goes to the primary that has the slot of
    its keys, and follows the slot when that moves. All that takes a Redis runs there, but for Votes
    with the strategy 'cached', which is a ConfigError.

    Example:
        >>> import hotcount
        >>> store = hotcount.Redis("redis://app:secret@db.example/0", prefix="likes:", timeout=0.5)
        >>> store
        hotcount.Redis('redis://app:***@db.example/0', timeout=0.5, prefix='likes:')
        >>> store.timeout, store.protocol
        (0.5, 3)
    """

    __slots__ = ("__weakref__",)

    @native
    def ping(self, *, timeout: Seconds | None = None) -> bool:
        """True where the server answers and can be a store; else the error that says why not.

        Args:
            timeout: Seconds, more than 0. None: the store's.

        Raises:
            UnavailableError: It cannot be reached, or is a read-only replica (code READONLY).
            ConfigError: It is a Sentinel, or a node of a Redis Cluster that has not all slots.
            DeadlineError, AuthError: No answer in time; wrong credentials.
            ClosedError: After close().

        With protocol=2 only PING is sent, and the role is not looked at.
        """

    @native
    def ready(self, for_: For = "writes", *, timeout: Seconds | None = None) -> bool:
        """Whether the server serves calls now: for probes and health checks.

        Args:
            for_: 'writes': it is reached, can be a store, and takes writes. 'reads': a server that
                only reads will do too.
            timeout: Seconds that the answer may take, more than 0. None: the store's. Two or three
                round trips.

        Returns:
            False where it cannot be reached or does not answer in time, where the login fails, and
            of a Sentinel or a node of a Redis Cluster that has not all slots. For writes also
            where it refuses them: a read-only replica, no memory left (OOM), a failing disk
            (MISCONF), too few replicas (NOREPLICAS). The logger 'hotcount' has a warning that says
            which. A write that changes nothing is tried for that, a SETRANGE of no bytes; where
            the user may not send it, or not PING, the answer goes by the rest.

        Raises:
            ConfigError: `for_` is neither.
            ClosedError: After close().
        """

    @native
    def execute(self, *command: str | bytes | int | float, timeout: Seconds | None = None) -> Any:
        """Sends one command and returns its reply.

        Args:
            command: Its words. Keys are sent as they are. Commands that change the connection
                (MULTI, WATCH, SUBSCRIBE, SELECT, AUTH, HELLO, CLIENT REPLY, CLIENT TRACKING) or
                block are refused. A command that is not known to answer exactly once, such as a
                module's, goes over a connection of its own with an ECHO behind it.
            timeout: Seconds, more than 0. None: the store's.

        Returns:
            int; bytes for strings and RESP3's doubles; None; a list, flat for a map. An error
                inside a list is a ReplyError there.

        Raises:
            ConfigError: The command is refused.
            OutcomeUnknownError: It was sent and not answered in time, or did not answer once; it is
                never sent again.
            ReplyError: The reply is an error.
        """


@attributes
class DatabaseBase(Handle):
    """The constructor and the options of the sync and the aio class."""

    __slots__ = ()

    timeout: ReadOnly[float]
    max_readers: ReadOnly[int]
    max_writers: ReadOnly[int]
    prepare: ReadOnly[bool]
    idle_timeout: ReadOnly[float | None]

    @native
    def __init__(
        self,
        url: str,
        *,
        timeout: Seconds | None = 5.0,
        max_readers: int = 4,
        max_writers: int = 16,
        prepare: bool = True,
        idle_timeout: Seconds | None = 60.0,
    ) -> None:
        """Opens a database and looks whether it can be used.

        Args:
            url: As the class says.
            timeout: Default time limit of a call in seconds, the wait for locks included.
            max_readers, max_writers: Most connections open at once in this process; SQLite has one
                that writes. A server has to allow both together for each process; if it has no room
                for one more, calls wait for one until their deadline. More writers help strategies
                with a transaction per vote; group commit uses one or two.
            prepare: False (in the URL too: ?prepare=false) keeps no statement prepared in the
                server's sessions. Behind PgBouncer and other poolers that happens by itself. It
                costs each statement the server's parsing and planning, on MariaDB and MySQL a round
                trip as well.
            idle_timeout: Seconds after which an unused connection to a server is closed; the next
                call that lacks one pays for another, some milliseconds. Longer: more of the
                server's sessions are held for nothing. None: never.

        A TCP connection whose other end acknowledges nothing for 10 s is given up. PostgreSQL's
        URLs may say otherwise (tcp_user_timeout, keepalives_idle ...). Settings of the server that
        make a commit mean less (fsync=off and the like) are one warning of the logger 'hotcount'.

        Raises:
            ConfigError: An option has a bad value.
            PermissionDeniedError, AuthError: A file or a user may not.
            UnavailableError: There is no server.
            DatabaseError: Another error of the database.
        """

    @native
    def stats(self) -> dict[str, int]:
        """Counts since it was opened in this process: transactions, statements, busy_waits.

        They are for people: names may be added. ClosedError after close().

        >>> import hotcount
        >>> hotcount.Database("sqlite:///:memory:").stats()["transactions"]
        0
        """


class Database(Lifetime, DatabaseBase):
    """A SQL database.

    sqlite:///file.db (four slashes: an absolute path; ?mode=ro|rw|rwc), sqlite:///:memory:;
    postgresql://user:password@host/database, mariadb:// and mysql:// likewise. It is opened at
    once, so that a bad path or a server that is away fails here. Objects of the same URL and
    options share their connections, except :memory:. Safe from many threads and across fork. repr
    shows no password. Of hosts h1:5432,h2:5432 the one that takes writes (docs/how-to/failover.md).

    TLS is as each driver has it, and weak by default: postgresql:// encrypts where the server
    offers it and verifies nothing (sslmode=prefer); mariadb:// and mysql:// do not encrypt. Over a
    network: ?sslmode=verify-full&sslrootcert=FILE, or ?ssl_ca=FILE or ?ssl_fingerprint=HEX. A
    password travels in clear text over verified TLS or a Unix socket only; elsewhere that is an
    AuthError, as MySQL's first login is (docs/reference/databases.md).

    Example:
        >>> import hotcount
        >>> hotcount.Database("sqlite:///:memory:")
        hotcount.Database('sqlite:///:memory:', timeout=5.0)
    """

    __slots__ = ("__weakref__",)

    @native
    def ping(self, *, timeout: Seconds | None = None) -> bool:
        """True where the database answers; else the error that says why not.

        timeout: seconds, more than 0; None is the database's. ClosedError after close().

        >>> import hotcount
        >>> hotcount.Database("sqlite:///:memory:").ping()
        True
        """

    @native
    def ready(self, for_: For = "writes", *, timeout: Seconds | None = None) -> bool:
        """Whether the database serves calls now: for probes and health checks.

        Args:
            for_: 'reads': a statement is read. 'writes': also, a transaction is begun, tried and
                rolled back; what shows at a commit only, such as a full disk, is not seen.
            timeout: Seconds that the answer may take, more than 0. None: the database's.

        Returns:
            False where the database cannot be reached or does not answer in time, and of a file
            that was removed. For writes also of a standby, a read-only server
            (default_transaction_read_only, read_only, innodb_read_only) and a read-only file, and
            where another process holds the file's lock until the timeout. The logger 'hotcount' has
            a warning that says why. Tables are not looked at.

        Raises:
            ConfigError: `for_` is neither.
            ClosedError: After close().

        >>> import hotcount
        >>> hotcount.Database("sqlite:///:memory:").ready()
        True
        """


# The store argument of other classes: a store or a database (sync or aio), or its URL.
KeyValueStore = Union[MemoryBase, RedisBase, str]
AnyDatabase = Union[DatabaseBase, str]
AnyStore = Union[MemoryBase, RedisBase, DatabaseBase, str]


# -- by URL -----------------------------------------------------------------


@native
def kind_of_url(url: str) -> str:
    """'Memory', 'Redis' or 'Database'; ConfigError for an unknown scheme.

    >>> kind_of_url("valkeys://cache.example")
    'Redis'
    """


def open_url(
    function: str, url: str, options: Mapping[str, Any], classes: Mapping[str, Callable[..., Class]]
) -> Class:
    """Opens the URL with the class of its kind; ConfigError for other kinds and unknown options."""
    kind = kind_of_url(url)
    scheme = url.partition(":")[0].lower()
    if kind not in classes:
        opens = " or ".join(classes)
        raise ConfigError(f"url: {function} opens {opens}, not {scheme}://")
    known = [name for name in inspect.signature(classes[kind]).parameters if name != "url"]
    for name in options:
        if name not in known:
            takes = ", ".join(known)
            error = ConfigError(f"unknown option '{name}' for {scheme}://; it takes: {takes}")
            error.option = name
            raise error
    return classes[kind](url, **options)


Store = Union[Memory, Redis]
STORES: dict[str, Callable[..., Store]] = {"Memory": Memory, "Redis": Redis}
DATABASES: dict[str, Callable[..., Database]] = {"Database": Database}
ALL: dict[str, Callable[..., Store | Database]] = {**STORES, **DATABASES}


def connect(url: str, **options: Any) -> Memory | Redis | Database:
    """Opens the store or database of a URL, with the options of its class.

    connect_store and connect_database have narrower return types and refuse the other kind.

    Args:
        url: memory://NAME: Memory. redis://, rediss://, valkey://, valkeys://, redis+unix://,
            unix://: Redis. sqlite:///file.db, postgresql://, mariadb://, mysql://: Database.
        options: The options of that class.

    Raises:
        ConfigError: An unknown scheme, or an option that the class does not have; it is named.
        HotcountError: As the class does.

    Example:
        >>> import hotcount
        >>> hotcount.connect("memory://likes", max_keys=10).stats()["max_keys"]
        10
    """
    return open_url("connect", url, options, ALL)


def connect_store(url: str, **options: Any) -> Memory | Redis:
    """As connect, for key-value stores: Memory or Redis.

    The URL of a database is a ConfigError, before anything is opened.

    >>> import hotcount
    >>> hotcount.connect_store("memory://likes")
    hotcount.Memory('memory://likes', max_keys=1000000, prefix='', when_full='admit')
    """
    return open_url("connect_store", url, options, STORES)


def connect_database(url: str, **options: Any) -> Database:
    """As connect, for SQL databases: SQLite, PostgreSQL, MariaDB and MySQL.

    The URL of another store is a ConfigError, before anything is opened.

    >>> import hotcount
    >>> hotcount.connect_database("sqlite:///:memory:", timeout=2).timeout
    2.0
    """
    return open_url("connect_database", url, options, DATABASES)
