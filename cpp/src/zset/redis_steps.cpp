#include "redis_steps.hpp"

#include <algorithm>
#include <iterator>

#include "hotcount_embedded/zset/lua.hpp"
#include "redis/scripts.hpp"

namespace hotcount::zset {
namespace {

using redis::Reply;
using redis::ReplyArray;

// What a sweep that is given no timeout may take, in the store's timeouts: at 1 s, 50,000 pages of
// 500 keys at 2 ms each.
constexpr int kSweepTimeouts = 100;

}  // namespace

// -- upserts, batch by batch ----------------------------------------------------------------------

RedisSteps::Upserts RedisSteps::upsert(std::span<const Element> elements, std::size_t batch,
                                       Deadline deadline) const {
    Upserts results;
    results.reserve(elements.size());
    while (!elements.empty()) {
        const auto some = elements.first(std::min(batch, elements.size()));
        std::ranges::move(upsert(some, deadline), std::back_inserter(results));
        elements = elements.subspan(some.size());
    }
    return results;
}
RedisSteps::Upserts RedisSteps::upsert(std::span<const Element> elements, Deadline deadline) const {
    if (method_ == UpsertMethod::watch) return by_watch(elements, deadline);
    if (method_ == UpsertMethod::unguarded_pipeline) {
        return look_and_add(elements, deadline);
    }
    return look_then_add(elements, deadline);
}

// One transaction for each element: WATCH holds for all the keys of a connection.
RedisSteps::Upserts RedisSteps::by_watch(std::span<const Element> elements,
                                         Deadline deadline) const {
    Upserts results;
    results.reserve(elements.size());
    for (const Element& element : elements) {
        auto state = watch_and_add(element, deadline.remaining());
        results.push_back(state ? std::move(state) : about(element.key, state.error()));
    }
    return results;
}

Result<Upsert> RedisSteps::watch_and_add(const Element& element, Timeout timeout) const {
    Result<Upsert> seen = Upsert::failed;
    const std::string score = to_text(element.score);
    const redis::CheckAndSet steps{.keys = {element.key},
                                   .reads = {{"TYPE", element.key}, {"PTTL", element.key}},
                                   .should_write =
                                       [&](std::span<const Reply> replies) {
                                           seen = state_of(replies[0], replies[1]);
                                           return seen.ok() && *seen == Upsert::applied;
                                       },
                                   .writes = {{"ZADD", element.key, score, element.member}}};
    HOTCOUNT_TRY_ASSIGN(const auto added, client_->check_and_set(steps, timeout));
    if (!added) return seen;
    if (added->size() != 1) return unexpected(*server_, "EXEC");
    HOTCOUNT_TRY(integer(*server_, added->front()));
    return Upsert::applied;
}

// The ways in two steps. What happens to a set between them is the hole.
RedisSteps::Upserts RedisSteps::look_then_add(std::span<const Element> elements,
                                              Deadline deadline) const {
    const bool gated = method_ == UpsertMethod::ttl_gate;
    Commands looks;
    for (const Element& element : elements) {
        looks.push_back({gated ? "PTTL" : "EXISTS", element.key});
    }
    Upserts results;
    std::vector<std::size_t> passed;
    std::vector<Element> to_add;
    const auto seen = client_->execute_many(looks, deadline.remaining());
    for (std::size_t i = 0; i < elements.size(); ++i) {
        const auto number = seen[i] ? integer(*server_, *seen[i]) : seen[i].error();
        if (!number) {
            results.emplace_back(about(elements[i].key, number.error()));
            continue;
        }
        results.emplace_back(gated ? state_of(*number)
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
RedisSteps::Upserts RedisSteps::look_and_add(std::span<const Element> elements,
                                             Deadline deadline) const {
    Commands looks;
    for (const Element& element : elements) looks.push_back({"EXISTS", element.key});
    const auto replies = add(elements, std::move(looks), deadline.remaining());
    Upserts results;
    for (std::size_t i = 0; i < elements.size(); ++i) {
        const auto& look = replies[2 * i];
        const auto existed = look ? integer(*server_, *look) : look.error();
        const auto& added = replies[2 * i + 1];
        if (!existed || !added) {
            results.emplace_back(about(elements[i].key, existed ? added.error() : existed.error()));
        } else {
            results.emplace_back(*existed > 0 ? Upsert::applied : Upsert::absent);
        }
    }
    return results;
}

// ZADD for each element, in one pipeline; behind the element's look if there are looks.
std::vector<Result<Reply>> RedisSteps::add(std::span<const Element> elements, Commands looks,
                                           Timeout timeout) const {
    std::vector<std::string> scores;
    scores.reserve(elements.size());
    Commands commands;
    for (std::size_t i = 0; i < elements.size(); ++i) {
        if (!looks.empty()) commands.push_back(std::move(looks[i]));
        commands.push_back({"ZADD", elements[i].key,
                            scores.emplace_back(to_text(elements[i].score)), elements[i].member});
    }
    return client_->execute_many(commands, timeout);
}

Result<Upsert> RedisSteps::state_of(const Reply& type, const Reply& pttl) const {
    const auto* const kind = std::get_if<std::string>(&type.value);
    if (kind == nullptr) return unexpected(*server_, "TYPE");
    if (*kind == "none") return Upsert::absent;
    if (*kind != "zset") {
        return make_error(ErrorCode::wrong_type,
                          *server_ + ": the key holds a " + *kind + " and no sorted set");
    }
    HOTCOUNT_TRY_ASSIGN(const std::int64_t left, integer(*server_, pttl));
    return state_of(left);
}

Upsert RedisSteps::state_of(std::int64_t pttl) const {
    if (pttl == -2) return Upsert::absent;
    if (pttl < 0) return Upsert::no_ttl;
    return std::chrono::milliseconds{pttl} > gate_ ? Upsert::applied : Upsert::expiring;
}

// Of a SCAN's page, the keys without a TTL. Views of the page.
Result<std::vector<std::string_view>> RedisSteps::without_ttl(const ReplyArray& page,
                                                              Timeout timeout) const {
    std::vector<std::string_view> keys;
    Commands looks;
    for (const Reply& item : page) {
        const auto* const key = std::get_if<std::string>(&item.value);
        if (key == nullptr) return unexpected(*server_, "SCAN");
        keys.push_back(*key);
        looks.push_back({"PTTL", *key});
    }
    std::vector<std::string_view> found;
    if (keys.empty()) return found;
    const auto replies = client_->execute_many(looks, timeout);
    for (std::size_t i = 0; i < keys.size(); ++i) {
        if (!replies[i]) return replies[i].error();
        HOTCOUNT_TRY_ASSIGN(const std::int64_t left, integer(*server_, *replies[i]));
        if (left == -1) found.push_back(keys[i]);
    }
    return found;
}

// -- sweep ----------------------------------------------------------------------------------------

// A server whose cursor never ends is left too.
Deadline RedisSteps::sweep_deadline(Timeout timeout) const {
    return Deadline::after(timeout.value_or(kSweepTimeouts * client_->options().timeout));
}

Result<SweepReport> RedisSteps::sweep(const std::string& pattern, bool dry_run,
                                      Timeout timeout) const {
    static const redis::Script kScript{lua::zset::kSweepLua, redis::Script::Kind::single,
                                       redis::is_integer};
    SweepReport report;
    const Deadline deadline = sweep_deadline(timeout);
    const auto left = [&] {
        const Duration rest = deadline.remaining();
        return timeout ? rest : std::min<Duration>(client_->options().timeout, rest);
    };
    std::string cursor = "0";
    do {
        const std::string_view scan[] = {"SCAN",  cursor, "MATCH", pattern,
                                         "COUNT", "500",  "TYPE",  "zset"};
        const auto reply = client_->execute(scan, left());
        if (!reply) return about(pattern, reply.error());
        const auto* const parts = std::get_if<ReplyArray>(&reply->value);
        if (parts == nullptr || parts->size() != 2) return unexpected(*server_, "SCAN");
        const auto* const next = std::get_if<std::string>(&(*parts)[0].value);
        const auto* const page = std::get_if<ReplyArray>(&(*parts)[1].value);
        if (next == nullptr || page == nullptr) return unexpected(*server_, "SCAN");
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
                            integer(*server_, client_->run(kScript, found, {}, left()), pattern));
        report.deleted += deleted;
    } while (cursor != "0");
    return report;
}

}  // namespace hotcount::zset
