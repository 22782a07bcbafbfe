// Stores and databases as Python holds them: counted by reference, closed by hand or with the last
// holder, shared by whoever opens the same URL.
//
//   Python object --> Store --> Opened --> the core's Store, Client or Database
//        one per open              one per backend; closes it when the last Store lets go
//
// hotcount.Redis and hotcount.aio.Redis are two classes over one kind of Store. A concept (Counter,
// Votes ...) holds the Store that it was made from and asks it before every call, so that closing
// it ends its concepts while another one of the same URL goes on.
//
// Everything here is guarded by the GIL.
#pragma once

#include <hotcount/detail/base/fork.hpp>
#include <hotcount/detail/base/worker_pool.hpp>
#include <hotcount/memory.hpp>
#include <hotcount/redis.hpp>
#include <hotcount/sql.hpp>
#include <memory>
#include <string>
#include <string_view>

#include "aio/loop_adapter.hpp"
#include "bound.hpp"
#include "values/errors.hpp"
#include "values/pybind.hpp"

namespace hotcount::python {

namespace py = pybind11;

enum class StoreKind : std::uint8_t { memory = 1, redis = 2, database = 4 };
/// "Memory", "Redis" or "Database".
const char* to_string(StoreKind kind);

/// logging.getLogger("hotcount").warning(text), or the method that is named; nothing if there is nothing
/// to say. Never fails. With the GIL.
void log(const char* method, const std::string& text);
/// From now on, what the core logs goes there too, from a thread of its own.
void send_logs_to_python();

/// redis::Options::credentials by a callable of Python's.
class PythonCredentials {
  public:
    explicit PythonCredentials(py::object callable);

    py::object callable() const { return py::reinterpret_borrow<py::object>(callable_.get()); }
    /// In a thread of the library, without the GIL.
    Result<redis::Login> operator()() const;

  private:
    std::shared_ptr<PyObject> callable_;
};

template <class Backend>
class Opened {
  public:
    explicit Opened(std::shared_ptr<Backend> backend) : backend_(std::move(backend)) {}
    Opened(const Opened&) = delete;
    Opened& operator=(const Opened&) = delete;
    ~Opened() {
        // With the GIL held: between "nobody holds it" and "it is closed" nobody may open it.
        loops_.end();
        if constexpr (requires(Backend & backend) { backend.close(); }) backend_->close();
    }
    const std::shared_ptr<Backend>& backend() const { return backend_; }
    /// Threads for calls of a database that belong to no concept. A database that hangs keeps those
    /// of no other busy.
    WaitingCalls& waiting_calls() requires std::is_same_v<Backend, sql::Database> {
        return waiting_calls_.get();
    }
    /// The binding of the running loop to this store; RuntimeError if no loop runs.
    std::shared_ptr<LoopBinding> loop_binding() {
        if constexpr (std::is_same_v<Backend, redis::Client>) {
            return loops_.here(backend_);
        } else {
            return loops_.here(nullptr);
        }
    }

  private:
    static constexpr std::size_t kThreads = 2;
    static constexpr std::size_t kMostWaiting = 100'000;
    static std::unique_ptr<WaitingCalls> make_waiting_calls(const Backend& backend) {
        if constexpr (std::is_same_v<Backend, sql::Database>) {
            return std::make_unique<WaitingCalls>(backend.name(), kThreads, kMostWaiting);
        } else {
            return nullptr;
        }
    }

    std::shared_ptr<Backend> backend_;
    LoopBindings loops_;
    ForkLocal<WaitingCalls> waiting_calls_{[this] { return make_waiting_calls(*backend_); }};
};

/// The base of all stores: a name, a URL without a password, and whether the store is closed.
class StoreBase : public BoundBase {
  public:
    StoreBase(const void* tag, StoreKind kind, std::string name, std::string url)
        : BoundBase(tag),
          in_memory(kind == StoreKind::memory),
          kind_(kind),
          name_(std::move(name)),
          url_(std::move(url)) {}

    StoreKind kind() const { return kind_; }
    const std::string& name() const { return name_; }
    std::string repr(const std::string& title) const override;
    bool closed() const override { return closed_; }
    /// ClosedError if it is closed.
    void check_open() const {
        if (closed_) [[unlikely]]
            raise_closed();
    }
    [[noreturn]] void raise_closed() const;
    virtual std::shared_ptr<LoopBinding> loop_binding() = 0;
    /// Adds to an error of a call the store's name, and the time that the call had.
    void add_facts(Error& error, Timeout timeout) const;

