// Memory, Redis and Database, for threads and for event loops, and the module's functions: declared
// in hotcount/stores.py, hotcount/aio/stores.py and hotcount/functions.py.
#include <hotcount/build_info.hpp>
#include <hotcount/detail/redis/health.hpp>
#include <hotcount/detail/redis/request.hpp>
#include <hotcount/detail/sql/settings.hpp>
#include <hotcount/limiter.hpp>
#include <hotcount/op_id.hpp>
#include <hotcount/slotted_counter.hpp>
#include <hotcount/votes.hpp>
#include <hotcount/write_behind_counter.hpp>

#include "native/native.hpp"
#include "native/native_calls.hpp"
#include "native/options.hpp"
#include "votes.hpp"

namespace hotcount::python {
namespace {

/// None if it is 0: the library picks it.
struct AutoDuration : Delay {
    using Delay::Delay;
};
/// 2 or 3; for another number the core says what it takes.
struct Protocol {
    int version;
    operator int() const { return version; }
};

/// None, or a dict of addresses, "host:port" to "host:port".
struct AddressMap {
    std::map<std::string, std::string> entries;
    operator std::map<std::string, std::string>() const { return entries; }
};

/// The words of execute(*command).
struct Command {
    std::vector<std::string> words;
    std::vector<std::string_view>
        views;  // Views of `words`, which stay valid when the vector is moved.
};

}  // namespace

// -- the table, for what stores alone have --------------------------------------------------------

template <>
struct From<AutoDuration> {
    static AutoDuration read(const Argument& argument) {
        if (argument.value == Py_None) return {};
        return {to_duration(argument.value, argument.name)};
    }
};
template <>
struct To<AutoDuration> {
    static py::object make(Duration duration) {
        return duration == Duration::zero() ? py::none() : To<Duration>::make(duration);
    }
};

template <>
struct From<Protocol> {
    static Protocol read(const Argument& argument) {
        const std::size_t version = to_size(argument.value, argument.name);
        return {version == 2 || version == 3 ? static_cast<int>(version) : 0};
    }
};
template <>
struct To<Protocol> {
    static py::object make(int version) { return py::int_(version); }
};

/// None, or (user, password); read back without the password.
template <>
struct From<redis::Login> {
    static redis::Login read(const Argument& argument) {
        if (argument.value == Py_None) return {};
        if (!PyTuple_Check(argument.value) || PyTuple_GET_SIZE(argument.value) != 2) {
            raise_wrong_type(argument.name, "a tuple of user and password", argument.value);
        }
        const auto given = py::reinterpret_borrow<py::tuple>(argument.value);
        redis::Login login{to_text(given[0], {argument.name, 0}),
                           to_text(given[1], {argument.name, 1})};
        if (login.password.empty()) raise_bad(argument.name, "has an empty password");
        return login;
    }
};
template <>
struct To<redis::Login> {
    static py::object make(const redis::Login& login) {
        if (login.password.empty()) return py::none();
        return py::make_tuple(py::str(login.user), py::str("***"));
    }
};

/// None, or a callable that returns (user, password).
using Credentials = std::function<Result<redis::Login>()>;
template <>
struct From<Credentials> {
    static Credentials read(const Argument& argument) {
        const auto given = py::reinterpret_borrow<py::object>(argument.value);
        if (given.is_none()) return {};
        if (PyCallable_Check(given.ptr()) != 0) return PythonCredentials{given};
        raise_wrong_type(argument.name, "a callable that returns (user, password)", given);
    }
};
template <>
struct To<Credentials> {
    static py::object make(const Credentials& credentials) {
        const auto* const asked = credentials.target<PythonCredentials>();
        return asked == nullptr ? py::none() : asked->callable();
    }
};

template <>
struct From<AddressMap> {
    static AddressMap read(const Argument& argument) {
        std::map<std::string, std::string> addresses;
        if (argument.value == Py_None) return {};
        if (!PyDict_Check(argument.value)) {
            raise_wrong_type(argument.name, "a dict of 'host:port' to 'host:port'", argument.value);
        }
        for (const auto& [announced, reached] : py::reinterpret_borrow<py::dict>(argument.value)) {
            addresses.emplace(to_text(announced, argument.name), to_text(reached, argument.name));
        }
        return {addresses};
    }
};
template <>
struct To<AddressMap> {
    static py::object make(const std::map<std::string, std::string>& addresses) {
        if (addresses.empty()) return py::none();
        py::dict shown;
        for (const auto& [announced, reached] : addresses) shown[py::str(announced)] = reached;
        return shown;
    }
};

template <>
struct From<memory::WhenFull> {
    static memory::WhenFull read(const Argument& argument) {
        return unwrap(memory::parse_when_full(to_word(argument.value, argument.name)));
    }
};
template <>
struct To<memory::WhenFull> {
    static py::object make(memory::WhenFull when_full) {
        return To<std::string_view>::make(to_string(when_full));
    }
};

template <>
struct From<Command> {
    static constexpr bool kGathers = true;

