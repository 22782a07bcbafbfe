#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/live_sets.hpp>
#include <map>

#include "backend.hpp"

namespace hotcount {
namespace {

Result<void> check_options(const LiveSetsOptions& options) {
    if (options.gate && *options.gate < Duration{0}) {
        return bad_option("gate", "must be 0 seconds or more");
    }
    if (options.prefix.size() > kMaxKeyBytes) {
        return bad_option("prefix", "is longer than 1000 bytes");
    }
    return {};
}

LiveSetsOptions with_defaults(LiveSetsOptions options) {
    if (!options.gate && options.method == UpsertMethod::ttl_gate) {
        options.gate = std::chrono::seconds{10};
    }
    return options;
}

using Element = LiveSetsBackend::Element;
using Upserts = LiveSetsBackend::Upserts;
using Members = LiveSetsBackend::Members;
using Rank = LiveSetsBackend::Rank;

Result<std::string> full(const LiveSetsBackend& sets, std::string_view key) {
    HOTCOUNT_TRY(check_key(key));
    std::string name;
    name.reserve(sets.before_key().size() + key.size());
    return name.append(sets.before_key()).append(key);
}

Result<void> check_version(const LiveSetsBackend& sets, bool versioned) {
    const UpsertMethod method = sets.options().method;
    if (!versioned || method == UpsertMethod::script) return {};
    return bad_option("version",
                      "needs method 'script'; this is '" + std::string{to_string(method)} + "'");
}

// The companion is empty for a key that can have no companion; only a version requires one.
Result<Element> to_element(const LiveSetsBackend& sets, const UpsertItem& item) {
    HOTCOUNT_TRY(check_version(sets, item.version.has_value()));
    HOTCOUNT_TRY_ASSIGN(std::string key, full(sets, item.key));
    HOTCOUNT_TRY(zset::check_member(item.member));
    HOTCOUNT_TRY(zset::check_score(item.score));
    auto companion = zset::companion_key(key);
    if (!companion && item.version) return std::move(companion).error();
    return Element{std::move(key), companion ? std::move(*companion) : "", std::string{item.member},
                   item.score, item.version};
}

// A batch's good elements as a backend takes them, and the errors of the others by their places.
struct Batch {
    std::vector<Element> elements;
    std::map<std::size_t, Error> refused;

