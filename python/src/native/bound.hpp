// The C++ part of an object of a class that Python declares. One C type, _core.Handle, holds it.
#pragma once

#include <array>
#include <cstdint>
#include <hotcount/error.hpp>
#include <memory>
#include <optional>
#include <string>

#include "values/errors.hpp"
#include "values/pybind.hpp"

namespace hotcount::python {

namespace py = pybind11;

/// The base of the C++ parts that a BoundObject holds: a store, a concept made from a store, or a batch.
/// Guarded by the GIL.
class BoundBase {
  public:
    explicit BoundBase(const void* tag) : tag_(tag) {}
    BoundBase(const BoundBase&) = delete;
    BoundBase& operator=(const BoundBase&) = delete;
    virtual ~BoundBase() = default;

    /// Whether calls on a Redis may end in other threads than their loops', as all calls on a
    /// database do.
    static constexpr bool kEndsElsewhere = false;

    /// The text of repr(); `title` is the class, such as "aio.Counter".
    virtual std::string repr(const std::string& title) const { return "hotcount." + title; }
    virtual bool closed() const { return false; }
    virtual void close() { raise_type("it has nothing to close"); }
    /// Which class of C++ this is: by kTag.
    const void* tag() const { return tag_; }

    /// Calls of the core that have ended, by outcome.
    struct Outcomes {
        std::uint64_t ok{0};
        // By ErrorCode, of which closed is the last.
        std::array<std::uint64_t, static_cast<std::size_t>(ErrorCode::closed) + 1> failed{};
    };
    std::shared_ptr<Outcomes> calls{std::make_shared<Outcomes>()};
    void count_call(std::optional<ErrorCode> failed) const {
        ++(failed ? calls->failed[static_cast<std::size_t>(*failed)] : calls->ok);
    }

  private:
    const void* tag_;
};

/// Stands for a class of Bound by its address.
template <class Self>
inline constexpr char kTag{};

/// The C base of every class that is declared in Python (_core.Handle): nothing but what it holds.
struct BoundObject {
    PyObject ob_base;
    std::shared_ptr<BoundBase> bound;  // Null until __init__ has run, then the same for ever.

    static PyTypeObject type;

    static bool check(PyObject* object) { return PyObject_TypeCheck(object, &type) != 0; }
    static BoundObject* of(PyObject* object) { return reinterpret_cast<BoundObject*>(object); }
};

/// "Limiter" or "aio.Limiter": the first class of ours among a class and its bases.
std::string class_title(PyTypeObject* type);
[[noreturn]] void raise_unfinished(PyObject* self);

}  // namespace hotcount::python