    // As redis-py writes them: numbers in decimal, str as UTF-8.
    static std::string word(py::handle value, std::size_t index) {
        if (PyFloat_CheckExact(value.ptr())) return std::string(py::repr(value));
        if (!PyUnicode_Check(value.ptr()) && !PyBytes_Check(value.ptr())) {
            if (PyBool_Check(value.ptr()) || !PyIndex_Check(value.ptr())) {
                raise_wrong_type(Where{"command", index}, "str, bytes, int or float", value);
            }
            const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
            if (!number) throw py::error_already_set();
            return std::string(py::str(number));
        }
        return std::string{to_bytes(value, Where{"command", index})};
    }
    static Command read(const Argument& argument) {
        const auto given = py::reinterpret_borrow<py::tuple>(argument.value);
        if (given.empty()) raise_type("execute() missing the command");
        Command command;
        for (std::size_t i = 0; i < given.size(); ++i) command.words.push_back(word(given[i], i));
        command.views.assign(command.words.begin(), command.words.end());
        return command;
    }
    static auto pass(const Command& command) {
        return std::tuple<const std::vector<std::string_view>&>(command.views);
    }
    // The default of a *name is none, which a call refuses.
    static void check(const Argument*, const std::string&) {}
};

/// RESP2 and RESP3 give the same value. An error inside an array becomes an exception object in the
/// list.
template <>
struct To<redis::Reply> {
    static py::object make(const redis::Reply& reply) { return std::visit(Each{}, reply.value); }

