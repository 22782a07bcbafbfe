#include <array>
#include <hotcount/base/fork.hpp>
#include <hotcount/base/worker_pool.hpp>
#include <hotcount/redis/request.hpp>
#include <span>
#include <vector>

#include "async_call.hpp"
#include "asyncio_names.hpp"
#include "bind.hpp"
#include "convert.hpp"
#include "function.hpp"
#include "lifetime.hpp"
#include "reply_value.hpp"
#include "signature_text.hpp"
#include "store.hpp"

namespace hotcount::python {
namespace {

// Makes the store as its own class does, from the arguments that were given.
template <class Sync, std::size_t Count>
py::object make_store(const Arguments& arguments, const std::array<const char*, Count>& names) {
    py::dict given;
    for (std::size_t i = 0; i < Count; ++i) {
        if (arguments[i]) given[names[i]] = arguments[i];
    }
    return py::type::of<Sync>()(**given);
}

AsyncMemoryHandle make_memory(const Arguments& arguments) {
    return AsyncMemoryHandle{
        make_store<MemoryHandle>(arguments, std::array{"url", "max_keys", "prefix", "when_full"})};
}

AsyncRedisHandle make_redis(const Arguments& arguments) {
    return AsyncRedisHandle{make_store<RedisHandle>(
        arguments, std::array{"url", "timeout", "prefix", "client_name", "max_in_flight", "spin",
                              "silence_limit", "max_queue", "connect_timeout", "protocol",
                              "max_reply_bytes"})};
}

AsyncDatabaseHandle make_database(const Arguments& arguments) {
    return AsyncDatabaseHandle{make_store<DatabaseHandle>(
        arguments, std::array{"url", "timeout", "max_readers", "max_writers", "prepare",
                              "idle_timeout", "tcp_user_timeout"})};
}

// Threads for calls of a database that belong to no object of their own.
WorkerPool& database_threads() {
    static auto* const threads =
        new ForkLocal<WorkerPool>([] { return std::make_unique<WorkerPool>(4); });
    return threads->get();
}

py::object database_ping(AsyncDatabaseHandle& self, const Arguments& arguments) {
    const Timeout timeout = to_timeout(arguments[0]);
    const auto database = self.handle().backend();
    return start_call<bool>(
        self.handle().loop_side(), std::make_shared<const py::object>(self.store()), timeout,
        [&](Completion<bool> done, AsyncCall call) {
            WorkerPool& threads = database_threads();
            if (auto started = threads.start(); !started) return done(std::move(started).error());
            threads.run(
                [database, done = std::move(done), deadline = database->deadline(call.timeout)] {
                    auto answered = ping_database(*database, deadline);
                    done(answered ? Result<bool>{true} : std::move(answered).error());
                });
        },
        [](bool answers) -> py::object { return py::bool_(answers); });
}

py::object memory_ping(AsyncMemoryHandle& self, const Arguments& arguments) {
    (void)to_timeout(arguments[0]);
    (void)self.handle().backend();
    return Pending::make_done(running_loop(), py::bool_(true));
}

template <class Convert>
py::object submit(AsyncRedisHandle& self, std::span<const std::string_view> command,
                  py::handle given_timeout, Convert convert) {
    const Timeout timeout = to_timeout(given_timeout);
    const auto client = self.handle().backend();
    unwrap(redis::check_command(command));
    return start_call<redis::Reply>(
        self.handle().loop_side(), std::make_shared<const py::object>(self.store()), timeout,
        [&](Completion<redis::Reply> done, AsyncCall call) {
            call.channel->submit(redis::Request::command(command), client->deadline(call.timeout),
                                 std::move(done), call.cancelled);
        },
        convert);
}

py::object redis_ping(AsyncRedisHandle& self, const Arguments& arguments) {
    return submit(self, std::array<std::string_view, 1>{"PING"}, arguments[0],
                  [](const redis::Reply&) -> py::object { return py::bool_(true); });
}

py::object redis_execute(AsyncRedisHandle& self, const Arguments& arguments) {
    const auto parts = to_command(arguments.rest());
    return submit(self, std::vector<std::string_view>(parts.begin(), parts.end()), arguments[0],
                  &from_reply);
}

template <class Self>
py::object get_stats(Self& self, const Arguments&) {
    return self.store().attr("stats")();
}

py::object connect(const Arguments& arguments) {
    const std::string url = to_text(arguments[0], "url");
    py::object store =
        open_url(url, arguments.options() ? py::dict(arguments.options()) : py::dict());
    if (py::isinstance<MemoryHandle>(store)) return py::cast(AsyncMemoryHandle{std::move(store)});
    if (py::isinstance<RedisHandle>(store)) return py::cast(AsyncRedisHandle{std::move(store)});
    return py::cast(AsyncDatabaseHandle{std::move(store)});
}

constexpr const char* kStatsText = "As the same store's stats() for threads; not awaited.";

void bind_memory(py::module_& module) {
    py::class_<AsyncMemoryHandle> cls(
        module, "AsyncMemory",
        "hotcount.Memory for event loops. Its calls are done when they return.");
    define_init<&make_memory>(cls, memory_signature(), kMemoryInitText);
    define<&memory_ping>(cls, "ping", "(self, *, " + kTimeout + ") -> " + awaited("bool"),
                         "True; ClosedError after aclose().");
    define<&get_stats<AsyncMemoryHandle>>(cls, "stats", "(self) -> dict[str, int]", kStatsText);
    define_async_lifetime(cls, "hotcount.aio.Memory",
                          "Lets go of the store; it ends with its last holder.");
}

void bind_redis(py::module_& module) {
    py::class_<AsyncRedisHandle> cls(
        module, "AsyncRedis",
        "hotcount.Redis for event loops: the same store in awaitable methods.\n\n"
        "Each loop that uses it has a connection of its own, made on first use and gone with the\n"
        "loop. Threads may use the same store: hotcount.Counter takes this object too, and\n"
        "hotcount.aio.Counter takes a hotcount.Redis. A call starts when it is made, not when it\n"
        "is awaited.");
    define_init<&make_redis>(cls, redis_signature(), kRedisInitText);
    define<&redis_ping>(cls, "ping", "(self, *, " + kTimeout + ") -> " + awaited("bool"),
                        "True where the server answers; else the error that says why not.");
    define<&redis_execute>(
        cls, "execute",
        "(self, *command: str | bytes | int | float, " + kTimeout + ") -> " + awaited("typing.Any"),
        kExecuteText);
    define<&get_stats<AsyncRedisHandle>>(cls, "stats", "(self) -> dict[str, int | float]",
                                         kStatsText);
    define_async_lifetime(cls, "hotcount.aio.Redis",
                          "Lets go of the connections, which end with the last holder.");
}

void bind_database(py::module_& module) {
    py::class_<AsyncDatabaseHandle> cls(
        module, "AsyncDatabase",
        "hotcount.Database for event loops: the same database in awaitable methods.\n\n"
        "hotcount.aio.Votes takes it, or a hotcount.Database; hotcount.Votes takes this object "
        "too.\n"
        "Making it opens the database, which blocks the loop for as long as that takes.");
    define_init<&make_database>(cls, database_signature(), kDatabaseInitText);
    define<&database_ping>(cls, "ping", "(self, *, " + kTimeout + ") -> " + awaited("bool"),
                           "True where the database answers; else the error that says why not.");
    define<&get_stats<AsyncDatabaseHandle>>(cls, "stats", "(self) -> dict[str, int]", kStatsText);
    define_async_lifetime(cls, "hotcount.aio.Database",
                          "Lets go of the connections, which end with the last holder.",
                          kVotesGoOn);
}

}  // namespace

void bind_async_store(py::module_& module) {
    bind_memory(module);
    bind_redis(module);
    bind_database(module);
    define<&connect>(module, "connect_async",
                     "(url: str, **options: typing.Any) -> hotcount._core.AsyncMemory | "
                     "hotcount._core.AsyncRedis | hotcount._core.AsyncDatabase",
                     "Opens what the URL names, for event loops: as hotcount.connect.");
}

}  // namespace hotcount::python
