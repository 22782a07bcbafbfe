#include <algorithm>
#include <array>
#include <charconv>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/base/random.hpp>
#include <map>
#include <set>
#include <utility>

#include "count_cache.hpp"
#include "count_shards.hpp"
#include "hotcount_embedded/votes/lua.hpp"
#include "redis/scripts.hpp"

namespace hotcount {
namespace {

using redis::ClusterNodes;
using redis::Reply;
using redis::ReplyArray;
using Part = CountShards::Part;

class RedisCountCache final : public CountCache {
  public:
    RedisCountCache(std::shared_ptr<redis::Client> client, Duration retention)
        : shards_(std::move(client)), retention_(redis::milliseconds(retention)) {}

    Incremented increment(std::string_view space, std::span<const Increment> increments,
                          std::string_view token, Timeout timeout) override {
        static const redis::Script kScript{lua::votes::kIncrementLua, redis::Script::Kind::single,
                                           redis::is_one_per_key<redis::is_number>};
        Incremented result;
        result.states.assign(increments.size(), Counted::counted);
        const bool asked = std::any_of(increments.begin(), increments.end(),
                                       [](const Increment& each) { return each.asks; });
        if (asked) result.counts.resize(increments.size());
        const auto write = [&](Part& part) {
            part.arguments = {retention_, std::string{token}};
            for (const std::size_t i : part.members) {
                const Increment& each = increments[i];
                part.add_key(each.item);
                part.add(each.difference);
                part.add(each.votes);
                part.add(each.epoch);
            }
            part.keys.push_back(shards_.name_key(space, part.shard));
            if (asked) part.arguments.emplace_back("counts");
        };
        const auto read = [&](Part& part) {
            const auto& states = part.replies;
            const std::string* const name =
                states ? std::get_if<std::string>(&states->back().value) : nullptr;
            for (std::size_t k = 0; k < part.members.size(); ++k) {
                const std::size_t i = part.members[k];
                auto state = shards_.number_at(part, k);
                if (state && std::holds_alternative<std::string>((*states)[k].value)) {
                    result.counts[i] = std::exchange(*state, 0);
                }
                result.states[i] = state ? Result{static_cast<Counted>(*state)}
                                         : Result<Counted>{std::move(state).error()};
                if (!result.states[i] || *result.states[i] != Counted::born) continue;
                result.identities.resize(increments.size());
                if (name != nullptr) result.identities[i] = *name;
            }
        };
        shards_.run(kScript, space, increments, deadline_of(timeout), write, read,
                    CountShards::Waits::briefly);
        return result;
    }

    std::vector<Result<bool>> land(std::string_view space, std::span<const Fill> fills,
                                   Timeout timeout) override {
        static const redis::Script kScript{lua::votes::kLandLua, redis::Script::Kind::single,
                                           redis::is_one_per_key<redis::is_number>};
        std::vector<Result<bool>> results(fills.size(), false);
        const auto write = [&](Part& part) {
            for (const std::size_t i : part.members) {
                const Fill& fill = fills[i];
                part.add_key(fill.item);
                part.arguments.push_back(fill.token);
                part.add(fill.gen);
                part.add(fill.epoch);
                part.add(fill.base);
            }
        };
        const auto read = [&](Part& part) {
            for (std::size_t k = 0; k < part.members.size(); ++k) {
                auto state = shards_.number_at(part, k);
                results[part.members[k]] =
                    state ? Result{*state == 1} : Result<bool>{std::move(state).error()};
            }
        };
        shards_.run(kScript, space, fills, deadline_of(timeout), write, read);
        return results;
    }

    Entries read(std::string_view space, std::span<const std::string> items,
                 Timeout timeout) override {
        static const redis::Script kScript{
            lua::votes::kReadLua, redis::Script::Kind::single,
            redis::is_one_per_key<redis::is_nil_or<redis::is_array>>};
        Entries entries(items.size(), std::optional<CacheEntry>{});
        const auto write = [&](Part& part) {
            for (const std::size_t i : part.members) {
                part.add_key(items[i]);
            }
        };
        const auto read = [&](Part& part) {
            for (std::size_t k = 0; k < part.members.size(); ++k) {
                entries[part.members[k]] =
                    part.replies ? to_entry((*part.replies)[k], part.keys[k])
                                 : Result<std::optional<CacheEntry>>{part.replies.error()};
            }
        };
        shards_.run(kScript, space, items, deadline_of(timeout), write, read);
        return entries;
    }