  private:
    struct Each {
        py::object operator()(std::monostate) const { return py::none(); }
        py::object operator()(std::int64_t number) const { return py::int_(number); }
        py::object operator()(double number) const { return py::float_(number); }
        py::object operator()(bool truth) const { return py::bool_(truth); }
        py::object operator()(const std::string& text) const { return py::bytes(text); }
        py::object operator()(const redis::ReplyError& error) const {
            const auto word = error.message.substr(0, error.message.find(' '));
            return to_exception(make_error(ErrorCode::reply, error.message, word));
        }
        py::object operator()(const redis::ReplyArray& array) const {
            py::list items(array.size());
            for (std::size_t i = 0; i < array.size(); ++i) items[i] = make(array[i]);
            return items;
        }
    };
};

template <>
inline constexpr std::array<std::string_view, 2> kWords<Access>{"reads", "writes"};

/// The result of ready(): empty, or the reason, which goes to the log.
struct Readiness {
    std::optional<Error> missing;
};
template <>
struct To<Readiness> {
    static py::object make(const Readiness& readiness) {
        if (readiness.missing) log("warning", "not ready: " + readiness.missing->message);
        return py::bool_(!readiness.missing);
    }
};

template <>
struct To<memory::Store::Stats> {
    using S = memory::Store::Stats;
    static py::object make(const S& stats) {
        return to_dict<&S::keys, &S::max_keys, &S::swept, &S::refused, &S::untracked>(stats);
    }
};
template <>
struct To<sql::Database::Stats> {
    using S = sql::Database::Stats;
    static py::object make(const S& stats) {
        return to_dict<&S::transactions, &S::statements, &S::busy_waits>(stats);
    }
};

using Texts = std::map<std::string, std::string>;
template <>
struct To<Texts> {
    static py::object make(const Texts& texts) {
        py::dict all;
        for (const auto& [name, text] : texts) all[py::str(name)] = text;
        return all;
    }
};

template <>
struct To<std::vector<std::string_view>> {
    static py::object make(const std::vector<std::string_view>& names) {
        py::list all;
        for (const std::string_view name : names) all.append(py::str(std::string{name}));
        return all;
    }
};

template <>
struct From<sql::Dialect> {
    static sql::Dialect read(const Argument& argument) {
        const std::vector<std::string_view> names = sql::dialect_names();
        return unwrap(sql::dialect_of(names[to_choice(argument.value, argument.name, names)]));
    }
};

template <>
struct To<StoreKind> {
    static py::object make(StoreKind kind) { return py::str(to_string(kind)); }
};

template <>
struct BoundOf<memory::Store> {
    using type = MemoryStore;
};
template <>
struct BoundOf<redis::Client> {
    using type = RedisStore;
};
template <>
struct BoundOf<sql::Database> {
    using type = DatabaseStore;
};

namespace {

// -- options --------------------------------------------------------------------------------------

using MemoryOptions = memory::StoreOptions;
constexpr std::array kMemory{always_shown(option<&MemoryOptions::max_keys>()),
                             always_shown(option<&MemoryOptions::prefix, KeyText>()),
                             always_shown(option<&MemoryOptions::when_full>())};

using RedisOptions = redis::Options;
constexpr std::array kRedis{or_none(always_shown(option<&RedisOptions::timeout>())),
                            always_shown(option<&RedisOptions::prefix, KeyText>()),
                            option<&RedisOptions::client_name>(),
                            option<&RedisOptions::silence_limit, AutoDuration>(),
                            option<&RedisOptions::max_queue>(),
                            option<&RedisOptions::connect_timeout>(),
                            option<&RedisOptions::protocol, Protocol>(),
                            option<&RedisOptions::sentinel_credentials>(),
                            option<&RedisOptions::sentinel_tls>(),
                            hidden(option<&RedisOptions::credentials>()),
                            option<&RedisOptions::address_map, AddressMap>()};

using DatabaseOptions = sql::DatabaseOptions;
constexpr std::array kDatabase{
    or_none(always_shown(option<&DatabaseOptions::timeout>())),
    option<&DatabaseOptions::max_readers>(), option<&DatabaseOptions::max_writers>(),
    option<&DatabaseOptions::prepare>(), option<&DatabaseOptions::idle_timeout>()};

using V = VotesOptions;
constexpr std::array kVoteTables{option<&V::item_type>(),
                                 option<&V::user_type>(),
                                 option<&V::item_table>(),
                                 option<&V::item_id>(),
                                 option<&V::item_count, TextOrNone>(),
                                 option<&V::vote_table>(),
                                 option<&V::vote_item>(),
                                 option<&V::vote_user>(),
                                 option<&V::vote_value>(),
                                 option<&V::vote_previous>(),
                                 option<&V::vote_version>(),
                                 option<&V::foreign_key>()};

// -- what they do ---------------------------------------------------------------------------------

using GivenMemory = Given<MemoryOptions, kMemory>;
std::shared_ptr<BoundBase> make_memory(const std::string&, const std::string& url,
                                       const GivenMemory& given) {
    auto options = memory_options(url);
    given.apply(options);
    return open_memory(url, options);
}

using GivenRedis = Given<redis::Options, kRedis>;
std::shared_ptr<BoundBase> make_redis(const std::string&, const std::string& url,
                                      const GivenRedis& given) {
    auto options = unwrap(redis::parse_options(url));
    given.apply(options);
    return open_redis(url, options);
}

using GivenDatabase = Given<DatabaseOptions, kDatabase>;
std::shared_ptr<BoundBase> make_database(const std::string&, const std::string& url,
                                         const GivenDatabase& given) {
    DatabaseOptions options;
    given.apply(options);
    return python::open_database(url, options);
}

py::object redis_stats(py::handle, RedisStore& self) {
    const std::shared_ptr<redis::Client> client = self.held();
    const auto [stats, latency] = without_gil([&] {
        return std::pair{client->stats(), redis::latency_of(*client)};
    });
    using S = redis::Client::Stats;
    py::dict all = to_dict<&S::commands, &S::combined, &S::sends, &S::bytes_sent,
                           &S::bytes_received, &S::connects, &S::reconnects, &S::latency_us_p50,
                           &S::latency_us_p99, &S::latency_us_max>(stats);
    py::dict buckets;
    for (const auto& [bound, replies] : latency.buckets) buckets[py::float_(bound)] = replies;
    all["latency_s_buckets"] = buckets;
    all["latency_s_sum"] = latency.sum_s;
    all["latency_count"] = latency.count;
    return all;
}

bool ping_memory(memory::Store&, Timeout) { return true; }
void ping_memory_async(memory::Store&, Completion<bool> done, AsyncCall) { done(true); }

Result<bool> ping_redis(redis::Client& client, Timeout timeout) {
    HOTCOUNT_TRY(client.ping(timeout));
    return true;
}
Result<redis::Reply> execute(redis::Client& client, const std::vector<std::string_view>& command,
                             Timeout timeout) {
    return client.execute(command, timeout);
}
void execute_async(redis::Client& client, const std::vector<std::string_view>& command,
                   Completion<redis::Reply> done, AsyncCall call) {
    if (auto fits = redis::check_command(command); !fits) return done(std::move(fits).error());
    call.channel->submit(redis::Request::command(command), client.deadline(call.timeout),
                         std::move(done), call.cancelled);
}
void ping_redis_async(redis::Client& client, Completion<bool> done, AsyncCall call) {
    client.ping_async(
        [done = std::move(done)](Result<void> answered) {
            done(answered ? Result<bool>{true} : std::move(answered).error());
        },
        call);
}

Result<bool> ping_by(sql::Database& database, Deadline deadline) {
    HOTCOUNT_TRY(sql::check_ready(database, Access::reads, deadline));
    return true;
}
Result<bool> ping_database(sql::Database& database, Timeout timeout) {
    return ping_by(database, database.deadline(timeout));
}
void ping_database_async(DatabaseStore& store, Completion<bool> done, AsyncCall call) {
    // Its owner, which `done` holds, holds the database.
    sql::Database& database = *store.held();
    const Deadline deadline = database.deadline(call.timeout);
    store.waiting_calls().run<bool>(deadline, call.cancelled, std::move(done),
                                    [&database, deadline] { return ping_by(database, deadline); });
}

// A closed store is an error; any other error is the reason why the store is not ready.
Result<Readiness> to_readiness(Result<void> found) {
    if (found) return Readiness{};
    if (found.error().code == ErrorCode::closed) return std::move(found).error();
    return Readiness{std::move(found).error()};
}
Result<Readiness> ready_memory(memory::Store&, Access, Timeout) { return Readiness{}; }
void ready_memory_async(memory::Store&, Access, Completion<Readiness> done, AsyncCall) {
    done(Readiness{});
}
Result<Readiness> ready_redis(redis::Client& client, Access access, Timeout timeout) {
    return to_readiness(redis::check_ready(client, access, timeout));
}
void ready_redis_async(redis::Client& client, Access access, Completion<Readiness> done,
                       AsyncCall call) {
    redis::check_ready_async(
        client, access,
        [done = std::move(done)](Result<void> found) { done(to_readiness(std::move(found))); },
        call);
}
Result<Readiness> ready_database(sql::Database& database, Access access, Timeout timeout) {
    return to_readiness(sql::check_ready(database, access, database.deadline(timeout)));
}
void ready_database_async(DatabaseStore& store, Access access, Completion<Readiness> done,
                          AsyncCall call) {
    // As in ping_database_async.
    sql::Database& database = *store.held();
    const Deadline deadline = database.deadline(call.timeout);
    // Where no thread is free in time, it is not ready either.
    store.waiting_calls().run<bool>(
        deadline, call.cancelled,
        [done = std::move(done)](Result<bool> found) {
            done(to_readiness(found ? Result<void>{} : std::move(found).error()));
        },
        [&database, access, deadline]() -> Result<bool> {
            HOTCOUNT_TRY(sql::check_ready(database, access, deadline));
            return true;
        });
}

// -- functions ------------------------------------------------------------------------------------

Result<std::string> schema_of_votes(sql::Dialect dialect, VoteStrategy strategy,
                                    VotesOptions tables) {
    tables.strategy = strategy;
    return votes_schema(dialect, tables);
}
Result<std::string> schema_of_slotted_counter(sql::Dialect dialect) {
    return slotted_counter_schema(dialect);
}
Result<std::string> schema_of_limiter(sql::Dialect dialect) { return limiter_schema(dialect); }
Result<std::string> schema_of_write_behind_counter(sql::Dialect dialect) {
    return write_behind_schema(dialect);
}
std::string make_op_id() { return new_op_id(); }
Texts settings_of_database(py::handle database) {
    const StoreReference store(database, "database", "database_settings", {StoreKind::database});
    const auto core = store.backend<sql::Database>();
    return unwrap(without_gil([&] { return sql::read_settings(*core, core->deadline({})); }));
}

bool driver_calls_our_sqlite(py::handle method) {
    if (!PyObject_TypeCheck(method.ptr(), &PyMethodDescr_Type)) {
        throw py::type_error("method must be one of a type that is written in C");
    }
    const auto* const descriptor = reinterpret_cast<PyMethodDescrObject*>(method.ptr());
    return sql::calls_our_sqlite(reinterpret_cast<const void*>(descriptor->d_method->ml_meth));
}

}  // namespace

template <>
std::string MemoryStore::shown_options() const {
    return python::shown_options<MemoryOptions, kMemory>(options());
}
template <>
std::string RedisStore::shown_options() const {
    return python::shown_options<redis::Options, kRedis>(options());
}
template <>
std::string DatabaseStore::shown_options() const {
    return python::shown_options<DatabaseOptions, kDatabase>(options());
}

void bind_stores() {
    using Url = std::string;
    constructor<&make_memory, Url, GivenMemory>("MemoryBase.__init__",
                                                "url " + names_of<kMemory>());
    attributes<MemoryStore, kMemory>("MemoryBase");
    method<&memory::Store::stats, nullptr>("MemoryBase.stats", "");
    method<&ping_memory, &ping_memory_async, Timeout>("Memory.ping", "timeout");
    method<&ready_memory, &ready_memory_async, Access, Timeout>("Memory.ready", "for_ timeout");

    constructor<&make_redis, Url, GivenRedis>("RedisBase.__init__", "url " + names_of<kRedis>());
    refuse_keywords("RedisBase.__init__", "max_in_flight",
                    "at most 16,384 commands of a connection await their replies");
    refuse_keywords("RedisBase.__init__", "spin",
                    "a caller looks for its reply before it sleeps only while that has paid");
    refuse_keywords(
        "RedisBase.__init__", "max_reply_bytes",
        "a reply, or all of a batch, takes at most 512 MB, the most that a server keeps "
        "in a string");
    attributes<RedisStore, kRedis>("RedisBase");
    object_method<&redis_stats, RedisStore>("RedisBase.stats", "");
    method<&ping_redis, &ping_redis_async, Timeout>("Redis.ping", "timeout");
    method<&ready_redis, &ready_redis_async, Access, Timeout>("Redis.ready", "for_ timeout");
    method<&execute, &execute_async, Command, Timeout>("Redis.execute", "*command timeout");

    constructor<&make_database, Url, GivenDatabase>("DatabaseBase.__init__",
                                                    "url " + names_of<kDatabase>());
    refuse_keywords("DatabaseBase.__init__", "tcp_user_timeout",
                    "a connection whose other end acknowledges nothing ends after 10 s; a URL of "
                    "PostgreSQL may say otherwise: ?tcp_user_timeout=MILLISECONDS");
    attributes<DatabaseStore, kDatabase>("DatabaseBase");
    method<&sql::Database::stats, nullptr>("DatabaseBase.stats", "");
    method<&ping_database, &ping_database_async, Timeout>("Database.ping", "timeout");
    method<&ready_database, &ready_database_async, Access, Timeout>("Database.ready",
                                                                    "for_ timeout");

    function<&kind_of_url, Url>("kind_of_url", "url");
    function<&build_info>("build_info", "");
    function<&make_op_id>("new_op_id", "");
    function<&sql::dialect_names>("dialect_names", "");
    function<&settings_of_database, py::handle>("database_settings", "database");
    function<&driver_calls_our_sqlite, py::handle>("driver_calls_our_sqlite", "method");
    function<&schema_of_votes, sql::Dialect, VoteStrategy, Options<V, kVoteTables>>(
        "votes_schema", "dialect strategy " + names_of<kVoteTables>());
    function<&schema_of_slotted_counter, sql::Dialect>("slotted_counter_schema", "dialect");
    function<&schema_of_limiter, sql::Dialect>("limiter_schema", "dialect");
    function<&schema_of_write_behind_counter, sql::Dialect>("write_behind_schema", "dialect");
}

}  // namespace hotcount::python
