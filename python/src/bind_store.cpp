// The classes Memory, Redis and Database.
#include <hotcount/build_info.hpp>

#include "bind.hpp"
#include "convert.hpp"
#include "function.hpp"
#include "gil.hpp"
#include "open_store.hpp"
#include "reply_value.hpp"
#include "signature_text.hpp"

namespace hotcount::python {
namespace {

py::object connect(const Arguments& arguments) {
    return open_url(to_text(arguments[0], "url"),
                    arguments.options() ? py::dict(arguments.options()) : py::dict());
}

// -- Memory -----------------------------------------------------------------

MemoryHandle make_memory(const Arguments& arguments) {
    return open_memory(arguments[0] ? to_text(arguments[0], "url") : "memory://", arguments[1],
                       arguments[2], arguments[3]);
}

py::object memory_ping(MemoryHandle& self, const Arguments& arguments) {
    (void)to_timeout(arguments[0]);
    (void)self.backend();
    return py::bool_(true);
}

py::object memory_stats(MemoryHandle& self, const Arguments&) {
    const auto stats = self.backend()->stats();
    py::dict result;
    result["keys"] = stats.keys;
    result["max_keys"] = stats.max_keys;
    result["swept"] = stats.swept;
    result["refused"] = stats.refused;
    result["untracked"] = stats.untracked;
    return result;
}

// -- Redis ------------------------------------------------------------------

RedisHandle make_redis(const Arguments& arguments) {
    return open_redis(to_text(arguments[0], "url"),
                      {arguments[1], arguments[2], arguments[3], arguments[4], arguments[5],
                       arguments[6], arguments[7], arguments[8], arguments[9], arguments[10]});
}

py::object redis_ping(RedisHandle& self, const Arguments& arguments) {
    const auto client = self.backend();
    const Timeout timeout = to_timeout(arguments[0]);
    unwrap(without_gil([&] { return client->ping(timeout); }));
    return py::bool_(true);
}

py::object redis_stats(RedisHandle& self, const Arguments&) {
    const auto stats = self.backend()->stats();
    py::dict result;
    result["commands"] = stats.commands;
    result["combined"] = stats.combined;
    result["sends"] = stats.sends;
    result["bytes_sent"] = stats.bytes_sent;
    result["bytes_received"] = stats.bytes_received;
    result["connects"] = stats.connects;
    result["reconnects"] = stats.reconnects;
    result["latency_us_p50"] = stats.latency_us_p50;
    result["latency_us_p99"] = stats.latency_us_p99;
    result["latency_us_max"] = stats.latency_us_max;
    return result;
}

py::object redis_execute(RedisHandle& self, const Arguments& arguments) {
    const auto client = self.backend();
    const auto parts = to_command(arguments.rest());
    const std::vector<std::string_view> command(parts.begin(), parts.end());
    const Timeout timeout = to_timeout(arguments[0]);
    return from_reply(unwrap(without_gil([&] { return client->execute(command, timeout); })));
}

// -- Database ---------------------------------------------------------------

DatabaseHandle make_database(const Arguments& arguments) {
    return open_database(to_text(arguments[0], "url"), {arguments[1], arguments[2], arguments[3],
                                                        arguments[4], arguments[5], arguments[6]});
}

py::object database_ping(DatabaseHandle& self, const Arguments& arguments) {
    const auto database = self.backend();
    const Deadline deadline = database->deadline(to_timeout(arguments[0]));
    unwrap(without_gil([&] { return ping_database(*database, deadline); }));
    return py::bool_(true);
}

py::object database_stats(DatabaseHandle& self, const Arguments&) {
    const auto stats = self.backend()->stats();
    py::dict result;
    result["transactions"] = stats.transactions;
    result["statements"] = stats.statements;
    result["busy_waits"] = stats.busy_waits;
    return result;
}

py::object get_build_info(const Arguments&) {
    py::dict result;
    for (const auto& [name, value] : build_info()) result[py::str(name)] = value;
    return result;
}

constexpr const char* kStatsText =
    "Counts since the store was opened in this process, by name. They are for people: names may\n"
    "be added.";
constexpr const char* kRedisStatsText =
    "Counts since the store was opened in this process, by name: commands answered, combined "
    "(calls\n"
    "that travelled in another's command), sends, bytes_sent, bytes_received, connects, "
    "reconnects.\n"
    "latency_us_p50, _p99 and _max: microseconds from a command's encoding to its reply, at most\n"
    "7 % above the truth. Those of event loops are up to 20 ms old. Names may be added.";

void bind_memory(py::module_& module) {
    py::class_<MemoryHandle> cls(
        module, "Memory",
        "A store in this process: the embedded default, and as exact as a server.\n\n"
        "memory://NAME is one store for all who name it, until the last of them lets go; "
        "memory://\n"
        "is private. What it holds ends with the process; a forked child goes on with its own\n"
        "copy. At max_keys, expired keys make room; if there are none, a new key is refused with\n"
        "CapacityError, and a Limiter's as when_full says. Nothing live is ever dropped. Safe "
        "from\n"
        "many threads.");
    define_init<&make_memory>(cls, memory_signature(), kMemoryInitText);
    define<&memory_ping>(cls, "ping", "(self, *, " + kTimeout + ") -> bool",
                         "True; ClosedError after close().");
    define<&memory_stats>(cls, "stats", "(self) -> dict[str, int]", kStatsText);
    define_lifetime(cls, "Lets go of the store; it ends with its last holder. Idempotent.");
}

void bind_redis(py::module_& module) {
    py::class_<RedisHandle> cls(
        module, "Redis",
        "A Redis or Valkey server.\n\n"
        "redis://user:password@host:6379/0, redis+unix:///path.sock?db=0 (unix:// too),\n"
        "valkey://. It connects when first used, and again after a failure. Objects of the same\n"
        "URL and options share one connection. Safe from many threads; a forked child connects\n"
        "anew.");
    define_init<&make_redis>(cls, redis_signature(), kRedisInitText);
    define<&redis_ping>(cls, "ping", "(self, *, " + kTimeout + ") -> bool",
                        "True where the server answers; else the error that says why not.");
    define<&redis_execute>(
        cls, "execute",
        "(self, *command: str | bytes | int | float, " + kTimeout + ") -> typing.Any",
        kExecuteText);
    define<&redis_stats>(cls, "stats", "(self) -> dict[str, int | float]", kRedisStatsText);
    define_lifetime(cls, "Lets go of the connection, which ends with its last holder. Idempotent.");
}

void bind_database(py::module_& module) {
    py::class_<DatabaseHandle> cls(
        module, "Database",
        "A SQL database.\n\n"
        "sqlite:///file.db (four slashes: an absolute path; ?mode=ro|rw|rwc), sqlite:///:memory:;\n"
        "postgresql://user:password@host/database, mariadb:// and mysql:// likewise. It is opened\n"
        "at once, so that a bad path or a server that is away fails here. Objects of the same URL\n"
        "and options share their connections, except :memory:. Safe from many threads and across\n"
        "fork.\n\n"
        "TLS is as each driver has it, and weak by default: postgresql:// encrypts where the "
        "server\n"
        "offers it and verifies nothing (sslmode=prefer); mariadb:// and mysql:// do not encrypt.\n"
        "Over a network: ?sslmode=verify-full&sslrootcert=FILE, or ?ssl_ca=FILE. A server that "
        "asks\n"
        "for the password in clear text gets it over verified TLS or a Unix socket only; "
        "elsewhere\n"
        "that is an AuthError.");
    define_init<&make_database>(cls, database_signature(), kDatabaseInitText);
    define<&database_ping>(cls, "ping", "(self, *, " + kTimeout + ") -> bool",
                           "True where the database answers; else the error that says why not.");
    define<&database_stats>(cls, "stats", "(self) -> dict[str, int]", kStatsText);
    define_lifetime(cls, "Lets go of the connections, which end with the last holder. Idempotent.");
}

}  // namespace

// -- what both faces say ----------------------------------------------------

std::string memory_signature() {
    const memory::StoreOptions defaults;
    return "(self, url: str = 'memory://', *, max_keys: int = " +
           literal(static_cast<std::int64_t>(defaults.max_keys)) +
           ", prefix: str | bytes = '', when_full: typing.Literal['admit', 'refuse'] = " +
           literal(std::string{to_string(defaults.when_full)}) + ") -> None";
}
const char* const kMemoryInitText =
    "max_keys and when_full count for the opener that makes the store.\n"
    "prefix stands before every key. when_full: a Limiter's new key at\n"
    "max_keys is admitted and not remembered ('admit': its decision says\n"
    "'untracked', stats() counts it, the first one warns), or refused\n"
    "with CapacityError ('refuse'). Either is an attack on somebody.\n"
    "Bad values: ConfigError that names them.";

std::string redis_signature() {
    const redis::Options defaults;
    return "(self, url: str, *, timeout: " + kTime + " = " + literal(defaults.timeout) +
           ", prefix: str | bytes = '', client_name: str = " + literal(defaults.client_name) +
           ", max_in_flight: int = " + literal(static_cast<std::int64_t>(defaults.max_in_flight)) +
           ", spin: " + kTime + " = " + literal(defaults.spin) + ", silence_limit: " + kTime +
           " | None = None, max_queue: int = " +
           literal(static_cast<std::int64_t>(defaults.max_queue)) + ", connect_timeout: " + kTime +
           " = " + literal(defaults.connect_timeout) +
           ", protocol: typing.Literal[2, 3] = " + literal(std::int64_t{defaults.protocol}) +
           ", max_reply_bytes: int = " +
           literal(static_cast<std::int64_t>(defaults.max_reply_bytes)) + ") -> None";
}
const char* const kRedisInitText =
    "timeout is the default time limit of a call in seconds, waiting for\n"
    "a connection included. prefix stands before every key of a Counter; execute()\n"
    "sends keys as they are. client_name is what CLIENT LIST shows.\n"
    "max_in_flight bounds the commands sent and not yet answered on a\n"
    "connection: more for a server far away, fewer to spare it; others\n"
    "wait. spin is how long, in seconds, a caller or event loop with one\n"
    "command on its way looks for the reply before it sleeps: more than\n"
    "twice the calls a second on loopback, for that much CPU a call; it\n"
    "stops by itself where replies take longer. 0: never.\n"
    "silence_limit is how long, in seconds, a server that owes replies\n"
    "may say nothing before its connection is given up for another; None:\n"
    "1.5, or timeout where that is longer. What was sent is unknown then,\n"
    "also to calls with more time. Longer: for commands that take the\n"
    "server longer. Shorter: a dead connection is replaced sooner.\n"
    "max_queue bounds the calls that wait to be sent on a connection, at\n"
    "about 300 bytes each. At the bound a thread waits until its deadline;\n"
    "a call of hotcount.aio fails with CapacityError.\n"
    "connect_timeout bounds one attempt to connect, in seconds, from the\n"
    "resolved name to the greeting; the name's addresses share it, and\n"
    "no call's own timeout ends it. More: a server far away is reached;\n"
    "less: a silent one is given up sooner. protocol 3 speaks RESP3, and\n"
    "RESP2 where the server knows no HELLO; 2 does not ask, for proxies\n"
    "that close the connection then. Values are the same.\n"
    "max_reply_bytes bounds the memory that one reply, or all of a batch,\n"
    "takes: what a server gone wrong can make this process hold. A larger\n"
    "one ends the connection. More, where larger values are read.\n"
    "Bad values: ConfigError that names them.";

std::string database_signature() {
    const sql::DatabaseOptions defaults;
    return "(self, url: str, *, timeout: " + kTime + " = " + literal(defaults.timeout) +
           ", max_readers: int = " + literal(static_cast<std::int64_t>(defaults.max_readers)) +
           ", max_writers: int = " + literal(static_cast<std::int64_t>(defaults.max_writers)) +
           ", prepare: bool = True, idle_timeout: " + kTime +
           " | None = " + literal(*defaults.idle_timeout) + ", tcp_user_timeout: " + kTime + " = " +
           literal(defaults.tcp_user_timeout) + ") -> None";
}
Result<void> ping_database(sql::Database& database, Deadline deadline) {
    static const sql::Statement kSelect{"SELECT 1"};
    HOTCOUNT_TRY_ASSIGN(const sql::Lease lease, database.reader(deadline));
    HOTCOUNT_TRY(lease->execute(kSelect));
    return {};
}
const char* const kDatabaseInitText =
    "timeout is the default time limit of a call in seconds, waiting for locks included.\n"
    "max_readers and max_writers bound the connections open at once in this process; SQLite has\n"
    "one that writes. A server has to allow both together for each process: more writers help\n"
    "the strategies with a transaction per vote, group commit uses one or two. Where the server\n"
    "has no room for one more, calls wait for one until their deadline.\n"
    "prepare=False (in the URL too: ?prepare=false) keeps no statement prepared in the server's\n"
    "sessions. Behind PgBouncer and other poolers that happens by itself; it costs each statement\n"
    "the server's parsing and planning, on MariaDB and MySQL a round trip as well.\n"
    "idle_timeout: a connection to a server that nobody used for so many seconds is closed; the\n"
    "next call that lacks one pays for another, some milliseconds. Longer: more of the server's\n"
    "sessions are held for nothing. None: never.\n"
    "tcp_user_timeout: a TCP connection whose other end acknowledges nothing for so many seconds\n"
    "is given up. Shorter: a machine that stands still for a moment costs its connections, and a\n"
    "commit on its way an unknown outcome; longer: a dead path is noticed later. PostgreSQL's\n"
    "URLs may say otherwise (keepalives_idle, tcp_user_timeout ...).\n"
    "Settings of the server that make a commit mean less (fsync=off and the like) are one warning\n"
    "of the logger 'hotcount' as it is opened.\n"
    "Bad values: ConfigError; a file that may not be opened, a user who may not:\n"
    "PermissionDeniedError, AuthError; no server: UnavailableError; else DatabaseError.";
const char* const kExecuteText =
    "Sends one command and returns its reply.\n\n"
    "Replies: int; bytes for strings and RESP3's doubles; None; list, flat for a map;\n"
    "an error inside a list is a ReplyError there, a reply that is an error is raised.\n"
    "Commands that change the connection (MULTI, WATCH, SUBSCRIBE, SELECT, AUTH, HELLO,\n"
    "CLIENT REPLY, CLIENT TRACKING) or block are refused with ConfigError. A command that is\n"
    "not known to answer exactly once, such as a module's, goes over a connection of its own\n"
    "with an ECHO behind it; where it did not answer once: OutcomeUnknownError. So is a command\n"
    "that was sent and not answered in `timeout` seconds; it is never sent again.";

void bind_store(py::module_& module) {
    bind_memory(module);
    bind_redis(module);
    bind_database(module);
    define<&connect>(
        module, "connect",
        "(url: str, **options: typing.Any) -> hotcount._core.Memory | hotcount._core.Redis | "
        "hotcount._core.Database",
        "Opens what the URL names.\n\n"
        "memory://NAME                    Memory; options max_keys, prefix, when_full\n"
        "redis:// valkey:// redis+unix:// unix://   Redis; options timeout, prefix,\n"
        "                                 connect_timeout, protocol ...\n"
        "sqlite:///file.db postgresql:// mariadb:// mysql://   Database; options timeout,\n"
        "                                 max_readers, max_writers, prepare, idle_timeout,\n"
        "                                 tcp_user_timeout\n\n"
        "Another scheme, and an option that the scheme does not know, is a ConfigError naming it.");
    define<&get_build_info>(module, "build_info", "() -> dict[str, str]",
                            "What this build was made of, for bug reports: version, compiler,\n"
                            "hiredis, TLS, the SQLite that was loaded.");
}

}  // namespace hotcount::python
