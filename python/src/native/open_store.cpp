// Opens stores by URL. Objects with the same URL and options share a connection or a database.

#include <algorithm>
#include <charconv>
#include <hotcount/detail/base/log.hpp>
#include <hotcount/detail/sql/dialect.hpp>
#include <hotcount/url.hpp>
#include <map>
#include <set>
#include <vector>

#include "store.hpp"
#include "values/convert.hpp"
#include "values/gil.hpp"

namespace hotcount::python {
namespace {

struct Scheme {
    std::string_view name;
    StoreKind kind;
};
const std::vector<Scheme>& known_schemes() {
    static const std::vector<Scheme> kKnown = [] {
        std::vector<Scheme> known{
            {"memory", StoreKind::memory},
            {"redis", StoreKind::redis},
            {"rediss", StoreKind::redis},
            {"valkey", StoreKind::redis},
            {"valkeys", StoreKind::redis},
            {"redis+unix", StoreKind::redis},
            {"unix", StoreKind::redis},
            {"redis+sentinel", StoreKind::redis},
            {"rediss+sentinel", StoreKind::redis},
            {"valkey+sentinel", StoreKind::redis},
            {"valkeys+sentinel", StoreKind::redis},
            {"redis+cluster", StoreKind::redis},
            {"rediss+cluster", StoreKind::redis},
            {"valkey+cluster", StoreKind::redis},
            {"valkeys+cluster", StoreKind::redis},
        };
        for (const std::string_view name : sql::database_schemes()) {
            known.push_back({name, StoreKind::database});
        }
        return known;
    }();
    return kKnown;
}

// Destroys a client in a thread of Python, without the GIL. The client's destructor completes the
// calls under way, and the completion of a loop's call takes the GIL (Mailbox::post). If a completion
// holds the last reference to the client, a thread of the library calls this function and leaves the
// destruction to Python.
void end_client(std::shared_ptr<redis::Client> client) {
    struct EndsClient {
        explicit EndsClient(std::shared_ptr<redis::Client> left) : kept(std::move(left)) {}
        EndsClient(const EndsClient&) = delete;
        EndsClient& operator=(const EndsClient&) = delete;
        ~EndsClient() { end_client(std::move(kept)); }
        std::shared_ptr<redis::Client> kept;
    };
    if (WithGil::in_python()) {
        const WithoutGil released;
        client.reset();
    } else {
        drop_in_python(std::make_shared<const EndsClient>(std::move(client)));
    }
}

// The client, which end_client() destroys.
std::shared_ptr<redis::Client> ended_in_python(std::shared_ptr<redis::Client> client) {
    redis::Client* const plain = client.get();
    return {plain,
            [kept = std::move(client)](redis::Client*) mutable { end_client(std::move(kept)); }};
}

using SharedClients = std::map<std::string, std::weak_ptr<Opened<redis::Client>>>;

struct SharedDatabase {
    std::weak_ptr<sql::Database> database;  // Expired: the key is the address of a former database.
    std::weak_ptr<Opened<sql::Database>> opened;
};

StoreKind kind_of(const Url& url) {
    const auto& all = known_schemes();
    const auto scheme = std::find_if(all.begin(), all.end(),
                                     [&](const Scheme& known) { return known.name == url.scheme; });
    if (scheme == all.end()) {
        std::string known;
        for (const Scheme& each : all) {
            known += (known.empty() ? "" : ", ") + std::string{each.name};
        }
        raise_config("URL: unknown scheme '" + url.scheme + "'; known are " + known);
    }
    return scheme->kind;
}

}  // namespace

void log(const char* method, const std::string& text) {
    if (text.empty()) return;
    try {
        import_module("logging").attr("getLogger")("hotcount").attr(method)("%s", text);
    } catch (py::error_already_set& error) {
        error.discard_as_unraisable("hotcount: logging");
    }
}

namespace {

// Makes no C++ objects: see call_or_hang. Null: an exception is set.
PyObject* call_logger(const LogLine& line) {
    PyObject* const logging = PyImport_ImportModule("logging");
    if (logging == nullptr) return nullptr;
    PyObject* const logger = PyObject_CallMethod(logging, "getLogger", "s", "hotcount");
    Py_DECREF(logging);
    if (logger == nullptr) return nullptr;
    PyObject* const text = PyUnicode_DecodeUTF8(
        line.text.data(), static_cast<Py_ssize_t>(line.text.size()), "backslashreplace");
    PyObject* const done =
        text == nullptr
            ? nullptr
            : PyObject_CallMethod(logger, line.is_trouble ? "warning" : "info", "sO", "%s", text);
    Py_XDECREF(text);
    Py_DECREF(logger);
    return done;
}

// Runs in a thread of the library that holds no lock, because a logging handler of the application
// may call hotcount.
void log_lines(std::vector<LogLine> lines) {
    const WithGil gil;
    if (!gil) return;
    call_or_hang([&] {
        for (const LogLine& line : lines) {
            PyObject* const done = call_logger(line);
            if (done == nullptr) PyErr_WriteUnraisable(Py_None);
            Py_XDECREF(done);
        }
    });
}

}  // namespace

void send_logs_to_python() {
    set_log_sink(&log_lines);
    // The last lines are logged before logging shuts down: exit handlers run in reverse order, and
    // the import of logging registers its own.
    import_module("logging");
    static PyMethodDef last_lines{"hotcount_last_lines",
                                  [](PyObject*, PyObject*) -> PyObject* {
                                      std::vector<LogLine> lines;
                                      {
                                          const WithoutGil released;
                                          lines = take_log_lines();
                                      }
                                      log_lines(std::move(lines));
                                      Py_RETURN_NONE;
                                  },
                                  METH_NOARGS, nullptr};
    const auto function = py::reinterpret_steal<py::object>(PyCFunction_New(&last_lines, nullptr));
    if (!function) throw py::error_already_set();
    import_module("atexit").attr("register")(function);
}

namespace {

// The result of the callable, or its exception as text. No C++ objects: see call_or_hang.
struct CredentialsOutcome {
    PyObject* login;
    PyObject* raised;
};
CredentialsOutcome call_credentials(PyObject* callable) {
    PyObject* const login = PyObject_CallNoArgs(callable);
    if (login != nullptr) return {login, nullptr};
    PyObject* type = nullptr;
    PyObject* value = nullptr;
    PyObject* traceback = nullptr;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    const char* const name = reinterpret_cast<PyTypeObject*>(type)->tp_name;
    PyObject* raised = PyUnicode_FromFormat("%s: %S", name, value);
    if (raised == nullptr) {
        PyErr_Clear();
        raised = PyUnicode_FromString(name);
    }
    Py_XDECREF(traceback);
    Py_XDECREF(value);
    Py_XDECREF(type);
    return {nullptr, raised};
}

std::optional<std::string> utf8_of(PyObject* text) {
    Py_ssize_t size = 0;
    const char* const bytes = text == nullptr ? nullptr : PyUnicode_AsUTF8AndSize(text, &size);
    if (bytes == nullptr) {
        PyErr_Clear();
        return std::nullopt;
    }
    return std::string(bytes, static_cast<std::size_t>(size));
}

Result<redis::Login> to_login(PyObject* given) {
    const auto refuse = [](const std::string& what) {
        return make_error(ErrorCode::config,
                          "credentials() returned " + what + ", not a tuple of user and password");
    };
    if (!PyTuple_Check(given)) return refuse(Py_TYPE(given)->tp_name);
    if (PyTuple_GET_SIZE(given) != 2) {
        return refuse("a tuple of " + std::to_string(PyTuple_GET_SIZE(given)));
    }
    for (const Py_ssize_t i : {0, 1}) {
        PyObject* const part = PyTuple_GET_ITEM(given, i);
        if (!PyUnicode_Check(part)) {
            return refuse(std::string{"a tuple with a "} + Py_TYPE(part)->tp_name);
        }
    }
    auto user = utf8_of(PyTuple_GET_ITEM(given, 0));
    auto password = utf8_of(PyTuple_GET_ITEM(given, 1));
    if (!user || !password) return refuse("text that is not Unicode");
    if (password->empty()) return refuse("an empty password");
    return redis::Login{std::move(*user), std::move(*password)};
}

}  // namespace

PythonCredentials::PythonCredentials(py::object callable)
    : callable_(callable.release().ptr(), [](PyObject* object) {
          // Any thread may drop the last reference. While the interpreter shuts down, no thread can
          // take the GIL, and the object is left.
          const WithGil gil;
          if (gil) Py_DECREF(object);
      }) {}

Result<redis::Login> PythonCredentials::operator()() const {
    const WithGil gil;
    if (!gil) return make_error(ErrorCode::closed, "the interpreter is shutting down");
    const CredentialsOutcome outcome =
        call_or_hang([&] { return call_credentials(callable_.get()); });
    if (outcome.login == nullptr) {
        const auto why = utf8_of(outcome.raised);
        Py_XDECREF(outcome.raised);
        return make_error(ErrorCode::auth, "credentials() raised " + why.value_or("an exception"));
    }
    auto login = to_login(outcome.login);
    call_or_hang([&] { Py_DECREF(outcome.login); });
    return login;
}

const char* to_string(StoreKind kind) {
    return kind == StoreKind::memory ? "Memory" : kind == StoreKind::redis ? "Redis" : "Database";
}

std::string StoreBase::repr(const std::string& title) const {
    return "hotcount." + title + "(" + std::string(py::repr(py::str(url_))) + shown_options() +
           ")" + (closed_ ? " (closed)" : "");
}

void StoreBase::add_facts(Error& error, Timeout timeout) const {
    if (error.code == ErrorCode::config && error.server_code.empty()) return;  // A bad argument.
    if (error.facts == nullptr || error.facts->server.empty()) {
        error.about(&ErrorFacts::server, name_);
    }
    const bool depends_on_timeout = error.code == ErrorCode::deadline ||
                                    error.code == ErrorCode::unavailable ||
                                    error.code == ErrorCode::outcome_unknown;
    if (!timeout) timeout = default_timeout();
    if (depends_on_timeout && timeout) error.about(&ErrorFacts::timeout, *timeout);
}

void StoreBase::raise_closed() const { raise(make_error(ErrorCode::closed, name_ + " is closed")); }

StoreKind kind_of_url(std::string_view text) { return kind_of(unwrap(parse_url(text))); }

memory::StoreOptions memory_options(std::string_view text) {
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
    return options;
}

std::shared_ptr<MemoryStore> open_memory(std::string_view text,
                                         const memory::StoreOptions& options) {
    const Url url = unwrap(parse_url(text));
    const std::string name = url.host + url.path;
    // The prefix is part of the name of a store in memory, so another prefix has other keys, as on
    // a server.
    auto store = name.empty() ? unwrap(memory::Store::make(options))
                              : unwrap(memory::named_store(name + '\0' + options.prefix, options));
    return std::make_shared<MemoryStore>(std::make_shared<Opened<memory::Store>>(std::move(store)),
                                         StoreKind::memory, "memory://" + name, "memory://" + name,
                                         options);
}

std::shared_ptr<RedisStore> open_redis(std::string_view text, const redis::Options& options) {
    const Url url = unwrap(parse_url(text));

    // The client holds the callable, so no other object has its address while the client lives.
    const auto* const asked = options.credentials.target<PythonCredentials>();
    const PyObject* const source = asked == nullptr ? nullptr : asked->callable().ptr();

    // Seeds in another order name the same servers.
    std::string seeds;
    std::set<std::string> sorted;
    for (const redis::Endpoint& seed : options.seeds) sorted.insert(seed.str());
    for (const std::string& seed : sorted) seeds += seed + ",";
    std::string address_map;
    for (const auto& [announced, reached] : options.address_map) {
        address_map += announced + ">" + reached + ",";
    }

    std::string identity;
    for (const auto& part : {options.cluster ? std::string{} : options.host,
                             std::to_string(options.cluster ? 0 : options.port),
                             options.unix_path,
                             options.user,
                             options.password,
                             std::to_string(reinterpret_cast<std::uintptr_t>(source)),
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
                             std::to_string(options.max_reply_bytes),
                             seeds,
                             options.service,
                             options.sentinel_credentials.user,
                             options.sentinel_credentials.password,
                             std::to_string(options.sentinel_tls),
                             std::to_string(options.cluster),
                             address_map}) {
        // The length of each part makes the identity unambiguous.
        identity += std::to_string(part.size()) + ":" + part;
    }

    // Never destroyed: handles may outlive static objects at exit.
    static auto* const clients = new SharedClients;
    std::erase_if(*clients, [](const auto& item) { return item.second.expired(); });
    auto opened = (*clients)[identity].lock();
    if (opened == nullptr) {
        opened = std::make_shared<Opened<redis::Client>>(
            ended_in_python(unwrap(redis::Client::make(options))));
        (*clients)[identity] = opened;
    }
    return std::make_shared<RedisStore>(std::move(opened), StoreKind::redis, options.address(),
                                        url.str(), options);
}

std::shared_ptr<DatabaseStore> open_database(std::string_view text,
                                             const sql::DatabaseOptions& options) {
    std::string url = unwrap(parse_url(text)).str();
    static auto* const databases = new std::map<sql::Database*, SharedDatabase>;
    for (;;) {
        auto database = unwrap(without_gil([&] { return sql::open_database(text, options); }));
        std::erase_if(*databases, [](const auto& item) { return item.second.database.expired(); });
        SharedDatabase& shared = (*databases)[database.get()];
        auto opened = shared.opened.lock();
        if (opened == nullptr) {
            // The core shares databases too. Another thread has closed the last handle of this one
            // while this thread opened it.
            if (!shared.database.expired()) continue;
            opened = std::make_shared<Opened<sql::Database>>(database);
            shared = {database, opened};
            // After the database is registered: a logging handler of the application may open one.
            log("warning", database->durability_warning());
        }
        return std::make_shared<DatabaseStore>(std::move(opened), StoreKind::database,
                                               database->name(), std::move(url), options);
    }
}

// -- StoreReference ---------------------------------------------------------

namespace {

std::shared_ptr<StoreBase> open_url(std::string_view url) {
    switch (kind_of_url(url)) {
        case StoreKind::memory:
            return open_memory(url, memory_options(url));
        case StoreKind::redis:
            return open_redis(url, unwrap(redis::parse_options(url)));
        case StoreKind::database:
            break;
    }
    return open_database(url, {});
}

}  // namespace

StoreReference::StoreReference(py::handle value, const char* argument, const char* title,
                               std::initializer_list<StoreKind> kinds)
    : title_(title) {
    std::string wanted;
    for (const StoreKind kind : kinds) {
        wanted += (wanted.empty() ? "" : " or ") + std::string{to_string(kind)};
    }
    const auto fits = [kinds](StoreKind kind) {
        return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
    };
    if (PyUnicode_Check(value.ptr())) {
        const std::string text = to_text(value, argument);
        // Checked first, because opening a URL that is refused would create a file.
        const Url url = unwrap(parse_url(text));
        if (!fits(kind_of(url))) {
            raise_config(std::string{argument} + ": " + title + " works on " + wanted +
                         ", not on " + url.scheme + "://");
        }
        store_ = open_url(text);
        owned_ = true;
    } else if (BoundObject::check(value.ptr())) {
        const auto& bound = BoundObject::of(value.ptr())->bound;
        if (bound == nullptr) raise_unfinished(value.ptr());
        store_ = std::dynamic_pointer_cast<StoreBase>(bound);
    }
    if (store_ == nullptr || !fits(store_->kind())) {
        raise_type(std::string{argument} + " must be " + wanted + " or a URL, not " +
                   type_name(value));
    }
    store_->check_open();
}

void StoreReference::close() {
    closed_ = true;
    if (owned_) store_->close();
}

std::string StoreReference::repr(const std::string& options) const {
    return "hotcount." + title_ + "(" + shown_store() + options + ")" +
           (closed_ ? " (closed)" : "");
}

void StoreReference::raise_closed() const {
    if (!closed_) store_->raise_closed();
    raise(make_error(ErrorCode::closed, title_ + " over " + store_->name() + " is closed"));
}

}  // namespace hotcount::python
