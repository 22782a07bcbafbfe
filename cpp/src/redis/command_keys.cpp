// Where the keys of a command are, for a cluster, in which the keys say which node takes it.
#include <algorithm>
#include <array>
#include <charconv>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/redis/request.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cluster_client.hpp"
#include "commands.hpp"

namespace hotcount::redis {
namespace {

// The positions of the keys of a command, unless its only key is the second word.
struct Places {
    std::string_view name;  // Or the beginning of it, with its '|'.
    std::size_t first;      // 0: no keys.
    std::size_t last{0};    // 0: the first alone; kAll: to the end.
    std::size_t step{1};
    std::size_t count_at{0};      // Where the number of keys is; they follow it.
    std::size_t streams_from{0};  // First place of STREAMS: half of the words behind it are keys.
};
constexpr std::size_t kAll = static_cast<std::size_t>(-1);

constexpr auto kPlaces = std::to_array<Places>({
    {"ACL|", 0},
    {"BGREWRITEAOF", 0},
    {"BGSAVE", 0},
    {"BITOP", 2, kAll},
    {"CLIENT|", 0},
    {"CLUSTER|", 0},
    {"COMMAND", 0},
    {"COMMANDLOG|", 0},
    {"COMMAND|", 0},
    {"CONFIG|", 0},
    {"COPY", 1, 2},
    {"DBSIZE", 0},
    {"DEL", 1, kAll},
    {"ECHO", 0},
    {"EVAL", 0, 0, 1, 2},
    {"EVALSHA", 0, 0, 1, 2},
    {"EVALSHA_RO", 0, 0, 1, 2},
    {"EVAL_RO", 0, 0, 1, 2},
    {"EXISTS", 1, kAll},
    {"FCALL", 0, 0, 1, 2},
    {"FCALL_RO", 0, 0, 1, 2},
    {"FLUSHALL", 0},
    {"FLUSHDB", 0},
    {"FUNCTION|", 0},
    {"GEOSEARCHSTORE", 1, 2},
    {"INFO", 0},
    {"KEYS", 0},
    {"LASTSAVE", 0},
    {"LATENCY|", 0},
    {"LCS", 1, 2},
    {"LMOVE", 1, 2},
    {"LMPOP", 0, 0, 1, 1},
    {"LOLWUT", 0},
    {"MEMORY|DOCTOR", 0},
    {"MEMORY|HELP", 0},
    {"MEMORY|MALLOC-STATS", 0},
    {"MEMORY|PURGE", 0},
    {"MEMORY|STATS", 0},
    {"MEMORY|USAGE", 2},
    {"MGET", 1, kAll},
    {"MODULE|", 0},
    {"MSET", 1, kAll, 2},
    {"MSETEX", 0, 0, 2, 1},
    {"MSETNX", 1, kAll, 2},
    {"OBJECT|HELP", 0},
    {"OBJECT|", 2},
    {"PFCOUNT", 1, kAll},
    {"PFMERGE", 1, kAll},
    {"PING", 0},
    {"PUBLISH", 0},
    {"PUBSUB|", 0},
    {"RANDOMKEY", 0},
    {"RENAME", 1, 2},
    {"RENAMENX", 1, 2},
    {"REPLICAOF", 0},
    {"ROLE", 0},
    {"RPOPLPUSH", 1, 2},
    {"SAVE", 0},
    {"SCAN", 0},
    {"SCRIPT|", 0},
    {"SDIFF", 1, kAll},
    {"SDIFFSTORE", 1, kAll},
    {"SINTER", 1, kAll},
    {"SINTERCARD", 0, 0, 1, 1},
    {"SINTERSTORE", 1, kAll},
    {"SLAVEOF", 0},
    {"SLOWLOG|", 0},
    {"SMOVE", 1, 2},
    {"SUNION", 1, kAll},
    {"SUNIONSTORE", 1, kAll},
    {"SWAPDB", 0},
    {"TIME", 0},
    {"TOUCH", 1, kAll},
    {"UNLINK", 1, kAll},
    {"XGROUP|HELP", 0},
    {"XGROUP|", 2},
    {"XINFO|HELP", 0},
    {"XINFO|", 2},
    {"XREAD", 0, 0, 1, 0, 1},
    {"XREADGROUP", 0, 0, 1, 0, 4},
    {"ZDIFF", 0, 0, 1, 1},
    {"ZDIFFSTORE", 1, 0, 1, 2},
    {"ZINTER", 0, 0, 1, 1},
    {"ZINTERCARD", 0, 0, 1, 1},
    {"ZINTERSTORE", 1, 0, 1, 2},
    {"ZMPOP", 0, 0, 1, 1},
    {"ZRANGESTORE", 1, 2},
    {"ZUNION", 0, 0, 1, 1},
    {"ZUNIONSTORE", 1, 0, 1, 2},
});

std::string in_capitals(std::span<const std::string_view> words) {
    std::string name{words.front()};
    if (words.size() > 1 && known_command(words.first(1)).place == Place::alone) {
        name.append("|").append(words[1]);
    }
    std::ranges::transform(name, name.begin(), [](char c) {
        return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
    });
    return name;
}

Places places_of(std::string_view name) {
    for (const Places& places : kPlaces) {
        if (places.name.ends_with('|') ? name.starts_with(places.name) : name == places.name) {
            return places;
        }
    }
    return {name, 1};
}

Error names_no_key(std::string_view name) {
    return make_error(
        ErrorCode::config,
        "command " + printable(name) +
            " names no key that says which node of the cluster takes it: send it to a "
            "node by a store of its own, redis://host:port");
}

// Encoded commands: "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n".
std::vector<std::string_view> words_in(std::string_view command) {
    std::vector<std::string_view> words;
    std::size_t at = command.find('\n') + 1;
    while (at != 0 && at < command.size()) {
        const std::size_t line = command.find('\n', at);
        std::size_t size = 0;
        std::from_chars(command.data() + at + 1, command.data() + line, size);
        words.push_back(command.substr(line + 1, size));
        at = line + 1 + size + 2;
    }
    return words;
}

Error in_several_slots(const std::string& name, std::string_view one, std::string_view other) {
    return make_error(ErrorCode::config,
                      name + ": the keys " + printable(one) + " and " + printable(other) +
                          " are in two slots of the cluster, and one call takes keys of one slot: "
                          "give them the same hash tag, as {user}:a and {user}:b",
                      "CROSSSLOT");
}

template <class Keys>
Result<std::uint16_t> slot_of_all(const std::string& name, const Keys& keys) {
    if (keys.size() == 0) return names_no_key(name);
    const std::uint16_t slot = slot_of(keys[0]);
    for (std::size_t i = 1; i < keys.size(); ++i) {
        if (slot_of(keys[i]) != slot) return in_several_slots(name, keys[0], keys[i]);
    }
    return slot;
}

// The keys of a command in the table of commands (commands.hpp). A config error if the command has
// no key, or if the positions of its keys are unknown: then no node can be chosen for it.
Result<std::vector<std::string_view>> keys_of(std::span<const std::string_view> words) {
    if (words.empty()) return make_error(ErrorCode::config, "execute needs a command");
    const std::string name = in_capitals(words);
    const Places places = places_of(name);
    std::vector<std::string_view> keys;
    if (places.first > 0 && places.first < words.size()) {
        const std::size_t last =
            places.last == 0 ? places.first : std::min(places.last, words.size() - 1);
        for (std::size_t i = places.first; i <= last && i < words.size(); i += places.step) {
            keys.push_back(words[i]);
        }
    }
    if (places.count_at > 0 && places.count_at < words.size()) {
        const std::string_view text = words[places.count_at];
        std::size_t count = 0;
        std::from_chars(text.data(), text.data() + text.size(), count);
        for (std::size_t i = places.count_at + 1; i < words.size() && count-- > 0;
             i += places.step) {
            keys.push_back(words[i]);
        }
    }
    if (places.streams_from > 0 && places.streams_from < words.size()) {
        const auto after =
            std::ranges::find_if(words.subspan(places.streams_from), [](std::string_view word) {
                return in_capitals({&word, 1}) == "STREAMS";
            });
        const auto rest = words.last(static_cast<std::size_t>(words.end() - after));
        for (std::size_t i = 1; i <= rest.size() / 2; ++i) keys.push_back(rest[i]);
    }
    if (keys.empty()) return names_no_key(name);
    return keys;
}

}  // namespace

Result<std::uint16_t> Request::slot() const {
    switch (kind_) {
        case Kind::add:
            return slot_of(key_);
        case Kind::script:
            return slot_of_all(name_, keys_);
        default:
            HOTCOUNT_TRY_ASSIGN(const auto keys, keys_of(words_in(bytes_)));
            return slot_of_all(name_, keys);
    }
}

std::vector<Request> Request::parts() && {
    std::vector<Request> parts;
    parts.reserve(replies_);
    const std::string_view bytes = bytes_;
    for (std::size_t at = 0; at < bytes.size() && parts.size() < replies_;) {
        const std::size_t size = end_of_first(bytes.substr(at));
        const Shape shape = shapes_.empty() ? shape_ : static_cast<Shape>(shapes_[parts.size()]);
        parts.push_back(encoded(name_, std::string{bytes.substr(at, size)}, 1, shape, repeat_));
        at += size;
    }
    return parts;
}

}  // namespace hotcount::redis
