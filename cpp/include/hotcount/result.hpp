// Result<T>: a value or an Error; BatchResult<T>: values, and the errors of elements that failed.
//
// g++ 12 has no std::expected; Result is the part of it that the library uses. The Error is on the heap,
// so that a Result costs its value and a pointer: nearly all calls succeed, and a Result is moved
// several times on its way up. To read value() of a failed result, or error() of a good one, is a
// programming error and asserts.
#pragma once

#include <cassert>
#include <cstddef>
#include <hotcount/error.hpp>
#include <map>
#include <utility>
#include <variant>
#include <vector>

namespace hotcount {

namespace detail {

/// An Error, or none, in the room of a pointer. A copy has an Error of its own.
class MaybeError {
  public:
    MaybeError() = default;
    // Out of line: what fails is rare, and its code is not in the way of what succeeds.
    explicit MaybeError(Error&& error);
    MaybeError(const MaybeError& other) : error_(other ? copy(*other) : nullptr) {}
    MaybeError(MaybeError&& other) noexcept : error_(std::exchange(other.error_, nullptr)) {}
    MaybeError& operator=(MaybeError other) noexcept {
        std::swap(error_, other.error_);
        return *this;
    }
    ~MaybeError() {
        if (error_ != nullptr) [[unlikely]]
            drop(error_);
    }

    explicit operator bool() const { return error_ != nullptr; }
    Error& operator*() const { return *error_; }

  private:
    static Error* copy(const Error& error);
    static void drop(Error* error) noexcept;

    Error* error_{nullptr};
};

}  // namespace detail

template <class T>
class [[nodiscard]] Result {
  public:
    using value_type = T;

    // Implicit on purpose: `return value;` and `return error;` read as they should.
    Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
    Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

    bool ok() const { return state_.index() == 0; }
    explicit operator bool() const { return ok(); }

    T& value() & { return *checked(); }
    const T& value() const& { return *const_cast<Result*>(this)->checked(); }
    T&& value() && { return std::move(*checked()); }
    T& operator*() & { return value(); }
    const T& operator*() const& { return value(); }
    T&& operator*() && { return std::move(*this).value(); }
    T* operator->() { return checked(); }
    const T* operator->() const { return const_cast<Result*>(this)->checked(); }

    const Error& error() const& {
        assert(!ok());
        return **std::get_if<1>(&state_);
    }
    Error&& error() && {
        assert(!ok());
        return std::move(**std::get_if<1>(&state_));
    }

  private:
    T* checked() {
        assert(ok());
        return std::get_if<0>(&state_);
    }
    std::variant<T, detail::MaybeError> state_;
};

template <>
class [[nodiscard]] Result<void> {
  public:
    using value_type = void;

    Result() = default;
    Result(Error error) : error_(std::move(error)) {}

    bool ok() const { return !error_; }
    explicit operator bool() const { return ok(); }

    const Error& error() const& {
        assert(!ok());
        return *error_;
    }
    Error&& error() && {
        assert(!ok());
        return std::move(*error_);
    }

  private:
    detail::MaybeError error_;
};

/// What a batch call returns.
template <class T>
struct BatchResult {
    std::vector<T> values;                ///< By index; T{} for an element that failed.
    std::map<std::size_t, Error> errors;  ///< By index; empty if all succeeded.
};

}  // namespace hotcount

#define HOTCOUNT_CONCAT_(a, b) a##b
#define HOTCOUNT_CONCAT(a, b) HOTCOUNT_CONCAT_(a, b)

/// Returns the error of a failed Result from the function; goes on otherwise.
#define HOTCOUNT_TRY(expression)                                    \
    do {                                                            \
        if (auto hotcount_try_ = (expression); !hotcount_try_.ok()) \
            return std::move(hotcount_try_).error();                \
    } while (false)

/// Declares `variable` from a Result's value, or returns its error from the function.
#define HOTCOUNT_TRY_ASSIGN(variable, expression)                              \
    auto HOTCOUNT_CONCAT(hotcount_result_, __LINE__) = (expression);           \
    if (!HOTCOUNT_CONCAT(hotcount_result_, __LINE__).ok())                     \
        return std::move(HOTCOUNT_CONCAT(hotcount_result_, __LINE__)).error(); \
    variable = std::move(HOTCOUNT_CONCAT(hotcount_result_, __LINE__)).value()
