#include <algorithm>
#include <array>
#include <charconv>
#include <hotcount/base/url.hpp>
#include <hotcount/build_info.hpp>
#include <map>

#include "bind.hpp"
#include "convert.hpp"
#include "function.hpp"
#include "gil.hpp"
#include "reply_value.hpp"
#include "signature_text.hpp"
#include "store.hpp"

namespace hotcount::python {
namespace {

struct Scheme {
    std::string_view name;
    StoreKind kind;
};
constexpr std::array kSchemes{
    Scheme{"memory", StoreKind::memory},       Scheme{"redis", StoreKind::redis},
    Scheme{"rediss", StoreKind::redis},        Scheme{"valkey", StoreKind::redis},
    Scheme{"valkeys", StoreKind::redis},       Scheme{"redis+unix", StoreKind::redis},
    Scheme{"unix", StoreKind::redis},          Scheme{"sqlite", StoreKind::database},
    Scheme{"postgresql", StoreKind::database}, Scheme{"postgres", StoreKind::database},
    Scheme{"mariadb", StoreKind::database},    Scheme{"mysql", StoreKind::database},
};
// Planned, so worth more than "unknown".
constexpr std::array<std::string_view, 3> kLaterSchemes{"redis+cluster", "redis+sentinel",
                                                        "valkey+cluster"};

// -- opening ----------------------------------------------------------------

MemoryHandle open_memory(std::string_view text, py::handle max_keys, py::handle prefix,
                         py::handle when_full) {
    const Url url = unwrap(parse_url(text));
    if (url.scheme != "memory") {
        raise_config("URL: scheme '" + url.scheme + "' is not memory://NAME or memory://");
    }
    if (url.port || !url.user.empty() || !url.password.empty()) {
        raise_config("URL: memory:// takes a name only, such as memory://votes: " + url.str());
    }
    memory::StoreOptions options;
    for (const auto& [option, value] : url.query) {
        if (option == "prefix") {
            options.prefix = value;
        } else if (option == "max_keys") {
            const char* const end = value.data() + value.size();
            const auto [stop, error] = std::from_chars(value.data(), end, options.max_keys);
            if (error != std::errc{} || stop != end) raise_config("URL: max_keys is not a number");
        } else if (option == "when_full") {
            options.when_full = unwrap(memory::parse_when_full(value));
        } else {
            raise_config("URL: unknown option '" + option +
                         "' for memory://; it takes: max_keys, prefix, when_full");
        }
    }
    if (max_keys) options.max_keys = to_size(max_keys, "max_keys");
    if (prefix) options.prefix = to_bytes(prefix, "prefix");
    if (when_full) {
        options.when_full = unwrap(memory::parse_when_full(to_text(when_full, "when_full")));
    }

    const std::string name = url.host + url.path;
    const std::string shown =
        "hotcount.Memory('memory://" + name + "', max_keys=" + std::to_string(options.max_keys) +
        ", prefix=" + literal(options.prefix) +
        ", when_full=" + literal(std::string{to_string(options.when_full)}) + ")";
    // The prefix is part of a named store's name: who asks for another one gets other keys, as on
    // a server.
    auto store = name.empty() ? unwrap(memory::Store::make(options))
                              : unwrap(memory::named_store(name + '\0' + options.prefix, options));
    return {std::make_shared<Opened<memory::Store>>(std::move(store)), StoreKind::memory,
            "memory://" + name, shown};
}

// As a client ends it completes what is under way, for a loop by way of Mailbox::post, which takes the
// GIL; and it may be a thread of the library that drops it, in such a completion.
void end_client(std::shared_ptr<redis::Client> client) {
    struct Later {
        explicit Later(std::shared_ptr<redis::Client> left) : kept(std::move(left)) {}
        Later(const Later&) = delete;
        Later& operator=(const Later&) = delete;
        ~Later() { end_client(std::move(kept)); }
        std::shared_ptr<redis::Client> kept;
    };
    if (WithGil::in_python()) {
        const WithoutGil released;
        client.reset();
    } else {
        drop_in_python(std::make_shared<const Later>(std::move(client)));
    }
}

std::shared_ptr<redis::Client> ended_in_python(std::shared_ptr<redis::Client> client) {
    redis::Client* const plain = client.get();
    return {plain,
            [kept = std::move(client)](redis::Client*) mutable { end_client(std::move(kept)); }};
}

using SharedClients = std::map<std::string, std::weak_ptr<Opened<redis::Client>>>;

// What an opener may say beside the URL; null handles where it does not.
struct RedisArguments {
    py::handle timeout;
    py::handle prefix;
    py::handle client_name;
    py::handle max_in_flight;
    py::handle spin;
};

RedisHandle open_redis(std::string_view text, const RedisArguments& given) {
    redis::Options options = unwrap(redis::parse_options(text));
    if (given.timeout && !given.timeout.is_none()) {
        options.timeout = to_duration(given.timeout, "timeout");
    }
    if (given.prefix) options.prefix = to_bytes(given.prefix, "prefix");
    if (given.client_name) options.client_name = to_text(given.client_name, "client_name");
    if (given.max_in_flight) options.max_in_flight = to_size(given.max_in_flight, "max_in_flight");
    if (given.spin) options.spin = to_delay(given.spin, "spin");
    const Url url = unwrap(parse_url(text));

    std::string identity;
    for (const auto& part :
         {options.host, std::to_string(options.port), options.unix_path, options.user,
          options.password, std::to_string(options.database), options.prefix,
          std::to_string(options.timeout.count()), std::to_string(options.tls.enabled),
          options.tls.ca_file, options.tls.cert_file, options.tls.key_file, options.tls.server_name,
          std::to_string(options.spin.count()), options.client_name,
          std::to_string(options.max_in_flight)}) {
        // With its length, so that no part can pass for two.
        identity += std::to_string(part.size()) + ":" + part;
    }
    const std::string name = "redis at " + options.address();
    const std::string shown = "hotcount.Redis(" + literal(url.str()) +
                              ", timeout=" + literal(options.timeout) +
                              ", prefix=" + literal(options.prefix) + ")";

    // Never destroyed: handles may outlive static objects at exit.
    static auto* const clients = new SharedClients;
    std::erase_if(*clients, [](const auto& item) { return item.second.expired(); });
    auto opened = (*clients)[identity].lock();
    if (opened == nullptr) {
        opened = std::make_shared<Opened<redis::Client>>(
            ended_in_python(unwrap(redis::Client::make(options))));
        (*clients)[identity] = opened;
    }
    return {std::move(opened), StoreKind::redis, name, shown};
}

struct SharedDatabase {
    std::weak_ptr<sql::Database> database;  // Tells a live object from a new one at its address.
    std::weak_ptr<Opened<sql::Database>> opened;
};

DatabaseHandle open_database(std::string_view text, py::handle timeout, py::handle max_readers,
                             py::handle max_writers) {
    sql::DatabaseOptions options;
    if (timeout && !timeout.is_none()) options.timeout = to_duration(timeout, "timeout");
    if (max_readers) options.max_readers = to_size(max_readers, "max_readers");
    if (max_writers) options.max_writers = to_size(max_writers, "max_writers");
    const std::string shown = "hotcount.Database(" + literal(unwrap(parse_url(text)).str()) +
                              ", timeout=" + literal(options.timeout) + ")";

    static auto* const databases = new std::map<sql::Database*, SharedDatabase>;
    for (;;) {
        auto database = unwrap(without_gil([&] { return sql::open_database(text, options); }));
        std::erase_if(*databases, [](const auto& item) { return item.second.database.expired(); });
        SharedDatabase& shared = (*databases)[database.get()];
        auto opened = shared.opened.lock();
        if (opened == nullptr) {
            // The core shares databases too: this one's last handle was closed while we opened it.
            if (!shared.database.expired()) continue;
            opened = std::make_shared<Opened<sql::Database>>(database);
            shared = {database, opened};
        }
        return {std::move(opened), StoreKind::database, database->name(), shown};
    }
}

py::handle find(const py::dict& options, const char* name) {
    return PyDict_GetItemString(options.ptr(), name);  // Borrowed; null where absent.
}

void check_options(const py::dict& options, const std::string& scheme,
                   std::initializer_list<const char*> known) {
    for (const auto& [key, value] : options) {
        const std::string name = py::cast<std::string>(key);
        if (std::find(known.begin(), known.end(), name) != known.end()) continue;
        std::string list;
        for (const char* option : known) list += (list.empty() ? "" : ", ") + std::string{option};
        raise_config("unknown option '" + name + "' for " + scheme + "://; it takes: " + list);
    }
}

StoreKind kind_of(const Url& url) {
    const auto scheme = std::find_if(kSchemes.begin(), kSchemes.end(),
                                     [&](const Scheme& known) { return known.name == url.scheme; });
    if (scheme == kSchemes.end()) {
        if (std::find(kLaterSchemes.begin(), kLaterSchemes.end(), url.scheme) !=
            kLaterSchemes.end()) {
            raise_config("URL: scheme '" + url.scheme + "' is not supported by this version (" +
                         kVersion + ")");
        }
        std::string known;
        for (const Scheme& each : kSchemes) {
            known += (known.empty() ? "" : ", ") + std::string{each.name};
        }
        raise_config("URL: unknown scheme '" + url.scheme + "'; known are " + known);
    }
    return scheme->kind;
}

}  // namespace

StoreKind kind_of_url(std::string_view text) { return kind_of(unwrap(parse_url(text))); }

py::object open_url(std::string_view text, const py::dict& options) {
    const Url url = unwrap(parse_url(text));
    switch (kind_of(url)) {
        case StoreKind::memory:
            check_options(options, url.scheme, {"max_keys", "prefix", "when_full"});
            return py::cast(open_memory(text, find(options, "max_keys"), find(options, "prefix"),
                                        find(options, "when_full")));
        case StoreKind::redis:
            check_options(options, url.scheme,
                          {"timeout", "prefix", "client_name", "max_in_flight", "spin"});
            return py::cast(open_redis(
                text,
                {find(options, "timeout"), find(options, "prefix"), find(options, "client_name"),
                 find(options, "max_in_flight"), find(options, "spin")}));
        case StoreKind::database:
            break;
    }
    check_options(options, url.scheme, {"timeout", "max_readers", "max_writers"});
    return py::cast(open_database(text, find(options, "timeout"), find(options, "max_readers"),
                                  find(options, "max_writers")));
}

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
                      {arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]});
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
    return open_database(to_text(arguments[0], "url"), arguments[1], arguments[2], arguments[3]);
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
        "sqlite:///file.db (four slashes: an absolute path; ?mode=ro|rw|rwc), sqlite:///:memory:.\n"
        "It is opened at once, so that a bad path fails here. Objects of the same URL and options\n"
        "share their connections, except :memory:. Safe from many threads and across fork.");
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
           ", spin: " + kTime + " = " + literal(defaults.spin) + ") -> None";
}
const char* const kRedisInitText =
    "timeout is the default time limit of a call in seconds, connecting\n"
    "included. prefix stands before every key of a Counter; execute()\n"
    "sends keys as they are. client_name is what CLIENT LIST shows.\n"
    "max_in_flight bounds the commands sent and not yet answered on a\n"
    "connection: more for a server far away, fewer to spare it; others\n"
    "wait. spin is how long, in seconds, a caller or event loop with one\n"
    "command on its way looks for the reply before it sleeps: more than\n"
    "twice the calls a second on loopback, for that much CPU a call; it\n"
    "stops by itself where replies take longer. 0: never.\n"
    "Bad values: ConfigError that names them.";