    Result<Page> scan(std::string_view space, const std::string& cursor, std::size_t page,
                      Timeout timeout) override {
        const Deadline deadline = deadline_of(timeout);
        ClusterNodes* const nodes = shards_.nodes();
        Place place{ClusterNodes::kNobody, cursor};
        std::vector<std::uint16_t> primaries;
        if (nodes != nullptr) {
            HOTCOUNT_TRY_ASSIGN(primaries, nodes->primaries(deadline.remaining()));
            std::sort(primaries.begin(), primaries.end());
            HOTCOUNT_TRY_ASSIGN(place, to_place(cursor, primaries));
        }
        const std::string prefix = shards_.common_prefix(space);
        std::string pattern;
        for (const char byte : prefix) {
            if (std::string_view{"*?[]\\^-"}.find(byte) != std::string_view::npos) pattern += '\\';
            pattern += byte;
        }
        pattern += '*';
        const std::string size = std::to_string(page);
        const std::string_view command[] = {"SCAN",  place.cursor, "MATCH", pattern,
                                            "COUNT", size,         "TYPE",  "hash"};
        // A node that is being replaced would not answer until the deadline.
        const Duration brief = std::min(Duration{deadline.remaining()}, kNodePatience);
        auto reply = nodes != nullptr ? nodes->execute_at(place.node, command, brief)
                                      : client().execute(command, deadline.remaining());
        Page found{{}, "0"};
        if (reply) {
            HOTCOUNT_TRY_ASSIGN(redis::ScanPage keys,
                                redis::to_page(client().options().address(), *std::move(reply)));
            found.next = std::move(keys.next);
            for (const std::string& key : keys.items) {
                if (!key.starts_with(prefix)) return shards_.strange_reply();
                if (auto item = shards_.item_of(space, key))
                    found.items.push_back(*std::move(item));
            }
        } else if (nodes != nullptr) {
            found.failed = reply.error();
        } else {
            return std::move(reply).error();
        }
        if (nodes == nullptr) return found;
        if (found.next == "0") {
            const auto next = std::upper_bound(primaries.begin(), primaries.end(), place.node);
            if (next == primaries.end()) return found;
            place.node = *next;
        }
        found.next = std::to_string(place.node) + ":" + found.next;
        return found;
    }

    Result<void> mark(std::string_view space, std::span<const Mark> marks,
                      Timeout timeout) override {
        static const redis::Script kScript{lua::votes::kMarkLua, redis::Script::Kind::single,
                                           redis::is_one_per_key<redis::is_number>};
        HOTCOUNT_TRY(compared(kScript, space, marks, timeout));
        return {};
    }

    Result<std::int64_t> remove(std::string_view space, std::span<const Mark> marks,
                                Timeout timeout) override {
        static const redis::Script kScript{lua::votes::kRemoveLua, redis::Script::Kind::single,
                                           redis::is_one_per_key<redis::is_number>};
        return compared(kScript, space, marks, timeout);
    }

    Result<void> drop(std::string_view space, std::span<const Outdated> items,
                      Timeout timeout) override {
        static const redis::Script kScript{lua::votes::kDropLua, redis::Script::Kind::single,
                                           redis::is_one_per_key<redis::is_number>};
        Result<void> dropped;
        const auto write = [&](Part& part) {
            for (const std::size_t i : part.members) {
                part.add_key(items[i].item);
                part.add(items[i].epoch);
            }
        };
        const auto read = [&](const Part& part) {
            if (!part.replies) dropped = part.replies.error();
        };
        shards_.run(kScript, space, items, deadline_of(timeout), write, read);
        return dropped;
    }

    std::vector<Result<std::string>> identities(std::string_view space,
                                                std::span<const std::string> items,
                                                Timeout timeout) override {
        std::set<std::size_t> shards;
        for (const std::string& item : items) shards.insert(shard_of(item));
        const Deadline deadline = deadline_of(timeout);
        auto names = read_names(space, shards, deadline);
        const bool lacks_one = std::any_of(names.begin(), names.end(), [](const auto& each) {
            return each.second.ok() && each.second->empty();
        });
        std::optional<Error> refused;
        if (lacks_one) {
            refused = name_all(space, deadline);
            names = read_names(space, shards, deadline);
        }
        std::vector<Result<std::string>> found;
        found.reserve(items.size());
        for (const std::string& item : items) {
            const auto& name = names.at(shard_of(item));
            const bool none = name.ok() && name->empty();
            found.push_back(none ? Result<std::string>{refused.value_or(shards_.strange_reply())}
                                 : name);
        }
        return found;
    }

    std::size_t shard_of(std::string_view item) const override { return shards_.shard_of(item); }
    bool is_spread() const override { return shards_.nodes() != nullptr; }
    std::vector<std::uint64_t> histories(std::string_view space, Timeout timeout) override {
        // Of one server that is away, later calls of the round tell.
        const Duration left = timeout.value_or(default_timeout());
        return shards_.histories(
            space, deadline_of(is_spread() ? left : std::min(left, default_timeout())));
    }

    Duration default_timeout() const override { return client().options().timeout; }

  private:
    redis::Client& client() const { return shards_.client(); }
    Deadline deadline_of(Timeout timeout) const {
        return Deadline::after(timeout.value_or(default_timeout()));
    }

    // The node of a cluster that a scan is at, and the cursor there: "node:cursor".
    struct Place {
        std::uint16_t node;
        std::string cursor;
    };
    Result<Place> to_place(const std::string& cursor,
                           std::span<const std::uint16_t> primaries) const {
        const std::size_t colon = cursor.find(':');
        if (colon != std::string::npos) {
            Place place{ClusterNodes::kNobody, cursor.substr(colon + 1)};
            std::from_chars(cursor.data(), cursor.data() + colon, place.node);
            return place;
        }
        if (!primaries.empty()) return Place{primaries.front(), cursor};
        return make_error(ErrorCode::unavailable,
                          client().options().address() + " has no primary that owns slots");
    }

