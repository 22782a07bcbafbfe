#include <algorithm>
#include <array>
#include <charconv>
#include <hotcount/base/codec.hpp>
#include <hotcount/base/hash.hpp>
#include <unordered_map>

#include "../redis/error_word.hpp"
#include "../redis/script_fits.hpp"
#include "backend.hpp"
#include "hotcount_embedded/redis/scripts.hpp"
#include "keys.hpp"

namespace hotcount {
namespace {

using redis::Reply;
using redis::ReplyArray;

std::string milliseconds(Duration duration) {
    return std::to_string(std::chrono::ceil<std::chrono::milliseconds>(duration).count());
}

// The shortest digits that bring the double back as it was, whatever the process's locale is.
std::string to_text(double score) {
    std::array<char, 32> text;  // "-2.2250738585072014e-308" is the longest.
    const auto end = std::to_chars(text.data(), text.data() + text.size(), score).ptr;
    return {text.data(), end};
}

// What a sweep that is given no timeout may take, in the store's timeouts: at 1 s, 50,000 pages of
// 500 keys at 2 ms each.
constexpr int kSweepTimeouts = 100;

Error about(const std::string& key, const Error& error) {
    return make_error(error.code, error.message + " (key " + printable(key) + ")",
                      error.server_code);
}

class RedisSets final : public LiveSetsBackend {
  public:
    RedisSets(std::shared_ptr<redis::Client> client, LiveSetsOptions sets_options)
        : LiveSetsBackend(std::move(sets_options)), client_(std::move(client)) {}

    std::string_view store_prefix() const override { return client_->options().prefix; }
    Duration default_timeout() const override { return client_->options().timeout; }

    std::vector<Result<Upsert>> upsert(std::span<const Element> elements,
                                       Timeout timeout) override {
        switch (options().method) {
            case UpsertMethod::ttl_gate:
            case UpsertMethod::exists_then_add:
                return look_then_add(elements, timeout);
            case UpsertMethod::unguarded_pipeline:
                return look_and_add(elements, timeout);
            case UpsertMethod::watch:
                return by_watch(elements, timeout);
            case UpsertMethod::script:
                break;
        }
        return by_script(elements, timeout);
    }

    Result<Upsert> remove(const std::string& key, std::string_view member,
                          const std::string& companion, std::optional<std::int64_t> version,
                          Timeout timeout) override {
        static const redis::Script kScript{redis::scripts::kZsetRemoveLua,
                                           redis::Script::Kind::single, redis::is_integer};
        // The other methods are for servers without scripts, and know of no companion.
        if (!companion.empty() && options().method == UpsertMethod::script) {
            const std::string marker = zset::marker_key(companion);
            const std::string_view keys[] = {key, companion, marker};
            const std::string number = version ? std::to_string(*version) : "";
            const std::string keep = milliseconds(options().keep);
            const std::string_view arguments[] = {member, number, keep};
            const auto state = integer(run(kScript, keys, arguments, key, timeout));
            if (state) return static_cast<Upsert>(*state);
            // Who may not touch companions has none.
            if (version || state.error().code != ErrorCode::permission_denied) return state.error();
        }
        HOTCOUNT_TRY_ASSIGN(const std::int64_t removed,
                            integer(send({"ZREM", key, member}, key, timeout)));
        return removed > 0 ? Upsert::applied : Upsert::absent;
    }

    Result<std::vector<ScoredMember>> range(const std::string& key, std::int64_t start,
                                            std::int64_t stop, Timeout timeout) override {
        const std::string first = std::to_string(start);
        const std::string last = std::to_string(stop);
        HOTCOUNT_TRY_ASSIGN(const Reply reply,
                            send({"ZREVRANGE", key, first, last, "WITHSCORES"}, key, timeout));
        const auto* const items = std::get_if<ReplyArray>(&reply.value);
        if (items == nullptr) return unexpected("ZREVRANGE");
        std::vector<ScoredMember> members;
        // RESP3 answers with pairs, RESP2 with members and scores in turn.
        const bool paired =
            !items->empty() && std::holds_alternative<ReplyArray>(items->front().value);
        for (std::size_t i = 0; i < items->size(); i += paired ? 1 : 2) {
            const ReplyArray* pair = paired ? std::get_if<ReplyArray>(&(*items)[i].value) : items;
            const std::size_t at = paired ? 0 : i;
            if (pair == nullptr || pair->size() < at + 2) return unexpected("ZREVRANGE");
            const auto* const member = std::get_if<std::string>(&(*pair)[at].value);
            const auto score = to_score((*pair)[at + 1]);
            if (member == nullptr || !score) return unexpected("ZREVRANGE");
            members.push_back({*member, *score});
        }
        return members;
    }

