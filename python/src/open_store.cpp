// What URLs name, opened once for all who name it.
#include "open_store.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <hotcount/base/url.hpp>
#include <hotcount/build_info.hpp>
#include <map>

#include "convert.hpp"
#include "gil.hpp"
#include "signature_text.hpp"

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

struct SharedDatabase {
    std::weak_ptr<sql::Database> database;  // Tells a live object from a new one at its address.
    std::weak_ptr<Opened<sql::Database>> opened;
};

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

// With the logger "hotcount"; nothing where there is nothing to say. Never fails.
void log_warning(const std::string& text) {
    if (text.empty()) return;
    try {
        py::module_::import("logging").attr("getLogger")("hotcount").attr("warning")("%s", text);
    } catch (py::error_already_set& error) {
        error.discard_as_unraisable("hotcount: logging a warning");
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

RedisHandle open_redis(std::string_view text, const RedisArguments& given) {
    redis::Options options = unwrap(redis::parse_options(text));
    if (given.timeout && !given.timeout.is_none()) {
        options.timeout = to_duration(given.timeout, "timeout");
    }
    if (given.prefix) options.prefix = to_bytes(given.prefix, "prefix");
    if (given.client_name) options.client_name = to_text(given.client_name, "client_name");
    if (given.max_in_flight) options.max_in_flight = to_size(given.max_in_flight, "max_in_flight");
    if (given.spin) options.spin = to_delay(given.spin, "spin");
    if (given.silence_limit && !given.silence_limit.is_none()) {
        options.silence_limit = to_duration(given.silence_limit, "silence_limit");
    }
    if (given.max_queue) options.max_queue = to_size(given.max_queue, "max_queue");
    if (given.connect_timeout) {
        options.connect_timeout = to_duration(given.connect_timeout, "connect_timeout");
    }
    if (given.protocol) {
        const std::size_t protocol = to_size(given.protocol, "protocol");
        options.protocol = protocol == 2 || protocol == 3 ? static_cast<int>(protocol) : 0;
    }
    if (given.max_reply_bytes) {
        options.max_reply_bytes = to_size(given.max_reply_bytes, "max_reply_bytes");
    }
    const Url url = unwrap(parse_url(text));

    std::string identity;
    for (const auto& part : {options.host,
                             std::to_string(options.port),
                             options.unix_path,
                             options.user,
                             options.password,
                             std::to_string(options.database),
                             options.prefix,
                             std::to_string(options.timeout.count()),
                             std::to_string(options.tls.enabled),
                             options.tls.ca_file,
                             options.tls.cert_file,
                             options.tls.key_file,
                             options.tls.server_name,
                             std::to_string(options.spin.count()),
                             options.client_name,
                             std::to_string(options.max_in_flight),
                             std::to_string(options.silence_limit.count()),
                             std::to_string(options.max_queue),
                             std::to_string(options.connect_timeout.count()),
                             std::to_string(options.protocol),
                             std::to_string(options.max_reply_bytes)}) {
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

DatabaseHandle open_database(std::string_view text, const DatabaseArguments& given) {
    sql::DatabaseOptions options;
    if (given.timeout && !given.timeout.is_none()) {
        options.timeout = to_duration(given.timeout, "timeout");
    }
    if (given.max_readers) options.max_readers = to_size(given.max_readers, "max_readers");
    if (given.max_writers) options.max_writers = to_size(given.max_writers, "max_writers");
    if (given.prepare) options.prepare = to_bool(given.prepare, "prepare");
    if (given.idle_timeout) {
        options.idle_timeout.reset();
        if (!given.idle_timeout.is_none()) {
            options.idle_timeout = to_duration(given.idle_timeout, "idle_timeout");
        }
    }
    if (given.tcp_user_timeout) {
        options.tcp_user_timeout = to_duration(given.tcp_user_timeout, "tcp_user_timeout");
    }
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
            // Last: a handler of the application's may open a database itself.
            log_warning(database->durability_warning());
        }
        return {std::move(opened), StoreKind::database, database->name(), shown};
    }
}

StoreKind kind_of_url(std::string_view text) { return kind_of(unwrap(parse_url(text))); }

py::object open_url(std::string_view text, const py::dict& options) {
    const Url url = unwrap(parse_url(text));
    switch (kind_of(url)) {
        case StoreKind::memory:
            check_options(options, url.scheme, {"max_keys", "prefix", "when_full"});
            return py::cast(open_memory(text, find(options, "max_keys"), find(options, "prefix"),
                                        find(options, "when_full")));
        case StoreKind::redis:
            check_options(
                options, url.scheme,
                {"timeout", "prefix", "client_name", "max_in_flight", "spin", "silence_limit",
                 "max_queue", "connect_timeout", "protocol", "max_reply_bytes"});
            return py::cast(
                open_redis(text, {find(options, "timeout"), find(options, "prefix"),
                                  find(options, "client_name"), find(options, "max_in_flight"),
                                  find(options, "spin"), find(options, "silence_limit"),
                                  find(options, "max_queue"), find(options, "connect_timeout"),
                                  find(options, "protocol"), find(options, "max_reply_bytes")}));
        case StoreKind::database:
            break;
    }
    check_options(
        options, url.scheme,
        {"timeout", "max_readers", "max_writers", "prepare", "idle_timeout", "tcp_user_timeout"});
    return py::cast(
        open_database(text, {find(options, "timeout"), find(options, "max_readers"),
                             find(options, "max_writers"), find(options, "prepare"),
                             find(options, "idle_timeout"), find(options, "tcp_user_timeout")}));
}

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

std::string StoreReference::repr(const std::string& options) const {
    return "hotcount." + title_ + "(" + handle_->repr() + options + ")" +
           (closed_ ? " (closed)" : "");
}

void StoreReference::raise_closed() const {
    if (!closed_) handle_->raise_closed();
    raise(make_error(ErrorCode::closed, title_ + " over " + handle_->name() + " is closed"));
}

}  // namespace hotcount::python
