#include <cmath>
#include <hotcount/base/check.hpp>
#include <hotcount/base/codec.hpp>
#include <hotcount/zset/live_sets.hpp>

#include "backend.hpp"
#include "keys.hpp"

namespace hotcount {
namespace {

Result<void> check_options(const LiveSetsOptions& options) {
    const bool gated = options.method == UpsertMethod::script ||
                       options.method == UpsertMethod::ttl_gate ||
                       options.method == UpsertMethod::watch;
    if (options.gate && *options.gate < Duration{0}) {
        return make_error(ErrorCode::config, "gate must be 0 seconds or more");
    }
    if (!gated && options.gate.value_or(Duration{0}) > Duration{0}) {
        return make_error(ErrorCode::config,
                          "method '" + std::string{to_string(options.method)} +
                              "' has no gate; 'script', 'ttl_gate' and 'watch' have");
    }
    if (options.prefix.size() > kMaxKeyBytes) {
        return make_error(ErrorCode::config, "prefix is longer than 1000 bytes");
    }
    if (options.keep < std::chrono::seconds{1}) {
        return make_error(ErrorCode::config, "keep must be 1 second or more");
    }
    return {};
}

LiveSetsOptions with_defaults(LiveSetsOptions options) {
    if (!options.gate && options.method == UpsertMethod::ttl_gate) {
        options.gate = std::chrono::seconds{10};
    }
    return options;
}

Result<void> check_member(std::string_view member) {
    if (member.empty()) return make_error(ErrorCode::config, "member is empty; 1 to 1000 bytes");
    if (member.size() > kMaxKeyBytes) {
        return make_error(ErrorCode::config, "member has " + std::to_string(member.size()) +
                                                 " bytes; it takes 1 to 1000");
    }
    return {};
}

Result<void> check_score(double score) {
    if (!std::isnan(score)) return {};
    return make_error(ErrorCode::config, "score is NaN; it takes numbers that have an order");
}

// Empty for a key that can have none. Only a version cannot do without.
Result<std::string> companion_of(const std::string& key, bool versioned) {
    auto companion = zset::companion_key(key);
    if (companion.ok() || versioned) return companion;
    return std::string{};
}

}  // namespace

std::string_view to_string(Upsert upsert) {
    switch (upsert) {
        case Upsert::failed:
            return "FAILED";
        case Upsert::applied:
            return "APPLIED";
        case Upsert::absent:
            return "ABSENT";
        case Upsert::stale:
            return "STALE";
        case Upsert::expiring:
            return "EXPIRING";
        case Upsert::no_ttl:
            return "NO_TTL";
    }
    return "";
}

std::string_view to_string(UpsertMethod method) {
    switch (method) {
        case UpsertMethod::script:
            return "script";
        case UpsertMethod::ttl_gate:
            return "ttl_gate";
        case UpsertMethod::watch:
            return "watch";
        case UpsertMethod::exists_then_add:
            return "exists_then_add";
        case UpsertMethod::unguarded_pipeline:
            return "unguarded_pipeline";
    }
    return "";
}

Result<std::shared_ptr<LiveSets>> LiveSets::make(std::shared_ptr<memory::Store> store,
                                                 LiveSetsOptions options) {
    HOTCOUNT_TRY(check_options(options));
    return std::make_shared<LiveSets>(
        make_memory_sets(std::move(store), with_defaults(std::move(options))));
}

Result<std::shared_ptr<LiveSets>> LiveSets::make(std::shared_ptr<redis::Client> client,
                                                 LiveSetsOptions options) {
    HOTCOUNT_TRY(check_options(options));
    return std::make_shared<LiveSets>(
        make_redis_sets(std::move(client), with_defaults(std::move(options))));
}

LiveSets::LiveSets(std::unique_ptr<LiveSetsBackend> backend) : backend_(std::move(backend)) {}
LiveSets::~LiveSets() = default;

std::string LiveSets::before_key() const {
    std::string text{backend_->store_prefix()};
    const std::string& prefix = backend_->options().prefix;
    if (!prefix.empty()) text += prefix + ":";
    return text;
}

Result<std::string> LiveSets::full(std::string_view key) const {
    HOTCOUNT_TRY(check_key(key));
    return before_key().append(key);
}

Result<void> LiveSets::check_version(bool versioned) const {
    const UpsertMethod method = backend_->options().method;
    if (!versioned || method == UpsertMethod::script) return {};
    return make_error(ErrorCode::config, "version needs method 'script'; this is '" +
                                             std::string{to_string(method)} + "'");
}

Result<Upsert> LiveSets::upsert(std::string_view key, std::string_view member, double score,
                                std::optional<std::int64_t> version, Timeout timeout) {
    const UpsertItem item{key, member, score, version};
    HOTCOUNT_TRY_ASSIGN(auto results, upsert_many({&item, 1}, 1, timeout));
    return std::move(results.front());
}

Result<std::vector<Result<Upsert>>> LiveSets::upsert_many(std::span<const UpsertItem> items,
                                                          std::size_t batch, Timeout timeout) {
    if (batch == 0 || batch > kMaxBatch) {
        return make_error(ErrorCode::config, "batch is " + std::to_string(batch) +
                                                 "; it takes 1 to " + std::to_string(kMaxBatch));
    }
    for (const UpsertItem& item : items) HOTCOUNT_TRY(check_version(item.version.has_value()));

    const auto to_element = [this](const UpsertItem& item) -> Result<LiveSetsBackend::Element> {
        HOTCOUNT_TRY_ASSIGN(std::string key, full(item.key));
        HOTCOUNT_TRY(check_member(item.member));
        HOTCOUNT_TRY(check_score(item.score));
        HOTCOUNT_TRY_ASSIGN(std::string companion, companion_of(key, item.version.has_value()));
        return LiveSetsBackend::Element{std::move(key), std::move(companion), item.member,
                                        item.score, item.version};
    };
    std::vector<Result<Upsert>> results;
    results.reserve(items.size());
    std::vector<LiveSetsBackend::Element> elements;
    std::vector<std::size_t> places;  // Which item each element stands for.
    const Deadline deadline = Deadline::after(timeout.value_or(backend_->default_timeout()));
    const auto send = [&] {
        if (elements.empty()) return;
        auto answers = backend_->upsert(elements, deadline.remaining());
        for (std::size_t i = 0; i < places.size(); ++i) results[places[i]] = std::move(answers[i]);
        elements.clear();
        places.clear();
    };
    for (const UpsertItem& item : items) {
        auto element = to_element(item);
        if (element) {
            places.push_back(results.size());
            elements.push_back(std::move(*element));
            results.emplace_back(Upsert::failed);
        } else {
            results.emplace_back(std::move(element).error());
        }
        if (elements.size() == batch) send();
    }
    send();
    return results;
}

Result<Upsert> LiveSets::remove(std::string_view key, std::string_view member,
                                std::optional<std::int64_t> version, Timeout timeout) {
    HOTCOUNT_TRY_ASSIGN(const std::string name, full(key));
    HOTCOUNT_TRY(check_member(member));
    HOTCOUNT_TRY(check_version(version.has_value()));
    HOTCOUNT_TRY_ASSIGN(const std::string companion, companion_of(name, version.has_value()));
    return backend_->remove(name, member, companion, version, timeout);
}

Result<std::vector<ScoredMember>> LiveSets::top(std::string_view key, std::int64_t n,
                                                Timeout timeout) {
    if (n < 0) {
        return make_error(ErrorCode::config, "n is " + std::to_string(n) + "; it takes 0 or more");
    }
    HOTCOUNT_TRY_ASSIGN(const std::string name, full(key));
    if (n == 0) return std::vector<ScoredMember>{};
    return backend_->range(name, 0, n - 1, timeout);
}

Result<std::vector<ScoredMember>> LiveSets::range(std::string_view key, std::int64_t start,
                                                  std::int64_t stop, Timeout timeout) {
    HOTCOUNT_TRY_ASSIGN(const std::string name, full(key));
    return backend_->range(name, start, stop, timeout);
}

Result<std::optional<std::int64_t>> LiveSets::rank(std::string_view key, std::string_view member,
                                                   Timeout timeout) {
    HOTCOUNT_TRY_ASSIGN(const std::string name, full(key));
    HOTCOUNT_TRY(check_member(member));
    return backend_->rank(name, member, timeout);
}

Result<void> LiveSets::create(std::string_view key, Duration ttl,
                              std::span<const ScoredMember> members, Timeout timeout) {
    HOTCOUNT_TRY_ASSIGN(const std::string name, full(key));
    // Redis keeps times in milliseconds: a shorter life would be none at all.
    if (ttl < std::chrono::milliseconds{1}) {
        return make_error(ErrorCode::config, "ttl must be 0.001 seconds or more");
    }
    if (members.empty() || members.size() > kMaxCreated) {
        return make_error(ErrorCode::config, "members has " + std::to_string(members.size()) +
                                                 " elements; it takes 1 to " +
                                                 std::to_string(kMaxCreated));
    }
    for (const auto& [member, score] : members) {
        HOTCOUNT_TRY(check_member(member));
        HOTCOUNT_TRY(check_score(score));
    }
    HOTCOUNT_TRY_ASSIGN(const std::string companion, companion_of(name, false));
    return backend_->create(name, companion, ttl, members, timeout);
}

Result<SweepReport> LiveSets::sweep(std::string_view match, bool dry_run, Timeout timeout) {
    if (match.empty() || match.size() > kMaxKeyBytes) {
        return make_error(ErrorCode::config, "match takes a pattern of 1 to 1000 bytes");
    }
    const std::string before = before_key();
    HOTCOUNT_TRY_ASSIGN(
        SweepReport report,
        backend_->sweep(zset::escape_pattern(before).append(match), dry_run, timeout));
    for (std::string& key : report.keys) key.erase(0, before.size());
    return report;
}

}  // namespace hotcount