    Upserts merge(Upserts answers) {
        if (refused.empty()) return answers;
        Upserts results;
        results.reserve(answers.size() + refused.size());
        auto answer = answers.begin();
        while (results.size() < answers.size() + refused.size()) {
            const auto error = refused.find(results.size());
            if (error == refused.end()) {
                results.push_back(std::move(*answer++));
            } else {
                results.emplace_back(std::move(error->second));
            }
        }
        return results;
    }
};

Result<Batch> to_batch(const LiveSetsBackend& sets, std::span<const UpsertItem> items,
                       std::size_t size) {
    if (size == 0 || size > LiveSets::kMaxBatch) {
        return bad_value("batch", size, "it takes 1 to " + std::to_string(LiveSets::kMaxBatch));
    }
    for (const UpsertItem& item : items) {
        HOTCOUNT_TRY(check_version(sets, item.version.has_value()));
    }
    Batch batch;
    batch.elements.reserve(items.size());
    for (std::size_t i = 0; i < items.size(); ++i) {
        auto element = to_element(sets, items[i]);
        if (element) {
            batch.elements.push_back(std::move(*element));
        } else {
            batch.refused.emplace(i, std::move(element).error());
        }
    }
    return batch;
}

Result<std::string> check_rank(const LiveSetsBackend& sets, std::string_view key,
                               std::string_view member) {
    HOTCOUNT_TRY_ASSIGN(std::string name, full(sets, key));
    HOTCOUNT_TRY(zset::check_member(member));
    return name;
}

Result<std::string> check_top(const LiveSetsBackend& sets, std::string_view key, std::int64_t n) {
    if (n < 0) {
        return bad_value("n", n, "it takes 0 or more");
    }
    return full(sets, key);
}

struct Names {
    std::string key;
    std::string companion;
};

Result<void> check_ttl(Duration ttl) {
    // Redis keeps TTLs in milliseconds: a shorter one would be 0.
    if (ttl >= std::chrono::milliseconds{1}) return {};
    return bad_option("ttl", "must be 0.001 seconds or more");
}

Result<Names> check_create(const LiveSetsBackend& sets, std::string_view key, Duration ttl,
                           std::span<const ScoredMember> members) {
    HOTCOUNT_TRY_ASSIGN(std::string name, full(sets, key));
    HOTCOUNT_TRY(check_ttl(ttl));
    if (members.empty() || members.size() > LiveSets::kMaxCreated) {
        return bad_option("members", "has " + std::to_string(members.size()) +
                                         " elements; it takes 1 to " +
                                         std::to_string(LiveSets::kMaxCreated));
    }
    for (const auto& [member, score] : members) {
        HOTCOUNT_TRY(zset::check_member(member));
        HOTCOUNT_TRY(zset::check_score(score));
    }
    auto companion = zset::companion_key(name);
    return Names{std::move(name), companion ? std::move(*companion) : ""};
}

Result<std::string> to_pattern(const LiveSetsBackend& sets, std::string_view match) {
    if (match.empty() || match.size() > kMaxKeyBytes) {
        return bad_option("match", "takes a pattern of 1 to 1000 bytes");
    }
    return zset::escape_pattern(sets.before_key()).append(match);
}

SweepReport without_prefix(SweepReport report, std::size_t size) {
    for (std::string& key : report.keys) key.erase(0, size);
    return report;
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
    return method == UpsertMethod::script ? "script" : "ttl_gate";
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

LiveSets::LiveSets(std::shared_ptr<LiveSetsBackend> backend) : backend_(std::move(backend)) {}
LiveSets::~LiveSets() = default;

const LiveSetsOptions& LiveSets::options() const { return backend_->options(); }

Result<std::shared_ptr<Rebuild>> LiveSets::rebuild(std::string_view key, Duration ttl,
                                                   Duration lease) {
    if (options().method != UpsertMethod::script) {
        return make_error(ErrorCode::config, "rebuild needs method 'script'; upserts of method '" +
                                                 std::string{to_string(options().method)} +
                                                 "' do not reach a build, and would be lost");
    }
    HOTCOUNT_TRY_ASSIGN(std::string name, full(*backend_, key));
    HOTCOUNT_TRY(check_ttl(ttl));
    if (lease < std::chrono::milliseconds{100} || lease > std::chrono::hours{1}) {
        return bad_option("lease", "takes 0.1 to 3600 seconds");
    }
    HOTCOUNT_TRY_ASSIGN(std::string companion, zset::companion_key(name));
    return std::make_shared<Rebuild>(backend_, std::move(name), std::move(companion), ttl, lease);
}

void LiveSets::upsert_async(std::string_view key, std::string_view member, double score,
                            std::optional<std::int64_t> version, Completion<Upsert> done,
                            AsyncCall call) {
    auto element = to_element(*backend_, {key, member, score, version});
    if (!element) return done(std::move(element).error());
    backend_->upsert_one(std::move(*element), call, std::move(done));
}

void LiveSets::upsert_many_async(std::span<const UpsertItem> items, std::size_t batch,
                                 Completion<std::vector<Result<Upsert>>> done, AsyncCall call) {
    auto checked = to_batch(*backend_, items, batch);
    if (!checked) return done(std::move(checked).error());
    const auto kept = std::make_shared<Batch>(std::move(*checked));
    backend_->upsert(std::move(kept->elements), batch, call,
                     [kept, done = std::move(done)](Result<Upserts> answers) {
                         if (!answers) return done(std::move(answers).error());
                         done(kept->merge(std::move(*answers)));
                     });
}

void LiveSets::remove_async(std::string_view key, std::string_view member,
                            std::optional<std::int64_t> version, Completion<Upsert> done,
                            AsyncCall call) {
    auto which = to_element(*backend_, {key, member, 0, version});
    if (!which) return done(std::move(which).error());
    backend_->remove(*which, call, std::move(done));
}

void LiveSets::top_async(std::string_view key, std::int64_t n,
                         Completion<std::vector<ScoredMember>> done, AsyncCall call) {
    auto name = check_top(*backend_, key, n);
    if (!name) return done(std::move(name).error());
    if (n == 0) return done(Members{});
    backend_->range(*name, 0, n - 1, call, std::move(done));
}

void LiveSets::range_async(std::string_view key, std::int64_t start, std::int64_t stop,
                           Completion<std::vector<ScoredMember>> done, AsyncCall call) {
    auto name = full(*backend_, key);
    if (!name) return done(std::move(name).error());
    backend_->range(*name, start, stop, call, std::move(done));
}

void LiveSets::rank_async(std::string_view key, std::string_view member,
                          Completion<std::optional<std::int64_t>> done, AsyncCall call) {
    auto name = check_rank(*backend_, key, member);
    if (!name) return done(std::move(name).error());
    backend_->rank(*name, member, call, std::move(done));
}

void LiveSets::create_async(std::string_view key, Duration ttl,
                            std::span<const ScoredMember> members, Completion<void> done,
                            AsyncCall call) {
    auto names = check_create(*backend_, key, ttl, members);
    if (!names) return done(std::move(names).error());
    backend_->create(names->key, names->companion, ttl, members, call, std::move(done));
}

void LiveSets::sweep_async(std::string_view match, bool dry_run, Completion<SweepReport> done,
                           AsyncCall call) {
    auto pattern = to_pattern(*backend_, match);
    if (!pattern) return done(std::move(pattern).error());
    backend_->sweep(*pattern, dry_run, call,
                    [size = backend_->before_key().size(),
                     done = std::move(done)](Result<SweepReport>&& report) {
                        if (!report) return done(std::move(report).error());
                        done(without_prefix(std::move(*report), size));
                    });
}

// -- the calls that block -------------------------------------------------------------------------

Result<Upsert> LiveSets::upsert(std::string_view key, std::string_view member, double score,
                                std::optional<std::int64_t> version, Timeout timeout) {
    return wait_for<Upsert>([&](Completion<Upsert> done) {
        upsert_async(key, member, score, version, std::move(done), backend_->waiting(timeout));
    });
}

Result<std::vector<Result<Upsert>>> LiveSets::upsert_many(std::span<const UpsertItem> items,
                                                          std::size_t batch, Timeout timeout) {
    return wait_for<Upserts>([&](Completion<Upserts> done) {
        upsert_many_async(items, batch, std::move(done), backend_->waiting(timeout));
    });
}

Result<Upsert> LiveSets::remove(std::string_view key, std::string_view member,
                                std::optional<std::int64_t> version, Timeout timeout) {
    return wait_for<Upsert>([&](Completion<Upsert> done) {
        remove_async(key, member, version, std::move(done), backend_->waiting(timeout));
    });
}

Result<std::vector<ScoredMember>> LiveSets::top(std::string_view key, std::int64_t n,
                                                Timeout timeout) {
    return wait_for<Members>([&](Completion<Members> done) {
        top_async(key, n, std::move(done), backend_->waiting(timeout));
    });
}

Result<std::vector<ScoredMember>> LiveSets::range(std::string_view key, std::int64_t start,
                                                  std::int64_t stop, Timeout timeout) {
    return wait_for<Members>([&](Completion<Members> done) {
        range_async(key, start, stop, std::move(done), backend_->waiting(timeout));
    });
}

Result<std::optional<std::int64_t>> LiveSets::rank(std::string_view key, std::string_view member,
                                                   Timeout timeout) {
    return wait_for<Rank>([&](Completion<Rank> done) {
        rank_async(key, member, std::move(done), backend_->waiting(timeout));
    });
}

Result<void> LiveSets::create(std::string_view key, Duration ttl,
                              std::span<const ScoredMember> members, Timeout timeout) {
    return wait_for<void>([&](Completion<void> done) {
        create_async(key, ttl, members, std::move(done), backend_->waiting(timeout));
    });
}

Result<SweepReport> LiveSets::sweep(std::string_view match, bool dry_run, Timeout timeout) {
    return wait_for<SweepReport>([&](Completion<SweepReport> done) {
        sweep_async(match, dry_run, std::move(done), backend_->waiting(timeout));
    });
}

}  // namespace hotcount
