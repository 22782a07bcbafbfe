// Result<T>: a value or an Error; BatchResult<T>: values, and the errors of elements that failed.
//
// g++ 12 has no std::expected; Result is the part of it that the library uses. The Error is on the heap,
// so that a Result costs its value and a pointer: nearly all calls succeed, and a Result is moved
// several times on its way up. Copies share the Error, so that a batch of a million elements whose
// deadline has passed holds one. To read value() of a failed result, or error() of a good one, is a
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

/// An optional Error in the size of a pointer. Copies share the Error.
class MaybeError {
  public:
    MaybeError() = default;
    // Out of line: failures are rare, and their code is kept apart from that of successful calls.
    explicit MaybeError(Error&& error);
    MaybeError(const MaybeError& other) : shared_(other.shared_) {
        if (shared_ != nullptr) [[unlikely]]
            keep(*shared_);
    }
    MaybeError(MaybeError&& other) noexcept : shared_(std::exchange(other.shared_, nullptr)) {}
    MaybeError& operator=(MaybeError other) noexcept {
        std::swap(shared_, other.shared_);
        return *this;
    }
    ~MaybeError() {
        if (shared_ != nullptr) [[unlikely]]
            drop(shared_);
    }

    explicit operator bool() const { return shared_ != nullptr; }
    const Error& operator*() const;
    /// The Error itself if no copy shares it, else a copy of it.
    Error take() &&;

  private:
    struct Shared;
    static void keep(Shared& shared) noexcept;
    static void drop(Shared* shared) noexcept;

    Shared* shared_{nullptr};
};

}  // namespace detail

template <class T>
class [[nodiscard]] Result;

/// The failed Result as one of another value; the two share the Error.
template <class T, class U>
Result<T> failed_as(const Result<U>& failed);

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
    Error error() && {
        assert(!ok());
        return std::move(*std::get_if<1>(&state_)).take();
    }

  private:
    template <class U, class V>
    friend Result<U> failed_as(const Result<V>& failed);
    explicit Result(const detail::MaybeError& error) : state_(std::in_place_index<1>, error) {}
    const detail::MaybeError& shared() const {
        assert(!ok());
        return *std::get_if<1>(&state_);
    }
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
    Error error() && {
        assert(!ok());
        return std::move(error_).take();
    }

  private:
    template <class U, class V>
    friend Result<U> failed_as(const Result<V>& failed);
    const detail::MaybeError& shared() const { return error_; }

    detail::MaybeError error_;
};

template <class T, class U>
Result<T> failed_as(const Result<U>& failed) {
    return Result<T>{failed.shared()};
}

/// The result of a batch call.
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
