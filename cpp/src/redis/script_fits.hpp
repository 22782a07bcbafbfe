// What scripts answer: Script::Fits in parts. An error fits wherever one value of several stands.
#pragma once

#include <cstddef>
#include <hotcount/detail/redis/reply.hpp>
#include <hotcount/detail/redis/request.hpp>

namespace hotcount::redis {

inline bool is_error(const Reply& reply) { return std::holds_alternative<ReplyError>(reply.value); }

inline bool is_integer(const Reply& reply, std::size_t) {
    return std::holds_alternative<std::int64_t>(reply.value);
}

/// An integer, or the text that one beyond 2^53 comes as.
inline bool is_number(const Reply& reply, std::size_t) {
    return std::holds_alternative<std::int64_t>(reply.value) ||
           std::holds_alternative<std::string>(reply.value);
}

inline bool is_array(const Reply& reply, std::size_t) {
    return std::holds_alternative<ReplyArray>(reply.value);
}

/// One or more, each as it should be.
template <Script::Fits Each>
bool is_some(const Reply& reply, std::size_t) {
    const auto* const all = std::get_if<ReplyArray>(&reply.value);
    if (all == nullptr || all->empty()) return false;
    for (const Reply& one : *all) {
        if (!is_error(one) && !Each(one, 1)) return false;
    }
    return true;
}

/// An array of so many, each as it should be.
template <std::size_t Size, Script::Fits Each>
bool is_tuple(const Reply& reply, std::size_t) {
    const auto* const all = std::get_if<ReplyArray>(&reply.value);
    return all != nullptr && all->size() == Size && is_some<Each>(reply, 1);
}

template <Script::Fits Each>
bool is_nil_or(const Reply& reply, std::size_t keys) {
    return std::holds_alternative<std::monostate>(reply.value) || Each(reply, keys);
}

/// An array with one for each key.
template <Script::Fits Each>
bool is_one_per_key(const Reply& reply, std::size_t keys) {
    const auto* const all = std::get_if<ReplyArray>(&reply.value);
    return all != nullptr && all->size() == keys && is_some<Each>(reply, 1);
}

}  // namespace hotcount::redis
