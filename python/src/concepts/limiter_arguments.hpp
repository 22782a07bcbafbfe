// The arguments of limiters: keys, hotcount.Rate, rate=, and options that take one of a few words.
#pragma once

#include <cmath>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/limiter.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "native/options.hpp"
#include "native/result.hpp"
#include "native/table.hpp"

namespace hotcount::python {

inline ResultClass rate_class{"Rate", std::array{"limit", "period", "burst"}};

template <>
struct To<Rate> {
    static py::object make(const Rate& rate) {
        return rate_class.make(rate.limit, Duration{rate.period}, rate.burst);
    }
};
template <>
struct From<Rate> {
    static Rate read(const Argument& argument) {
        if (PyUnicode_Check(argument.value)) {
            return unwrap(Rate::parse(to_text(argument.value, argument.name)));
        }
        if (!rate_class.is(argument.value)) {
            raise_wrong_type(argument.name, "str or Rate", argument.value);
        }
        const auto number = [&](std::size_t index) {
            return rate_class.get<std::int64_t>(argument.value, index);
        };
        const double seconds = rate_class.get<double>(argument.value, 1);
        const double most = to_seconds(Rate::kMaxPeriod);
        // Checked as a double: what does not fit has no integer to be checked.
        if (!(seconds > 0 && seconds <= most)) {
            raise_config("the rate's period is " + std::to_string(seconds) +
                         " seconds; it takes 0.001 to " + std::to_string(most));
        }
        return {number(0), std::chrono::microseconds{std::llround(seconds * 1e6)}, number(2)};
    }
};

template <>
struct From<Algorithm> {
    static Algorithm read(const Argument& argument) {
        refuse_ways(argument.value, argument.name,
                    {"per_second_key", "racy_incr", "incr_expire", "list", "racy_list"});
        return unwrap(parse_algorithm(to_word(argument.value, argument.name)));
    }
};
template <>
struct To<Algorithm> {
    static py::object make(Algorithm algorithm) {
        return To<std::string_view>::make(to_string(algorithm));
    }
};

template <>
inline constexpr std::array<std::string_view, 2> kWords<Align>{"clock", "first"};
template <>
inline constexpr std::array<std::string_view, 2> kWords<HeaderStyle>{"ietf", "legacy"};
template <>
inline constexpr std::array<std::string_view, 4> kWords<OutagePolicy>{"raise", "open", "closed",
                                                                      "local"};

/// rate=: a text, a Rate, or a tuple of them.
struct RateOption {
    static void read(LimiterOptions& options, const Argument& argument) {
        if (PyTuple_Check(argument.value) == 0) {
            options.rates = PyUnicode_Check(argument.value)
                                ? unwrap(Rate::parse_many(to_text(argument.value, argument.name)))
                                : std::vector{From<Rate>::read(argument)};
            return;
        }
        options.rates.clear();
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(argument.value); ++i) {
            const std::string name = Where{argument.name, static_cast<std::size_t>(i)}.str();
            options.rates.push_back(
                From<Rate>::read({PyTuple_GET_ITEM(argument.value, i), name.c_str(), true}));
        }
    }
    /// For repr: "10/second; 1000/hour".
    static py::object get(const LimiterOptions& options) {
        std::string all;
        for (const Rate& rate : options.rates) all += (all.empty() ? "" : "; ") + rate.str();
        return py::str(all);
    }
};

/// A limiter's key: str, bytes, or a tuple of parts that are encoded as one; encoded so that the two
/// never meet.
class LimiterKey {
  public:
    /// A TypeError is raised; what is wrong with a value of the right type is error().
    LimiterKey(py::handle value, const Where& where) : wrong_(read(value, where)) {}

    const Result<void>& error() const { return wrong_; }
    operator std::string_view() const { return is_encoded_ ? encoded_ : plain_; }

  private:
    Result<void> read(py::handle value, const Where& where) {
        if (PyUnicode_Check(value.ptr()) || PyBytes_Check(value.ptr())) {
            HOTCOUNT_TRY_ASSIGN(plain_, read_bytes(value, where));
            if (!plain_.starts_with('%')) return {};
            encoded_ = encode_plain(plain_);
        } else {
            if (!PyTuple_Check(value.ptr())) {
                raise_wrong_key(where, "str, bytes or a tuple of them", value);
            }
            std::vector<std::string_view> parts;
            for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value.ptr()); ++i) {
                HOTCOUNT_TRY_ASSIGN(const std::string_view part,
                                    read_bytes(PyTuple_GET_ITEM(value.ptr(), i), where));
                parts.push_back(part);
            }
            HOTCOUNT_TRY_ASSIGN(encoded_, encode_parts(parts));
        }
        is_encoded_ = true;
        return {};
    }

    std::string_view plain_{};  // Into the Python object.
    std::string encoded_{};
    bool is_encoded_{false};
    Result<void> wrong_;
};

template <>
struct From<LimiterKey> {
    static LimiterKey read(const Argument& argument) {
        LimiterKey key(argument.value, argument.name);
        unwrap(key.error());
        return key;
    }
};

}  // namespace hotcount::python
