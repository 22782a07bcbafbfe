#include <algorithm>
#include <array>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/base/random.hpp>
#include <utility>

#include "count_cache.hpp"
#include "hotcount_embedded/votes/lua.hpp"
#include "redis/scripts.hpp"

namespace hotcount {
namespace {

using redis::Reply;
using redis::ReplyArray;

// Keys of one call: they take about a millisecond of a server's time.
constexpr std::size_t kMaxScriptKeys = 256;

class RedisCountCache final : public CountCache {
  public:
    RedisCountCache(std::shared_ptr<redis::Client> client, Duration retention)
        : client_(std::move(client)),
          retention_(
              std::to_string(std::chrono::ceil<std::chrono::milliseconds>(retention).count())) {}

    Incremented increment(std::string_view space, std::span<const Increment> increments,
                          std::string_view token, Timeout timeout) override {
        static const redis::Script kScript{lua::votes::kIncrementLua, redis::Script::Kind::single,
                                           redis::is_one_per_key<redis::is_number>};
        const Deadline deadline = deadline_of(timeout);
        Incremented result;
        result.states.reserve(increments.size());
        const bool asked = std::any_of(increments.begin(), increments.end(),
                                       [](const Increment& each) { return each.asks; });
        if (asked) result.counts.resize(increments.size());
        for (std::size_t first = 0; first < increments.size(); first += kMaxScriptKeys) {
            const auto part =
                increments.subspan(first, std::min(kMaxScriptKeys, increments.size() - first));
            Call call({retention_, std::string{token}});
            for (const Increment& each : part) {
                call.key(key_of(space, each.item));
                call.number(each.difference);
                call.number(each.votes);
                call.number(each.epoch);
            }
            call.key(identity_key(client_->options().prefix, space));
            if (asked) call.texts.emplace_back("counts");
            const auto states = run(kScript, call, deadline);
            for (std::size_t i = 0; i < part.size(); ++i) {
                auto state = states ? number_at(*states, i, call) : states.error();
                if (state && std::holds_alternative<std::string>((*states)[i].value)) {
                    result.counts[first + i] = std::exchange(*state, 0);
                }
                result.states.push_back(state ? Result{static_cast<Counted>(*state)}
                                              : Result<Counted>{std::move(state).error()});
            }
            if (!states) continue;
            const auto* const name = std::get_if<std::string>(&states->back().value);
            if (name != nullptr && !name->empty()) result.identity = *name;
        }
        return result;
    }

    std::vector<Result<bool>> land(std::string_view space, std::span<const Fill> fills,
                                   Timeout timeout) override {
        static const redis::Script kScript{lua::votes::kLandLua, redis::Script::Kind::single,
                                           redis::is_one_per_key<redis::is_number>};
        const Deadline deadline = deadline_of(timeout);
        std::vector<Result<bool>> results;
        results.reserve(fills.size());
        for (std::size_t first = 0; first < fills.size(); first += kMaxScriptKeys) {
            const auto part = fills.subspan(first, std::min(kMaxScriptKeys, fills.size() - first));
            Call call({});
            for (const Fill& fill : part) {
                call.key(key_of(space, fill.item));
                call.texts.push_back(fill.token);
                call.number(fill.gen);
                call.number(fill.epoch);
                call.number(fill.base);
            }
            const auto landed = run(kScript, call, deadline);
            for (std::size_t i = 0; i < part.size(); ++i) {
                auto state = landed ? number_at(*landed, i, call) : landed.error();
                results.push_back(state ? Result{*state == 1}
                                        : Result<bool>{std::move(state).error()});
            }
        }
        return results;
    }

    Entries read(std::string_view space, std::span<const std::string> items,
                 Timeout timeout) override {
        static const redis::Script kScript{
            lua::votes::kReadLua, redis::Script::Kind::single,
            redis::is_one_per_key<redis::is_nil_or<redis::is_array>>};
        const Deadline deadline = deadline_of(timeout);
        Entries entries;
        entries.reserve(items.size());
        for (std::size_t first = 0; first < items.size(); first += kMaxScriptKeys) {
            const auto part = items.subspan(first, std::min(kMaxScriptKeys, items.size() - first));
            Call call({});
            for (const std::string& item : part) call.key(key_of(space, item));
            const auto replies = run(kScript, call, deadline);
            for (std::size_t i = 0; i < part.size(); ++i) {
                entries.push_back(replies ? to_entry((*replies)[i], call.keys[i])
                                          : Result<std::optional<CacheEntry>>{replies.error()});
            }
        }
        return entries;
    }