    Result<std::optional<std::int64_t>> rank(const std::string& key, std::string_view member,
                                             Timeout timeout) override {
        HOTCOUNT_TRY_ASSIGN(const Reply reply, send({"ZREVRANK", key, member}, key, timeout));
        if (std::holds_alternative<std::monostate>(reply.value)) {
            return std::optional<std::int64_t>{};
        }
        HOTCOUNT_TRY_ASSIGN(const std::int64_t place, integer(reply));
        return std::optional{place};
    }

    Result<void> create(const std::string& key, const std::string& companion, Duration ttl,
                        std::span<const ScoredMember> members, Timeout timeout) override {
        static const redis::Script kScript{redis::scripts::kZsetCreateLua,
                                           redis::Script::Kind::single, redis::is_integer};
        std::vector<std::string> scores;
        scores.reserve(members.size());
        const std::string life = milliseconds(ttl);
        const std::string keep = milliseconds(options().keep);
        std::vector<std::string_view> arguments{life, keep};
        for (const auto& [member, score] : members) {
            arguments.push_back(scores.emplace_back(to_text(score)));
            arguments.push_back(member);
        }
        std::vector<std::string_view> keys{key};
        if (!companion.empty()) keys.push_back(companion);
        HOTCOUNT_TRY(run(kScript, keys, arguments, key, timeout));
        return {};
    }

    Result<SweepReport> sweep(const std::string& pattern, bool dry_run, Timeout timeout) override {
        static const redis::Script kScript{redis::scripts::kZsetSweepLua,
                                           redis::Script::Kind::single, redis::is_integer};
        SweepReport report;
        // A server whose cursor never ends is left too.
        const Deadline deadline =
            Deadline::after(timeout.value_or(kSweepTimeouts * default_timeout()));
        const auto left = [&] {
            const Duration rest = deadline.remaining();
            return timeout ? rest : std::min(default_timeout(), rest);
        };
        std::string cursor = "0";
        do {
            HOTCOUNT_TRY_ASSIGN(const Reply reply, send({"SCAN", cursor, "MATCH", pattern, "COUNT",
                                                         "500", "TYPE", "zset"},
                                                        pattern, left()));
            const auto* const parts = std::get_if<ReplyArray>(&reply.value);
            if (parts == nullptr || parts->size() != 2) return unexpected("SCAN");
            const auto* const next = std::get_if<std::string>(&(*parts)[0].value);
            const auto* const page = std::get_if<ReplyArray>(&(*parts)[1].value);
            if (next == nullptr || page == nullptr) return unexpected("SCAN");
            cursor = *next;
            report.scanned += static_cast<std::int64_t>(page->size());
            HOTCOUNT_TRY_ASSIGN(const auto found, without_ttl(*page, left()));
            if (found.empty()) continue;
            report.found += static_cast<std::int64_t>(found.size());
            for (const std::string_view key : found) {
                if (report.keys.size() < SweepReport::kMaxKeys) report.keys.emplace_back(key);
            }
            if (dry_run) continue;
            HOTCOUNT_TRY_ASSIGN(const std::int64_t deleted,
                                integer(run(kScript, found, {}, pattern, left())));
            report.deleted += deleted;
        } while (cursor != "0");
        return report;
    }

  private:
    using Commands = std::vector<std::vector<std::string_view>>;

