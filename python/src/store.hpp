// Stores and databases as Python holds them: counted by reference, closed by hand or with the last
// holder, shared by whoever opens the same URL.
//
//   Python object (Handle) --> Opened --> the core's Store, Client or Database
//        one per open            one per backend; closes it when the last Handle lets go
//
// AsyncHandle is the face of one that event loops use: it holds the Python object of the other.
//
// A concept (Counter, Votes ...) holds the Handle it was made from and asks it before every call,
// so that closing a handle ends its concepts while another handle of the same URL goes on.
//
// Everything here is guarded by the GIL.
#pragma once

#include <pybind11/pybind11.h>

#include <hotcount/memory/store.hpp>
#include <hotcount/redis/client.hpp>
#include <hotcount/sql/database.hpp>
#include <memory>
#include <string>
#include <string_view>

#include "errors.hpp"
#include "loop_adapter.hpp"

namespace hotcount::python {

namespace py = pybind11;

enum class StoreKind : std::uint8_t { memory = 1, redis = 2, database = 4 };

/// "hotcount.Redis(...)" as its awaitable face is called.
inline std::string aio_name(std::string name) {
    return name.insert(std::string_view{"hotcount."}.size(), "aio.");
}

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
    /// What the running loop calls it through; RuntimeError where none runs.
    std::shared_ptr<LoopSide> loop_side() {
        if constexpr (std::is_same_v<Backend, redis::Client>) {
            return loops_.here(backend_);
        } else {
            return loops_.here(nullptr);
        }
    }

  private:
    std::shared_ptr<Backend> backend_;
    LoopSides loops_;
};

/// What all handles have: a name without a password, and whether they are closed.
class HandleBase {
  public:
    bool closed() const { return closed_; }
    StoreKind kind() const { return kind_; }
    const std::string& name() const { return name_; }
    /// What repr shows.
    std::string repr() const { return shown_ + (closed_ ? " (closed)" : ""); }
    [[noreturn]] void raise_closed() const {
        raise(make_error(ErrorCode::closed, name_ + " is closed"));
    }

  protected:
    HandleBase(StoreKind kind, std::string name, std::string shown)
        : kind_(kind), name_(std::move(name)), shown_(std::move(shown)) {}
    HandleBase(HandleBase&&) = default;
    ~HandleBase() = default;

    bool closed_{false};

  private:
    StoreKind kind_;
    std::string name_;
    std::string shown_;
};

template <class Backend>
class Handle : public HandleBase {
  public:
    Handle(std::shared_ptr<Opened<Backend>> opened, StoreKind kind, std::string name,
           std::string shown)
        : HandleBase(kind, std::move(name), std::move(shown)), opened_(std::move(opened)) {}

    void close() {
        closed_ = true;
        opened_.reset();
    }
    /// ClosedError where it is closed. A copy: another thread may close it during the call.
    std::shared_ptr<Backend> backend() const {
        if (closed_) raise_closed();
        return opened_->backend();
    }
    std::shared_ptr<LoopSide> loop_side() const {
        if (closed_) raise_closed();
        return opened_->loop_side();
    }

  private:
    std::shared_ptr<Opened<Backend>> opened_;
};

using MemoryHandle = Handle<memory::Store>;
using RedisHandle = Handle<redis::Client>;
using DatabaseHandle = Handle<sql::Database>;

/// The awaitable face of a store: the same store, in its methods for event loops.
template <class Backend>
class AsyncHandle {
  public:
    explicit AsyncHandle(py::object store)
        : store_(std::move(store)), handle_(store_.cast<Handle<Backend>*>()) {}

    /// The face for threads, a Python object.
    const py::object& store() const { return store_; }
    Handle<Backend>& handle() const { return *handle_; }
    void close() { handle_->close(); }
    bool closed() const { return handle_->closed(); }
    std::string repr() const { return aio_name(handle_->repr()); }

  private:
    py::object store_;
    Handle<Backend>* handle_;  // Inside store_.
};

