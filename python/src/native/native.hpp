// Functions and methods that Python declares and C++ executes.
//
//   class Limiter(Lifetime, LimiterBase):             # hotcount/limiter.py
//       @native
//       def hit(self, key: Key, cost: int = 1, *, op_id: ... = None, ...) -> Decision:
//           """Takes cost, 1 or more, if the limit allows it. ..."""
//
//   method<&Limiter::hit, &Limiter::hit_async, LimiterKey, Cost, OpId, Timeout>(
//       "Limiter.hit", "key cost op_id timeout");       // limiter.cpp, by native_calls.hpp
//
// Names, order, kinds and defaults of the parameters are the declaration's; C++ says of what type
// each is, which picks its conversion (table.hpp). `native` joins the two when the module is
// imported: an ImportError names a declaration that C++ does not have, and a name, a number of
// parameters or a default that is not the same on both sides.
//
// One line serves `def` and `async def`. The first calls the core's waiting function (without the
// GIL; in memory with it, but for batches), the second its completion-shaped one, and returns what
// is awaited. Objects of both kinds are of one C type, BoundObject, which holds a Bound: the core's
// object and the store that it was made from, or a store itself. Every entry looks there first: another
// class than the method's, or an object whose __init__ never ran, is a TypeError.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "bound.hpp"
#include "store.hpp"
#include "table.hpp"
#include "values/gil.hpp"
#include "values/pybind.hpp"

namespace hotcount::python {

namespace py = pybind11;

/// From now on the core uses the SQLite library of the interpreter's sqlite3, which its first use of
/// SQLite looks up (sqlite.cpp). On import.
void use_sqlite_of_python();

// -- objects --------------------------------------------------------------------------------------

/// An object made from a store, such as a Counter.
class BoundConcept : public BoundBase {
  public:
    BoundConcept(const void* tag, StoreReference reference)
        : BoundBase(tag),
          store(std::move(reference)),
          in_memory(store.kind() == StoreKind::memory) {}

    /// ", name=value" for each option that repr shows.
    virtual std::string shown_options() const { return ""; }
    std::string repr(const std::string&) const override { return store.repr(shown_options()); }
    bool closed() const override { return store.closed(); }
    void close() override { store.close(); }
    // One that has more than its store hides this: its methods know which class they call.
    void check_open() const { store.check_open(); }
    std::shared_ptr<LoopBinding> loop_binding() const { return store.loop_binding(); }
    void add_facts(Error& error, Timeout timeout) const { store.add_facts(error, timeout); }

    StoreReference store;
    const bool in_memory;
};

/// A concept of the core. One that needs more derives from it, and names itself in BoundOf.
template <class Concept>
class Bound : public BoundConcept {
  public:
    Bound(std::shared_ptr<Concept> made, StoreReference reference,
          const void* tag = &kTag<Bound<Concept>>)
        : BoundConcept(tag, std::move(reference)), core(std::move(made)) {}
    // The end of the core waits for its threads, and one of them may be telling a loop an outcome, for
    // which it needs the GIL.
    ~Bound() override {
        if (PyGILState_Check() == 0) return;
        const WithoutGil released;
        core.reset();
    }

    /// The core object that a call is made on. (That of a store may end during the call, so a store
    /// returns a copy.)
    const std::shared_ptr<Concept>& held() const { return core; }
    const auto& options() const { return core->options(); }