    std::vector<Result<Upsert>> by_script(std::span<const Element> elements, Timeout timeout) {
        const Deadline deadline = Deadline::after(timeout.value_or(default_timeout()));
        const auto reply = run_upsert(elements, true, deadline.remaining());
        if (!reply) {
            const Error& error = reply.error();
            if (error.code != ErrorCode::permission_denied || !redis::concerns_a_key(error)) {
                return each(elements, error);
            }
            return by_one_script_each(elements, reply.error(), deadline);
        }
        const auto* const states = std::get_if<ReplyArray>(&reply->value);
        if (states == nullptr || states->size() != elements.size()) {
            return each(elements, unknown("upsert"));
        }
        std::vector<Result<Upsert>> results;
        results.reserve(elements.size());
        for (std::size_t i = 0; i < elements.size(); ++i) {
            auto state = integer((*states)[i]);
            results.push_back(state ? Result{static_cast<Upsert>(*state)}
                                    : Result<Upsert>{about(elements[i].key, state.error())});
        }
        return results;
    }

    // One key that an ACL denies refuses the whole call, with nothing run.
    std::vector<Result<Upsert>> by_one_script_each(std::span<const Element> elements,
                                                   const Error& denied, Deadline deadline) {
        if (elements.size() > 1) {
            std::vector<Result<Upsert>> results;
            for (std::size_t i = 0; i < elements.size(); ++i) {
                results.push_back(
                    std::move(by_script(elements.subspan(i, 1), deadline.remaining()).front()));
            }
            return results;
        }
        // Who may not touch companions has none: an upsert without a version does not need one.
        if (elements.front().version || elements.front().companion.empty()) {
            return each(elements, denied);
        }
        const auto reply = run_upsert(elements, false, deadline.remaining());
        if (!reply) return each(elements, reply.error());
        const auto* const states = std::get_if<ReplyArray>(&reply->value);
        if (states == nullptr || states->size() != 1) return each(elements, unknown("upsert"));
        const auto state = integer(states->front());
        if (!state) return each(elements, state.error());
        return {static_cast<Upsert>(*state)};
    }

    Result<Reply> run_upsert(std::span<const Element> elements, bool with_companions,
                             Timeout timeout) {
        static const redis::Script kScript{redis::scripts::kZsetUpsertLua,
                                           redis::Script::Kind::single,
                                           redis::is_some<redis::is_integer>};
        std::vector<std::string_view> keys;
        std::vector<std::string> markers;  // Reserved: views of its elements are taken.
        markers.reserve(elements.size());
        std::unordered_map<std::string_view, std::string, KeyedHash>
            places;  // Key -> index, from 1.
        const auto place_of = [&](std::string_view key) -> std::string_view {
            const auto [item, fresh] = places.try_emplace(key);
            if (fresh) {
                keys.push_back(key);
                item->second = std::to_string(keys.size());
            }
            return item->second;
        };
        std::vector<std::string> numbers;  // Reserved: views of its elements are taken.
        numbers.reserve(2 * elements.size() + 2);
        std::vector<std::string_view> arguments;
        arguments.reserve(6 * elements.size() + 2);
        arguments.push_back(numbers.emplace_back(milliseconds(gate())));
        arguments.push_back(numbers.emplace_back(milliseconds(options().keep)));
        for (const Element& element : elements) {
            arguments.push_back(place_of(element.key));
            arguments.push_back(element.member);
            arguments.push_back(numbers.emplace_back(to_text(element.score)));
            arguments.push_back(
                with_companions && !element.companion.empty() ? place_of(element.companion) : "0");
            if (element.version) {
                arguments.push_back(numbers.emplace_back(std::to_string(*element.version)));
                arguments.push_back(
                    place_of(markers.emplace_back(zset::marker_key(element.companion))));
            } else {
                arguments.emplace_back();
                arguments.emplace_back("0");
            }
        }
        return client_->run(kScript, keys, arguments, timeout);
    }

    // One transaction for each element: WATCH holds for all the keys of a connection.
    std::vector<Result<Upsert>> by_watch(std::span<const Element> elements, Timeout timeout) {
        const Deadline deadline = Deadline::after(timeout.value_or(default_timeout()));
        std::vector<Result<Upsert>> results;
        results.reserve(elements.size());
        for (const Element& element : elements) {
            auto state = watch_and_add(element, deadline.remaining());
            results.push_back(state ? std::move(state) : about(element.key, state.error()));
        }
        return results;
    }

