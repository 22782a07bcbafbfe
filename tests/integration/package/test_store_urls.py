"""hotcount.connect and the URLs of stores: what each opens, shares and refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hotcount
import hotcount.aio
import pytest

from tests.support.servers import RedisServer


def test_connect_opens_by_scheme(tmp_path: Path) -> None:
    assert isinstance(hotcount.connect("memory://"), hotcount.Memory)
    assert isinstance(hotcount.connect("redis://localhost"), hotcount.Redis)
    assert isinstance(hotcount.connect("VALKEY://localhost:1/2"), hotcount.Redis)
    assert isinstance(hotcount.connect("redis+unix:///no.sock?db=1"), hotcount.Redis)
    assert isinstance(hotcount.connect("unix:///no.sock"), hotcount.Redis)
    assert isinstance(hotcount.connect(f"sqlite:///{tmp_path}/a.db"), hotcount.Database)
    # SQLAlchemy's driver suffix is accepted and ignored.
    assert isinstance(hotcount.connect("sqlite+pysqlite:///:memory:"), hotcount.Database)


def test_an_unknown_scheme_is_named_with_those_that_are_known() -> None:
    with pytest.raises(hotcount.ConfigError) as caught:
        hotcount.connect("mongodb://localhost")
    assert "'mongodb'" in str(caught.value)
    known = [
        "memory",
        "redis",
        "valkey",
        "redis+unix",
        "redis+cluster",
        "redis+sentinel",
        "unix",
        "sqlite",
        "postgresql",
        "mariadb",
        "mysql",
    ]
    assert all(scheme in str(caught.value) for scheme in known)


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("memory://", {"bogus": 1}),
        ("memory://x?bogus=1", {}),
        ("redis://localhost", {"bogus": 1}),
        ("redis://localhost?bogus=1", {}),
        ("sqlite:///:memory:", {"bogus": 1}),
        ("sqlite:///x.db?bogus=1", {}),
        ("sqlite:///:memory:", {"prefix": "bogus"}),
    ],
)
def test_an_unknown_option_is_a_config_error_that_names_it(url: str, options: Any) -> None:
    name = next(iter(options), "bogus")
    with pytest.raises(hotcount.ConfigError, match=f"unknown option '{name}'.*takes: "):
        hotcount.connect(url, **options)


@pytest.mark.parametrize(
    ("url", "option", "title"),
    [
        ("redis://localhost", "timeout", "Redis"),
        ("sqlite:///x.db", "timeout", "Database"),
        ("postgresql://localhost/x", "idle_timeout", "Database"),
        ("mariadb://localhost/x", "max_writers", "Database"),
    ],
)
def test_an_argument_in_a_url_is_told_from_its_options(url: str, option: str, title: str) -> None:
    told = rf"unknown option '{option}'.*hotcount\.{title}\(url, {option}=\.\.\.\)"
    with pytest.raises(hotcount.ConfigError, match=told):
        hotcount.connect(f"{url}?{option}=1")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "scheme"),
        ("localhost", "scheme"),
        ("://x", "scheme"),
        ("re dis://x", "scheme"),
        ("redis://h:0", "the port is"),
        ("redis://h:65536", "the port is"),
        ("redis://h:x", "the port is"),
        ("redis+cluster://::1:7000", "an IPv6 host in brackets"),
        ("redis+cluster://a:1,redis+cluster://b:2", "the scheme stands once"),
        ("redis+cluster://a:1,b:2/votes/0", "only redis.sentinel:// names a service"),
        ("redis://h/x", "database is not"),
        ("redis://h/-1", "database is not"),
        ("redis://h/1?db=2", "twice"),
        ("redis://[::1", "']'"),
        ("redis://h?db", "option 1 .*lacks its =value"),
        ("redis://h?db=1&db=2", "'db' is given twice"),
        ("redis://h%zz", "host"),
        ("unix://relative.sock", "absolute"),
        ("unix://", "path"),
        ("memory://name:5", "name"),
        ("memory://user@name", "name"),
        ("memory://x?max_keys=many", "max_keys"),
        ("sqlite://file.db", "three slashes"),
        ("sqlite:///", "path"),
        ("sqlite:///a.db?mode=rx", "option mode"),
    ],
)
def test_a_bad_url_is_a_config_error_that_says_what_is_wrong(url: str, says: str) -> None:
    with pytest.raises(hotcount.ConfigError, match=says):
        hotcount.connect(url)


@pytest.mark.parametrize("bad", [None, 5, b"memory://", Path("/x")])
def test_a_url_of_another_type_is_a_type_error_that_names_it(bad: Any) -> None:
    with pytest.raises(TypeError, match=f"url must be str, not .*{type(bad).__name__}"):
        hotcount.connect(bad)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: hotcount.Memory(max_keys=0), "max_keys"),
        (lambda: hotcount.Memory(max_keys=-1), "max_keys"),
        (lambda: hotcount.Redis("redis://h", timeout=0), "timeout"),
        (lambda: hotcount.Redis("redis://h", timeout=float("nan")), "timeout"),
        (lambda: hotcount.Database("sqlite:///:memory:", timeout=-1), "timeout"),
        (lambda: hotcount.Database("sqlite:///:memory:", max_readers=0), "max_readers"),
        (lambda: hotcount.Database("sqlite:///:memory:", max_writers=0), "max_writers"),
        (lambda: hotcount.Memory("redis://h"), "redis"),
        (lambda: hotcount.Redis("memory://"), "memory"),
        (lambda: hotcount.Database("redis://h"), "redis"),
    ],
)
def test_a_bad_option_of_a_class_is_refused_by_name(make: Any, says: str) -> None:
    with pytest.raises(hotcount.ConfigError, match=says):
        make()


def test_a_concept_on_the_wrong_kind_of_store_says_what_it_needs(tmp_path: Path) -> None:
    file = tmp_path / "new.db"
    with pytest.raises(hotcount.ConfigError, match=r"Counter works on Memory or Redis.*sqlite"):
        hotcount.Counter(f"sqlite:///{file}")
    assert not file.exists(), "a refused URL must not make a file"
    with pytest.raises(hotcount.ConfigError, match=r"Votes works on Database.*memory"):
        hotcount.Votes("memory://")
    with pytest.raises(TypeError, match=r"db must be Database or a URL, not hotcount.Memory"):
        hotcount.SlottedCounter(hotcount.Memory())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="store must be Memory or Redis or a URL, not NoneType"):
        hotcount.Counter(None)  # type: ignore[arg-type]


def test_a_named_memory_store_is_one_for_all_who_name_it() -> None:
    first = hotcount.Counter("memory://shared-by-name")
    second = hotcount.Counter(hotcount.Memory("memory://shared-by-name"))
    first.add("k")
    assert second.add("k") == 2
    # Another prefix is another application's part of it.
    assert hotcount.Counter(hotcount.Memory("memory://shared-by-name", prefix="b:")).add("k") == 1


def test_closing_one_handle_leaves_the_others_open(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    first, second = hotcount.Database(url), hotcount.Database(url)
    assert first is not second
    first.close()
    assert second.ping() is True
    with pytest.raises(hotcount.ClosedError):
        first.ping()


def test_a_database_may_be_opened_again_while_something_still_holds_the_closed_one(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    database = hotcount.Database(url)
    held = hotcount.SlottedCounter(database)
    held.create_table()
    database.close()
    with hotcount.SlottedCounter(url) as again:
        again.add("k")
        assert again.get("k") == 1
    with pytest.raises(hotcount.ClosedError):
        held.get("k")


def test_redis_objects_of_one_url_share_one_connection(redis_server: RedisServer) -> None:
    first = hotcount.Redis(redis_server.url, prefix="shared:")
    second = hotcount.Redis(redis_server.url, prefix="shared:")
    third = hotcount.Redis(redis_server.url, prefix="shared:", timeout=2)
    ids = [store.execute("CLIENT", "ID") for store in (first, second, third)]
    assert ids[0] == ids[1] != ids[2]
    first.close()
    assert second.execute("CLIENT", "ID") == ids[0]
    second.close()
    assert hotcount.Redis(redis_server.url, prefix="shared:").execute("CLIENT", "ID") != ids[0]


@pytest.mark.parametrize("face", [hotcount, hotcount.aio])
def test_the_typed_connects_open_their_kind_and_refuse_others_unopened(
    face: Any, tmp_path: Path
) -> None:
    file = tmp_path / "a.db"
    assert type(face.connect_store("memory://")) is face.Memory
    assert type(face.connect_store("rediss://localhost")) is face.Redis
    assert type(face.connect_database("sqlite:///:memory:")) is face.Database
    with pytest.raises(hotcount.ConfigError, match=r"connect_store opens Memory or Redis.*sqlite"):
        face.connect_store(f"sqlite:///{file}")
    assert not file.exists()
    with pytest.raises(hotcount.ConfigError, match=r"connect_database opens Database.*memory"):
        face.connect_database("memory://")
    with pytest.raises(hotcount.ConfigError, match=r"'mongodb'"):
        face.connect_store("mongodb://localhost")
    for opens in (face.connect, face.connect_store, face.connect_database):
        with pytest.raises(TypeError, match="url must be str, not int"):
            opens(7)


@pytest.mark.parametrize("face", [hotcount, hotcount.aio])
def test_options_of_keywords_and_urls_are_attributes_and_stand_in_the_repr(face: Any) -> None:
    memory = face.Memory("memory://?max_keys=7&prefix=a", prefix=b"\xff")
    assert (memory.max_keys, memory.prefix, memory.when_full) == (7, b"\xff", "admit")
    redis = face.Redis("redis://u:canary@h?connect_timeout=2.5", silence_limit=9, timeout=None)
    assert (redis.timeout, redis.connect_timeout, redis.silence_limit) == (1.0, 2.5, 9.0)
    assert redis.protocol == 3
    assert "canary" not in repr(redis)
    assert "silence_limit=9.0" in repr(redis)
    assert "max_queue" not in repr(redis)
    database = face.Database("sqlite:///:memory:", idle_timeout=None, max_readers=2)
    assert (database.idle_timeout, database.max_readers, database.prepare) == (None, 2, True)
    for store, name in ((memory, "max_keys"), (redis, "timeout"), (database, "prepare")):
        with pytest.raises(AttributeError):
            setattr(store, name, 1)
        assert name in dir(store)
        with pytest.raises(TypeError, match=r"__init__\(\) was called already"):
            store.__init__("memory://")


def test_attributes_of_a_closed_store_still_answer() -> None:
    store = hotcount.Redis("redis://localhost", prefix="p:")
    store.close()
    assert (store.prefix, store.closed) == ("p:", True)
    with pytest.raises(hotcount.ClosedError):
        store.stats()
    with pytest.raises(hotcount.ClosedError):
        store.execute("PING")