using AsyncMemoryHandle = AsyncHandle<memory::Store>;
using AsyncRedisHandle = AsyncHandle<redis::Client>;
using AsyncDatabaseHandle = AsyncHandle<sql::Database>;

/// What the constructors of both faces take, and say.
std::string memory_signature();
std::string redis_signature();
std::string database_signature();
extern const char* const kMemoryInitText;
extern const char* const kRedisInitText;
extern const char* const kDatabaseInitText;
extern const char* const kExecuteText;
/// Whether the database answers. Without the GIL.
Result<void> ping_database(sql::Database& database, Deadline deadline);

/// Opens what a URL names: a Memory, Redis or Database object.
py::object open_url(std::string_view text, const py::dict& options);
/// What it would open. ConfigError where the scheme is unknown.
StoreKind kind_of_url(std::string_view text);

/// What a concept was made from: a handle passed in, or one opened from a URL for it alone.
class StoreReference {
  public:
    /// Takes a store object, of either face, or its URL. An object of another type is a TypeError that names the
    /// argument, the URL of another kind a ConfigError; both say what `title` takes.
    StoreReference(py::handle value, const char* argument, const char* title,
                   std::initializer_list<StoreKind> kinds);

    const py::object& object() const { return object_; }
    StoreKind kind() const { return handle_->kind(); }
    const std::string& name() const { return handle_->name(); }
    template <class Backend>
    std::shared_ptr<Backend> backend() const {
        return static_cast<Handle<Backend>*>(handle_)->backend();
    }

    /// What the running loop calls a Redis or a Database through.
    std::shared_ptr<LoopSide> loop_side() const {
        if (kind() == StoreKind::database) {
            return static_cast<DatabaseHandle*>(handle_)->loop_side();
        }
        return static_cast<RedisHandle*>(handle_)->loop_side();
    }

    bool closed() const { return closed_ || handle_->closed(); }
    /// ClosedError where the concept or its store is closed.
    void check_open() const {
        if (closed()) [[unlikely]]
            raise_closed();
    }
    /// Ends the concept, and the store where it was opened for it alone.
    void close();
    /// "hotcount.Counter(hotcount.Memory(...))"; `options` stand behind the store.
    std::string repr(const std::string& options = "") const;

  private:
    [[noreturn]] void raise_closed() const;

    py::object object_;
    HandleBase* handle_{nullptr};  // Inside object_.
    std::string title_;
    bool owned_{false};
    bool closed_{false};
};

/// Text that a class holds for ever.
inline const char* kept_text(const std::string& text) { return (new std::string(text))->c_str(); }

/// `closed`, repr and a refusal to be pickled, for what has closed() and repr(). `name` is what
/// people call it.
template <class Self, class... Extra>
void define_identity(py::class_<Self, Extra...>& cls, const std::string& name,
                     const char* closed_text) {
    py::options plain;
    plain.disable_function_signatures();
    cls.def("__repr__", &Self::repr, "__repr__(self) -> str");
    cls.def(
        "__reduce__",
        [name](const Self&) -> py::object {
            raise_type(name +
                       " cannot be pickled: it stands for connections of this process. Pickle "
                       "its URL, and open it again on the other side");
        },
        "__reduce__(self) -> typing.NoReturn");
    plain.enable_function_signatures();  // Of properties stubgen reads pybind11's own.
    cls.def_property_readonly("closed", &Self::closed, closed_text);
}

/// close() and the context manager too, for what has close().
template <class Self, class... Extra>
void define_lifetime(py::class_<Self, Extra...>& cls, const char* close_text) {
    py::options plain;
    plain.disable_function_signatures();
    cls.def("close", &Self::close, kept_text("close(self) -> None\n\n" + std::string{close_text}));
    cls.def(
        "__enter__", [](const py::object& self) { return self; },
        "__enter__(self) -> typing_extensions.Self");
    cls.def(
        "__exit__", [](Self& self, const py::args&) { self.close(); },
        "__exit__(self, *exception: object) -> None");
    define_identity(cls, "hotcount." + py::cast<std::string>(cls.attr("__name__")),
                    "Whether close() was called.");
}

}  // namespace hotcount::python