    Result<Upsert> watch_and_add(const Element& element, Timeout timeout) {
        Result<Upsert> seen = Upsert::failed;
        const std::string score = to_text(element.score);
        const redis::CheckAndSet steps{.keys = {element.key},
                                       .looks = {{"TYPE", element.key}, {"PTTL", element.key}},
                                       .go =
                                           [&](std::span<const Reply> replies) {
                                               seen = judge(replies[0], replies[1]);
                                               return seen.ok() && *seen == Upsert::applied;
                                           },
                                       .writes = {{"ZADD", element.key, score, element.member}}};
        HOTCOUNT_TRY_ASSIGN(const auto added, client_->check_and_set(steps, timeout));
        if (!added) return seen;
        if (added->size() != 1) return unexpected("EXEC");
        HOTCOUNT_TRY(integer(added->front()));
        return Upsert::applied;
    }

    // The ways in two steps. What happens to a set between them is the hole.
    std::vector<Result<Upsert>> look_then_add(std::span<const Element> elements, Timeout timeout) {
        const bool gated = options().method == UpsertMethod::ttl_gate;
        const Deadline deadline = Deadline::after(timeout.value_or(default_timeout()));
        Commands looks;
        for (const Element& element : elements) {
            looks.push_back({gated ? "PTTL" : "EXISTS", element.key});
        }
        std::vector<Result<Upsert>> results;
        std::vector<std::size_t> passed;
        std::vector<Element> to_add;
        const auto seen = client_->execute_many(looks, deadline.remaining());
        for (std::size_t i = 0; i < elements.size(); ++i) {
            const auto number = seen[i] ? integer(*seen[i]) : seen[i].error();
            if (!number) {
                results.emplace_back(about(elements[i].key, number.error()));
                continue;
            }
            results.emplace_back(gated ? judge(*number)
                                       : (*number > 0 ? Upsert::applied : Upsert::absent));
            if (*results.back() != Upsert::applied) continue;
            passed.push_back(i);
            to_add.push_back(elements[i]);
        }
        if (to_add.empty()) return results;
        const auto added = add(to_add, {}, deadline.remaining());
        for (std::size_t i = 0; i < passed.size(); ++i) {
            if (!added[i]) results[passed[i]] = about(to_add[i].key, added[i].error());
        }
        return results;
    }

    // "Atomic" because it is one pipeline: the ZADD goes out whatever EXISTS will say.
    std::vector<Result<Upsert>> look_and_add(std::span<const Element> elements, Timeout timeout) {
        Commands looks;
        for (const Element& element : elements) looks.push_back({"EXISTS", element.key});
        const auto replies = add(elements, std::move(looks), timeout);
        std::vector<Result<Upsert>> results;
        for (std::size_t i = 0; i < elements.size(); ++i) {
            const auto& look = replies[2 * i];
            const auto existed = look ? integer(*look) : look.error();
            const auto& added = replies[2 * i + 1];
            if (!existed || !added) {
                results.emplace_back(
                    about(elements[i].key, existed ? added.error() : existed.error()));
            } else {
                results.emplace_back(*existed > 0 ? Upsert::applied : Upsert::absent);
            }
        }
        return results;
    }

    // ZADD for each element, in one pipeline; behind the element's look where there are looks.
    std::vector<Result<Reply>> add(std::span<const Element> elements, Commands looks,
                                   Timeout timeout) {
        std::vector<std::string> scores;
        scores.reserve(elements.size());
        Commands commands;
        for (std::size_t i = 0; i < elements.size(); ++i) {
            if (!looks.empty()) commands.push_back(std::move(looks[i]));
            commands.push_back({"ZADD", elements[i].key,
                                scores.emplace_back(to_text(elements[i].score)),
                                elements[i].member});
        }
        return client_->execute_many(commands, timeout);
    }