    std::shared_ptr<Concept> core;  // Does not change.
};

template <class Concept>
struct BoundOf {
    using type = Bound<Concept>;
};

// -- functions ------------------------------------------------------------------------------------

class NativeFunction;

/// The C++ side of a declaration. It lives as long as the module.
struct Native {
    std::string name;                     ///< "Limiter.hit", as __qualname__ has it.
    std::vector<std::string> parameters;  ///< Without the self of a method.
    bool takes_self;
    vectorcallfunc blocking;  ///< For `def`; null: it has to be an `async def`.
    vectorcallfunc awaited;   ///< For `async def`; null: there is none.
    void (*check)(const NativeFunction&);
    bool declared{false};
    /// Keywords that it took once, and what their error says.
    std::map<std::string, std::string, std::less<>> refused{};
};

void add_native(Native native);
/// Makes a call with one of these keywords a config error that says why.
void refuse_keywords(const char* function, std::string_view names, std::string_view why);
/// "key cost op_id": split at spaces.
std::vector<std::string> split_names(std::string_view names);
/// "(key, cost)".
std::string listed(const std::vector<std::string>& names);
/// An attribute of an object of Python that is a str.
std::string text_attribute(py::handle object, const char* name);
[[noreturn]] void raise_import(const std::string& message);

/// A declared function whose body is C++: what `native` returns.
class NativeFunction {
  public:
    static const NativeFunction& of(PyObject* callable) {
        return *reinterpret_cast<const NativeFunction*>(callable);
    }

    /// Puts the arguments of a vector call at their parameter's index, or raises the TypeError that
    /// a Python function would. `values` are those after self.
    void bind(PyObject** slots, PyObject* const* values, Py_ssize_t positional,
              PyObject* keyword_names) const {
        if (positional > positional_ || keyword_names != nullptr || positional < required_) {
            return bind_slowly(slots, values, positional, keyword_names);
        }
        for (Py_ssize_t i = 0; i < positional; ++i) slots[i] = values[i];
    }
    Argument argument(PyObject* const* slots, std::size_t index) const {
        const Parameter& parameter = parameters_[index];
        if (slots[index] != nullptr) return {slots[index], parameter.text, true};
        return {parameter.default_value, parameter.text, false};
    }
    bool has_default(std::size_t index) const {
        return parameters_[index].default_value != nullptr;
    }
    const std::string& name() const { return native_->name; }

    /// The C++ part of a method's `self`. No other function checks its class, and that it is not null.
    template <class Self>
    Self& self(PyObject* const* values, Py_ssize_t given) const {
        if (given < 1 || !BoundObject::check(values[0])) [[unlikely]] {
            refuse_self(values, given);
        }
        BoundBase* const bound = BoundObject::of(values[0])->bound.get();
        if (bound == nullptr) [[unlikely]] {
            raise_unfinished(values[0]);
        }
        if constexpr (requires { Self::accepts(*bound); }) {
            if (!Self::accepts(*bound)) [[unlikely]] {
                refuse_self(values, given);
            }
        } else if constexpr (!std::is_same_v<Self, BoundBase>) {
            if (bound->tag() != &kTag<Self>) [[unlikely]] {
                refuse_self(values, given);
            }
        }
        return static_cast<Self&>(*bound);
    }
    [[noreturn]] void refuse_self(PyObject* const* values, Py_ssize_t given) const;

  private:
    friend struct NativeType;
    struct Parameter {
        PyObject* name;  // Interned: compared by address first.
        const char* text;
        PyObject* default_value;  // Null: required.
    };

    void bind_slowly(PyObject** slots, PyObject* const* values, Py_ssize_t positional,
                     PyObject* keyword_names) const;
    std::string shown_name() const;

    [[maybe_unused]] PyObject ob_base_;  // CPython's, by its place.
    vectorcallfunc call_;
    PyObject* declaration_;
    const Native* native_;
    Parameter* parameters_;
    Py_ssize_t size_;
    Py_ssize_t positional_;      // The first so many may be given by position.
    Py_ssize_t required_;        // As many by position fill all that is required; more than size_
                                 // where a keyword-only parameter is.
    PyObject* weak_references_;  // Of signal libraries: to a bound method's object and function.
};

/// Makes _core.Handle, `native`, `result` and what else hotcount/_native.py takes from here.
void bind_native(const py::object& module);

// One function per concept; module.cpp calls them.
void bind_lifetime();
void bind_batch(const py::object& module);
void bind_stores();
void bind_counter();
void bind_period_counter();
void bind_slotted_counter();
void bind_live_sets();
void bind_rebuild();
void bind_limiter();
void bind_concurrency_limit();
void bind_sync_worker();
void bind_votes();
void bind_write_behind_counter();

}  // namespace hotcount::python