    Result<Page> scan(std::string_view space, const std::string& cursor, std::size_t page,
                      Timeout timeout) override {
        const std::string prefix = key_prefix(client_->options().prefix, space);
        std::string pattern;
        for (const char byte : prefix) {
            if (std::string_view{"*?[]\\^-"}.find(byte) != std::string_view::npos) pattern += '\\';
            pattern += byte;
        }
        pattern += '*';
        const std::string size = std::to_string(page);
        const std::string_view command[] = {"SCAN",  cursor, "MATCH", pattern,
                                            "COUNT", size,   "TYPE",  "hash"};
        HOTCOUNT_TRY_ASSIGN(const Reply reply, client_->execute(command, timeout));
        const auto* const parts = std::get_if<ReplyArray>(&reply.value);
        if (parts == nullptr || parts->size() != 2) return strange_reply();
        const auto* const next = std::get_if<std::string>(&(*parts)[0].value);
        const auto* const keys = std::get_if<ReplyArray>(&(*parts)[1].value);
        if (next == nullptr || keys == nullptr) return strange_reply();
        Page found{{}, *next};
        for (const Reply& each : *keys) {
            const auto* const key = std::get_if<std::string>(&each.value);
            if (key == nullptr || !key->starts_with(prefix)) return strange_reply();
            found.items.push_back(key->substr(prefix.size()));
        }
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
        const Deadline deadline = deadline_of(timeout);
        for (std::size_t first = 0; first < items.size(); first += kMaxScriptKeys) {
            Call call({});
            for (const Outdated& each :
                 items.subspan(first, std::min(kMaxScriptKeys, items.size() - first))) {
                call.key(key_of(space, each.item));
                call.number(each.epoch);
            }
            HOTCOUNT_TRY(run(kScript, call, deadline));
        }
        return {};
    }

    Result<std::string> identity(std::string_view space, Timeout timeout) override {
        const std::string key = identity_key(client_->options().prefix, space);
        const std::string name = random_name();
        // Of several callers' SET NX only the first one writes; GET returns its value. SET NX GET
        // needs Redis 7.
        const std::vector<std::string_view> commands[] = {{"SET", key, name, "NX"}, {"GET", key}};
        const auto replies = client_->execute_many(commands, timeout);
        for (const auto& reply : replies) {
            if (!reply) return redis::of_key(key, reply.error());
        }
        const auto* const found = std::get_if<std::string>(&replies[1]->value);
        if (found == nullptr) return strange_reply();
        return *found;
    }

    Duration default_timeout() const override { return client_->options().timeout; }

  private:
    // Keys and arguments of one script, and the texts that they are views of.
    struct Call {
        explicit Call(std::vector<std::string> first) : texts(std::move(first)) {}
        void key(std::string text) { keys.push_back(std::move(text)); }
        void number(std::int64_t value) { texts.push_back(std::to_string(value)); }
        std::vector<std::string> keys;
        std::vector<std::string> texts;
    };

    std::string key_of(std::string_view space, std::string_view item) const {
        return key_prefix(client_->options().prefix, space).append(item);
    }
    Deadline deadline_of(Timeout timeout) const {
        return Deadline::after(timeout.value_or(default_timeout()));
    }

    Error strange_reply() const {
        return redis::strange_reply(client_->options().address(), "cached votes");
    }

    /// One reply per key.
    Result<ReplyArray> run(const redis::Script& script, const Call& call, Deadline deadline) {
        const std::vector<std::string_view> keys(call.keys.begin(), call.keys.end());
        const std::vector<std::string_view> arguments(call.texts.begin(), call.texts.end());
        auto reply = client_->run(script, keys, arguments, deadline.remaining());
        if (!reply) return redis::of_key(call.keys.front(), reply.error());
        auto* const replies = std::get_if<ReplyArray>(&reply->value);
        if (replies == nullptr || replies->size() != call.keys.size()) return strange_reply();
        return std::move(*replies);
    }

    Result<std::int64_t> number_at(const ReplyArray& replies, std::size_t index,
                                   const Call& call) const {
        if (const auto* error = std::get_if<redis::ReplyError>(&replies[index].value)) {
            return redis::of_key(
                call.keys[index],
                redis::error_from_reply(error->message, client_->options().address()));
        }
        const auto number = redis::to_integer(replies[index]);
        if (!number) return strange_reply();
        return *number;
    }

    Result<std::optional<CacheEntry>> to_entry(const Reply& reply, const std::string& key) const {
        if (std::holds_alternative<std::monostate>(reply.value)) return std::optional<CacheEntry>{};
        if (const auto* error = std::get_if<redis::ReplyError>(&reply.value)) {
            return redis::of_key(
                key, redis::error_from_reply(error->message, client_->options().address()));
        }
        const auto* const fields = std::get_if<ReplyArray>(&reply.value);
        if (fields == nullptr || fields->size() != 7) return strange_reply();
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
        const Deadline deadline = deadline_of(timeout);
        std::int64_t done = 0;
        for (std::size_t first = 0; first < marks.size(); first += kMaxScriptKeys) {
            Call call({});
            for (const Mark& each :
                 marks.subspan(first, std::min(kMaxScriptKeys, marks.size() - first))) {
                call.key(key_of(space, each.item));
                call.number(each.gen);
                call.number(each.version);
            }
            HOTCOUNT_TRY_ASSIGN(const ReplyArray states, run(script, call, deadline));
            for (std::size_t i = 0; i < states.size(); ++i) {
                HOTCOUNT_TRY_ASSIGN(const std::int64_t state, number_at(states, i, call));
                done += state;
            }
        }
        return done;
    }

    std::shared_ptr<redis::Client> client_;
    std::string retention_;
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
