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

// The positions of the keys of commands, unless the only key is the second word.
struct Places {
    std::string_view names;  // Or the beginning of a name, with its '|'.
    std::size_t first;       // 0: no keys.
    std::size_t last{0};     // 0: the first alone; kAll: to the end.
    std::size_t step{1};
    std::size_t count_at{0};      // Where the number of keys is; they follow it.
    std::size_t streams_from{0};  // First place of STREAMS: half of the words behind it are keys.
};
constexpr std::size_t kAll = static_cast<std::size_t>(-1);

// A name is looked up in the order of the rows: OBJECT|HELP stands before OBJECT|.
constexpr auto kPlaces = std::to_array<Places>({
    {"ACL| BGREWRITEAOF BGSAVE CLIENT| CLUSTER| COMMAND COMMANDLOG| COMMAND| CONFIG| DBSIZE "
     "ECHO FLUSHALL FLUSHDB FUNCTION| INFO KEYS LASTSAVE LATENCY| LOLWUT MEMORY|DOCTOR "
     "MEMORY|HELP MEMORY|MALLOC-STATS MEMORY|PURGE MEMORY|STATS MODULE| OBJECT|HELP PING "
     "PUBLISH PUBSUB| RANDOMKEY REPLICAOF ROLE SAVE SCAN SCRIPT| SLAVEOF SLOWLOG| SWAPDB TIME "
     "XGROUP|HELP XINFO|HELP",
     0},
    {"XREAD", 0, 0, 1, 0, 1},
    {"XREADGROUP", 0, 0, 1, 0, 4},
    {"LMPOP SINTERCARD ZDIFF ZINTER ZINTERCARD ZMPOP ZUNION", 0, 0, 1, 1},
    {"EVAL EVALSHA EVALSHA_RO EVAL_RO FCALL FCALL_RO", 0, 0, 1, 2},
    {"MSETEX", 0, 0, 2, 1},
    {"ZDIFFSTORE ZINTERSTORE ZUNIONSTORE", 1, 0, 1, 2},
    {"COPY GEOSEARCHSTORE LCS LMOVE RENAME RENAMENX RPOPLPUSH SMOVE ZRANGESTORE", 1, 2},
    {"DEL EXISTS MGET PFCOUNT PFMERGE SDIFF SDIFFSTORE SINTER SINTERSTORE SUNION SUNIONSTORE "
     "TOUCH UNLINK",
     1, kAll},
    {"MSET MSETNX", 1, kAll, 2},
    {"MEMORY|USAGE OBJECT| XGROUP| XINFO|", 2},
    {"BITOP", 2, kAll},
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
        std::string_view names = places.names;
        while (!names.empty()) {
            const std::string_view one = names.substr(0, names.find(' '));
            if (one.ends_with('|') ? name.starts_with(one) : name == one) return places;
            names.remove_prefix(std::min(one.size() + 1, names.size()));
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