    // Empty text for a shard without a name.
    std::map<std::size_t, Result<std::string>> read_names(std::string_view space,
                                                          const std::set<std::size_t>& shards,
                                                          Deadline deadline) const {
        std::vector<std::string> keys;
        keys.reserve(shards.size());
        std::vector<std::vector<std::string_view>> commands;
        for (const std::size_t shard : shards) {
            keys.push_back(shards_.name_key(space, shard));
            commands.push_back({"GET", keys.back()});
        }
        const auto replies = client().execute_many(commands, deadline.remaining());
        std::map<std::size_t, Result<std::string>> names;
        for (const std::size_t shard : shards) {
            const std::size_t at = names.size();
            const auto& reply = replies[at];
            const auto* const name = reply ? std::get_if<std::string>(&reply->value) : nullptr;
            names.emplace(shard, !reply
                                     ? Result<std::string>{redis::of_key(keys[at], reply.error())}
                                     : std::string{name != nullptr ? *name : ""});
        }
        return names;
    }

    // Gives one name to all shards that have none: a fill takes a step in SQL for each name. Of several
    // callers' SET NX only the first one writes. A name is drawn once, because a shard that lost its
    // hashes must not get its former name.
    std::optional<Error> name_all(std::string_view space, Deadline deadline) const {
        const std::string name = random_name();
        std::vector<std::string> keys;
        keys.reserve(shards_.size());
        std::vector<std::vector<std::string_view>> commands;
        for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
            keys.push_back(shards_.name_key(space, shard));
            commands.push_back({"SET", keys.back(), name, "NX"});
        }
        // A node that is away is left out: a later call names its shards.
        const Duration brief = std::min(Duration{deadline.remaining()},
                                        is_spread() ? kNodePatience : default_timeout());
        std::optional<Error> refused;
        const auto replies = client().execute_many(commands, brief);
        for (std::size_t shard = 0; shard < replies.size(); ++shard) {
            if (replies[shard] || refused) continue;
            refused = redis::of_key(keys[shard], replies[shard].error());
        }
        return refused;
    }

    Result<std::optional<CacheEntry>> to_entry(const Reply& reply, const std::string& key) const {
        if (std::holds_alternative<std::monostate>(reply.value)) return std::optional<CacheEntry>{};
        if (const auto* error = std::get_if<redis::ReplyError>(&reply.value)) {
            return redis::of_key(
                key, redis::error_from_reply(error->message, client().options().address()));
        }
        const auto* const fields = std::get_if<ReplyArray>(&reply.value);
        if (fields == nullptr || fields->size() != 7) return shards_.strange_reply();
        std::array<std::int64_t, 6> numbers{};
        for (std::size_t i = 0; i < numbers.size(); ++i) {
            const auto number = redis::to_integer((*fields)[i]);
            if (!number) return not_ours(key);
            numbers[i] = *number;
        }
        const auto* const token = std::get_if<std::string>(&(*fields)[6].value);
        if (token == nullptr) return not_ours(key);
        const auto [value, gen, version, saved_version, epoch, left] = numbers;
        return std::optional{CacheEntry{value, gen, version, saved_version, epoch, *token,
                                        std::chrono::milliseconds{left}}};
    }

    static Error not_ours(const std::string& key) {
        return make_error(ErrorCode::wrong_type,
                          "the key " + printable(key) + " holds a hash that is no cached count")
            .about(&ErrorFacts::key, key);
    }

    // How many of the marks the script acted on.
    Result<std::int64_t> compared(const redis::Script& script, std::string_view space,
                                  std::span<const Mark> marks, Timeout timeout) {
        std::int64_t done = 0;
        std::optional<Error> failed;
        const auto write = [&](Part& part) {
            for (const std::size_t i : part.members) {
                part.add_key(marks[i].item);
                part.add(marks[i].gen);
                part.add(marks[i].version);
            }
        };
        const auto read = [&](const Part& part) {
            for (std::size_t k = 0; k < part.members.size(); ++k) {
                const auto state = shards_.number_at(part, k);
                if (state) {
                    done += *state;
                } else if (!failed) {
                    failed = state.error();
                }
            }
        };
        shards_.run(script, space, marks, deadline_of(timeout), write, read);
        if (failed) return *std::move(failed);
        return done;
    }

    CountShards shards_;
    const std::string retention_;
};

}  // namespace

std::string random_name() {
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string name;
    for (int half = 0; half < 2; ++half) {
        for (std::uint64_t bits = thread_random().next(), i = 0; i < 16; ++i, bits >>= 4) {
            name += kDigits[bits & 15];
        }
    }
    return name;
}

std::unique_ptr<CountCache> make_redis_count_cache(std::shared_ptr<redis::Client> client,
                                                   Duration retention) {
    return std::make_unique<RedisCountCache>(std::move(client), retention);
}

}  // namespace hotcount
