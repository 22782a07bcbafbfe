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
        std::ranges::move(look_then_add(some, deadline), std::back_inserter(results));
        elements = elements.subspan(some.size());
    }
    return results;
}

// The look and the adds are two steps. What happens to a set between them is the hole.
RedisSteps::Upserts RedisSteps::look_then_add(std::span<const Element> elements,
                                              Deadline deadline) const {
    Commands looks;
    for (const Element& element : elements) looks.push_back({"PTTL", element.key});
    Upserts results;
    std::vector<std::size_t> passed;
    std::vector<std::string> scores;
    scores.reserve(elements.size());
    Commands adds;
    const auto seen = client_->execute_many(looks, deadline.remaining());
    for (std::size_t i = 0; i < elements.size(); ++i) {
        const Element& element = elements[i];
        const auto left = seen[i] ? integer(*server_, *seen[i]) : seen[i].error();
        if (!left) {
            results.emplace_back(about(element.key, left.error()));
            continue;
        }
        results.emplace_back(state_of(*left));
        if (*results.back() != Upsert::applied) continue;
        passed.push_back(i);
        adds.push_back(
            {"ZADD", element.key, scores.emplace_back(to_text(element.score)), element.member});
    }
    if (adds.empty()) return results;
    const auto added = client_->execute_many(adds, deadline.remaining());
    for (std::size_t i = 0; i < passed.size(); ++i) {
        if (!added[i]) results[passed[i]] = about(elements[passed[i]].key, added[i].error());
    }
    return results;
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
        if (key == nullptr) return redis::strange_reply(*server_, "SCAN");
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
        if (parts == nullptr || parts->size() != 2) return redis::strange_reply(*server_, "SCAN");
        const auto* const next = std::get_if<std::string>(&(*parts)[0].value);
        const auto* const page = std::get_if<ReplyArray>(&(*parts)[1].value);
        if (next == nullptr || page == nullptr) return redis::strange_reply(*server_, "SCAN");
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