std::string database_signature() {
    const sql::DatabaseOptions defaults;
    return "(self, url: str, *, timeout: " + kTime + " = " + literal(defaults.timeout) +
           ", max_readers: int = " + literal(static_cast<std::int64_t>(defaults.max_readers)) +
           ", max_writers: int = " + literal(static_cast<std::int64_t>(defaults.max_writers)) +
           ") -> None";
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
    "the strategies with a transaction per vote, group commit uses one or two.\n"
    "Bad values: ConfigError; a file that may not be opened, a user who may not:\n"
    "PermissionDeniedError, AuthError; no server: UnavailableError; else DatabaseError.";
const char* const kExecuteText =
    "Sends one command and returns its reply.\n\n"
    "Replies: int; bytes for simple and bulk strings; None; list; float and bool from RESP3;\n"
    "an error inside a list is a ReplyError there, a reply that is an error is raised.\n"
    "Commands that change the connection (MULTI, WATCH, SUBSCRIBE, SELECT, AUTH, HELLO,\n"
    "CLIENT REPLY) or block are refused with ConfigError. A command that was sent and not\n"
    "answered in `timeout` seconds is OutcomeUnknownError and is never sent again.";

// -- StoreReference ---------------------------------------------------------

StoreReference::StoreReference(py::handle value, const char* argument, const char* title,
                               std::initializer_list<StoreKind> kinds)
    : title_(title) {
    std::string wanted;
    for (const StoreKind kind : kinds) {
        wanted += wanted.empty() ? "" : " or ";
        wanted += kind == StoreKind::memory  ? "Memory"
                  : kind == StoreKind::redis ? "Redis"
                                             : "Database";
    }
    const auto fits = [kinds](StoreKind kind) {
        return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
    };
    object_ = py::reinterpret_borrow<py::object>(value);
    if (PyUnicode_Check(value.ptr())) {
        const std::string text = to_text(value, argument);
        // Before it is opened: a file would be made only to be refused.
        const Url url = unwrap(parse_url(text));
        if (!fits(kind_of(url))) {
            raise_config(std::string{argument} + ": " + title + " works on " + wanted +
                         ", not on " + url.scheme + "://");
        }
        object_ = open_url(text, py::dict());
        owned_ = true;
    }
    if (py::isinstance<AsyncMemoryHandle>(object_)) {
        object_ = object_.cast<AsyncMemoryHandle&>().store();
    } else if (py::isinstance<AsyncRedisHandle>(object_)) {
        object_ = object_.cast<AsyncRedisHandle&>().store();
    } else if (py::isinstance<AsyncDatabaseHandle>(object_)) {
        object_ = object_.cast<AsyncDatabaseHandle&>().store();
    }
    if (py::isinstance<MemoryHandle>(object_)) {
        handle_ = object_.cast<MemoryHandle*>();
    } else if (py::isinstance<RedisHandle>(object_)) {
        handle_ = object_.cast<RedisHandle*>();
    } else if (py::isinstance<DatabaseHandle>(object_)) {
        handle_ = object_.cast<DatabaseHandle*>();
    }
    if (handle_ == nullptr || !fits(handle_->kind())) {
        raise_type(std::string{argument} + " must be " + wanted + " or a URL, not " +
                   type_name(value));
    }
    if (handle_->closed()) handle_->raise_closed();
}

void StoreReference::close() {
    closed_ = true;
    if (owned_) object_.attr("close")();
}

std::string StoreReference::repr() const {
    return "hotcount." + title_ + "(" + handle_->repr() + ")" + (closed_ ? " (closed)" : "");
}

void StoreReference::raise_closed() const {
    if (!closed_) handle_->raise_closed();
    raise(make_error(ErrorCode::closed, title_ + " over " + handle_->name() + " is closed"));
}

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
        "redis:// valkey:// redis+unix:// unix://   Redis; options timeout, prefix\n"
        "sqlite:///file.db postgresql:// mariadb:// mysql://   Database; options timeout,\n"
        "                                 max_readers, max_writers\n\n"
        "Another scheme, and an option that the scheme does not know, is a ConfigError naming it.");
    define<&get_build_info>(module, "build_info", "() -> dict[str, str]",
                            "What this build was made of, for bug reports: version, compiler,\n"
                            "hiredis, TLS, the SQLite that was loaded.");
}

}  // namespace hotcount::python
