// A limiter's key: str, bytes or a tuple of them.
#pragma once

#include <hotcount/detail/base/codec.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "native/table.hpp"

namespace hotcount::python {

/// A key, or a tuple of parts that are encoded as one; encoded so that the two never meet.
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