    const bool in_memory;

  protected:
    virtual std::string shown_options() const = 0;
    virtual Timeout default_timeout() const = 0;

    bool closed_{false};

  private:
    StoreKind kind_;
    std::string name_;
    std::string url_;
};

template <class Backend, class O>
class Store final : public StoreBase {
  public:
    Store(std::shared_ptr<Opened<Backend>> opened, StoreKind kind, std::string name,
          std::string url, O options)
        : StoreBase(&kTag<Store>, kind, std::move(name), std::move(url)),
          opened_(std::move(opened)),
          options_(std::move(options)) {}

    void close() override {
        closed_ = true;
        opened_.reset();
    }
    /// A copy: another thread may close it during the call.
    std::shared_ptr<Backend> held() const {
        check_open();
        return opened_->backend();
    }
    std::shared_ptr<LoopBinding> loop_binding() override {
        check_open();
        return opened_->loop_binding();
    }
    WaitingCalls& waiting_calls() requires std::is_same_v<Backend, sql::Database> {
        check_open();
        return opened_->waiting_calls();
    }
    const O& options() const { return options_; }

  protected:
    std::string shown_options() const override;
    Timeout default_timeout() const override {
        if constexpr (requires { options_.timeout; }) {
            return options_.timeout;
        } else {
            return {};
        }
    }

  private:
    std::shared_ptr<Opened<Backend>> opened_;
    O options_;
};

using MemoryStore = Store<memory::Store, memory::StoreOptions>;
using RedisStore = Store<redis::Client, redis::Options>;
using DatabaseStore = Store<sql::Database, sql::DatabaseOptions>;
template <>
std::string MemoryStore::shown_options() const;
template <>
std::string RedisStore::shown_options() const;
template <>
std::string DatabaseStore::shown_options() const;

// -- opening -------------------------------------------------------------------------------------

/// The kind of store that a URL names. ConfigError if the scheme is unknown.
StoreKind kind_of_url(std::string_view text);
/// The options that a URL of memory:// brings.
memory::StoreOptions memory_options(std::string_view url);
std::shared_ptr<MemoryStore> open_memory(std::string_view url, const memory::StoreOptions& options);
std::shared_ptr<RedisStore> open_redis(std::string_view url, const redis::Options& options);
std::shared_ptr<DatabaseStore> open_database(std::string_view url,
                                             const sql::DatabaseOptions& options);

/// The store of a concept: an object that the caller passed, or a store opened from a URL for it alone.
class StoreReference {
  public:
    /// Takes a store object (sync or aio), or its URL. An object of another type is a TypeError
    /// that names the argument, the URL of another kind a ConfigError; both say what `title` takes.
    StoreReference(py::handle value, const char* argument, const char* title,
                   std::initializer_list<StoreKind> kinds);

    StoreKind kind() const { return store_->kind(); }
    const std::string& name() const { return store_->name(); }
    template <class Backend>
    std::shared_ptr<Backend> backend() const {
        if constexpr (std::is_same_v<Backend, memory::Store>) {
            return static_cast<MemoryStore&>(*store_).held();
        } else if constexpr (std::is_same_v<Backend, redis::Client>) {
            return static_cast<RedisStore&>(*store_).held();
        } else {
            return static_cast<DatabaseStore&>(*store_).held();
        }
    }
    /// The binding of the running loop to a Redis or a Database.
    std::shared_ptr<LoopBinding> loop_binding() const { return store_->loop_binding(); }

    void add_facts(Error& error, Timeout timeout) const { store_->add_facts(error, timeout); }
    bool closed() const { return closed_ || store_->closed(); }
    /// ClosedError if the concept or its store is closed.
    void check_open() const {
        if (closed()) [[unlikely]]
            raise_closed();
    }
    /// Ends the concept, and the store if it was opened for it alone.
    void close();
    /// "hotcount.Memory(...)".
    std::string shown_store() const { return store_->repr(to_string(kind())); }
    /// "hotcount.Counter(hotcount.Memory(...))"; `options` stand behind the store.
    std::string repr(const std::string& options = "") const;

  private:
    [[noreturn]] void raise_closed() const;

    std::shared_ptr<StoreBase> store_;
    std::string title_;
    bool owned_{false};
    bool closed_{false};
};

}  // namespace hotcount::python