    Result<Upsert> judge(const Reply& type, const Reply& pttl) const {
        const auto* const kind = std::get_if<std::string>(&type.value);
        if (kind == nullptr) return unexpected("TYPE");
        if (*kind == "none") return Upsert::absent;
        if (*kind != "zset") {
            return make_error(
                ErrorCode::wrong_type,
                client_->options().address() + ": the key holds a " + *kind + " and no sorted set");
        }
        HOTCOUNT_TRY_ASSIGN(const std::int64_t left, integer(pttl));
        return judge(left);
    }

    Upsert judge(std::int64_t pttl) const {
        if (pttl == -2) return Upsert::absent;
        if (pttl < 0) return Upsert::no_ttl;
        return std::chrono::milliseconds{pttl} > gate() ? Upsert::applied : Upsert::expiring;
    }

    // Of a SCAN's page, the keys without a TTL. Views of the page.
    Result<std::vector<std::string_view>> without_ttl(const ReplyArray& page, Timeout timeout) {
        std::vector<std::string_view> keys;
        Commands looks;
        for (const Reply& item : page) {
            const auto* const key = std::get_if<std::string>(&item.value);
            if (key == nullptr) return unexpected("SCAN");
            keys.push_back(*key);
            looks.push_back({"PTTL", *key});
        }
        std::vector<std::string_view> found;
        if (keys.empty()) return found;
        const auto replies = client_->execute_many(looks, timeout);
        for (std::size_t i = 0; i < keys.size(); ++i) {
            if (!replies[i]) return replies[i].error();
            HOTCOUNT_TRY_ASSIGN(const std::int64_t left, integer(*replies[i]));
            if (left == -1) found.push_back(keys[i]);
        }
        return found;
    }

    Result<Reply> send(std::initializer_list<std::string_view> command, const std::string& key,
                       Timeout timeout) {
        auto reply = client_->execute(std::span{command.begin(), command.size()}, timeout);
        if (!reply) return about(key, reply.error());
        return reply;
    }

    Result<Reply> run(const redis::Script& script, std::span<const std::string_view> keys,
                      std::span<const std::string_view> arguments, const std::string& key,
                      Timeout timeout) {
        auto reply = client_->run(script, keys, arguments, timeout);
        if (!reply) return about(key, reply.error());
        return reply;
    }

    Result<std::int64_t> integer(const Result<Reply>& reply) const {
        if (!reply) return reply.error();
        if (const auto* number = std::get_if<std::int64_t>(&reply->value)) return *number;
        if (const auto* error = std::get_if<redis::ReplyError>(&reply->value)) {
            return redis::error_from_reply(error->message, client_->options().address());
        }
        return unexpected("an integer reply");
    }

    static std::optional<double> to_score(const Reply& reply) {
        if (const auto* number = std::get_if<double>(&reply.value)) return *number;
        const auto* const text = std::get_if<std::string>(&reply.value);
        if (text == nullptr) return std::nullopt;
        double score = 0;
        const char* const end = text->data() + text->size();
        const auto [stop, error] = std::from_chars(text->data(), end, score);
        if (error != std::errc{} || stop != end) return std::nullopt;
        return score;
    }

    std::vector<Result<Upsert>> each(std::span<const Element> elements, const Error& error) const {
        std::vector<Result<Upsert>> results;
        for (const Element& element : elements) results.emplace_back(about(element.key, error));
        return results;
    }

    Error unexpected(std::string_view what) const {
        return make_error(ErrorCode::reply, client_->options().address() + ": " +
                                                std::string{what} +
                                                " got a reply of another shape");
    }

    // The server ran what nobody can make sense of the answer to.
    Error unknown(std::string_view what) const {
        return make_error(ErrorCode::outcome_unknown,
                          unexpected(what).message + "; it may or may not be applied");
    }

    std::shared_ptr<redis::Client> client_;
};

}  // namespace

std::unique_ptr<LiveSetsBackend> make_redis_sets(std::shared_ptr<redis::Client> client,
                                                 LiveSetsOptions options) {
    return std::make_unique<RedisSets>(std::move(client), std::move(options));
}

}  // namespace hotcount
