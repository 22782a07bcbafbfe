#include "beside_load.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "load/driver.hpp"
#include "load/pacer.hpp"
#include "load/strategy.hpp"
#include "managed_server.hpp"
#include "store_handle.hpp"
#include "store_target.hpp"

namespace hotcount::loadtest {

namespace {

constexpr Duration kEvery = std::chrono::milliseconds{1};
// Between two looks whether a server was replaced.
constexpr Duration kReplacedLook = std::chrono::milliseconds{2};

}  // namespace

Result<std::unique_ptr<Bystander>> Bystander::start(const TrialSettings& settings) {
    std::unique_ptr<Bystander> bystander{new Bystander};
    HOTCOUNT_TRY_ASSIGN(redis::Options options, redis::parse_options(settings.redis_url));
    options.timeout = settings.timeout;
    HOTCOUNT_TRY_ASSIGN(bystander->redis_, redis::Client::make(std::move(options)));
    HOTCOUNT_TRY(bystander->redis_->ping());
    const SteadyTime from = std::chrono::steady_clock::now() + settings.warmup;
    const SteadyTime until = from + settings.duration;
    bystander->thread_ =
        std::jthread([self = bystander.get(), from, until](const std::stop_token& ended) {
            sharpen_timers();
            constexpr std::string_view kAsk[] = {"EXISTS", "hotcount-load:bystander"};
            for (SteadyTime due = from; due < until && !ended.stop_requested(); due += kEvery) {
                sleep_until(due);
                const SteadyTime sent = std::chrono::steady_clock::now();
                if (!self->redis_->execute(kAsk)) continue;
                const SteadyTime done = std::chrono::steady_clock::now();
                self->times_.record(
                    std::chrono::duration_cast<std::chrono::nanoseconds>(done - sent).count());
                due = std::max(due,
                               done);  // Commands that were due meanwhile are left out.
            }
        });
    return bystander;
}

const Histogram& Bystander::stop() {
    thread_ = {};
    return times_;
}

Result<std::unique_ptr<Rebuilder>> Rebuilder::start(const TrialSettings& settings) {
    HOTCOUNT_TRY_ASSIGN(const Strategy strategy, find_strategy(settings.strategy));
    HOTCOUNT_TRY_ASSIGN(const StoreHandle store, StoreHandle::open(settings, strategy.store));
    if (settings.traffic.items < 2) {
        return make_error(ErrorCode::config, "--rebuild-every needs 2 items or more");
    }
    std::unique_ptr<Rebuilder> rebuilder{new Rebuilder};
    HOTCOUNT_TRY_ASSIGN(rebuilder->sets_, store.make<LiveSets>(LiveSetsOptions{}));
    rebuilder->thread_ = std::jthread(
        [self = rebuilder.get(), life = long_life(settings), every = settings.rebuild_every,
         items = settings.traffic.items](const std::stop_token& ended) {
            std::uint64_t item = 0;
            SteadyTime due = std::chrono::steady_clock::now();
            while (!ended.stop_requested()) {
                do {
                    item = item % items + 1;
                } while (!outlives_load(item));
                ++(self->build(item, life) ? self->builds_.published : self->builds_.failed);
                // Builds that it could not make meanwhile are not made up for.
                due = std::max(due + every, std::chrono::steady_clock::now());
                sleep_until(due);
            }
        });
    return rebuilder;
}

Result<void> Rebuilder::build(std::uint64_t item, Duration life) {
    const std::string key = item_key(static_cast<std::int64_t>(item));
    HOTCOUNT_TRY_ASSIGN(const auto build, sets_->rebuild(key, life));
    HOTCOUNT_TRY(build->begin());
    HOTCOUNT_TRY_ASSIGN(const std::vector<ScoredMember> source, sets_->range(key, 0, -1));
    std::vector<RebuildMember> members;
    members.reserve(source.size());
    for (const auto& [member, score] : source) members.push_back({member, score});
    HOTCOUNT_TRY(build->add_many(members));
    return build->publish();
}

Builds Rebuilder::stop() {
    thread_ = {};
    return builds_;
}

ServerFaults::ServerFaults(const TrialSettings& settings, Managed* redis, Managed* database,
                           SteadyTime start)
    : thread_([this, redis, database, faults = settings.faults,
               from = start + settings.warmup](const std::stop_token& ended) {
          ended_.done = run(faults, redis, database, from, ended);
      }) {}

Result<void> ServerFaults::run(const std::vector<Fault>& faults, Managed* redis, Managed* database,
                               SteadyTime from, const std::stop_token& ended) {
    std::mutex mutex;
    std::condition_variable_any wake;
    std::unique_lock lock(mutex);
    std::vector<Outage>& outages = ended_.outages;
    Managed* struck = nullptr;
    // Another server may take the place of the one that went away last.
    const auto watches = [&] {
        return struck != nullptr && !(outages.back().replaced && outages.back().refused);
    };
    const auto look = [&] {
        if (!watches()) return;
        const auto see = [&](std::optional<SteadyTime>& when, bool holds) {
            if (holds) when = std::chrono::steady_clock::now();
        };
        Outage& last = outages.back();
        if (!last.refused) see(last.refused, struck->refuses());
        if (!last.replaced) see(last.replaced, struck->replaced());
    };
    const auto wait_until = [&](SteadyTime due) {
        while (!ended.stop_requested() && std::chrono::steady_clock::now() < due) {
            look();
            const SteadyTime next = std::chrono::steady_clock::now() + kReplacedLook;
            wake.wait_until(lock, ended, watches() ? std::min(next, due) : due,
                            [] { return false; });
        }
    };
    const auto make = [&](const Fault& fault, Managed& server) -> Result<void> {
        wait_until(from + fault.at);
        if (ended.stop_requested()) {
            return make_error(ErrorCode::config, "the load ended before");
        }
        HOTCOUNT_TRY_ASSIGN(const Managed::Strike strike, server.strike(fault));
        struck = &server;
        outages.push_back({fault, strike.away, {}, {}, {}, strike.copied});
        look();  // After a planned failover, another server has taken over by now.
        wait_until(from + fault.at + fault.lasts);
        auto mended = server.mend(fault);
        look();
        outages.back().back = std::chrono::steady_clock::now();
        if (mended || outages.back().replaced) return mended;
        outages.pop_back();  // It has no end.
        struck = nullptr;
        return mended;
    };
    Result<void> done;
    for (const Fault& fault : faults) {
        Managed* const server = is_of_database(fault.kind) ? database : redis;
        if (server == nullptr) continue;
        done = make(fault, *server);
        if (done) continue;
        done = make_error(done.error().code,
                          fmt::format("{}: {}", format_faults({fault}), done.error().message));
        break;
    }
    // A server that came back too late is replaced nevertheless.
    wait_until(std::chrono::steady_clock::now() + std::chrono::hours{24});
    return done;
}

ServerFaults::Ended ServerFaults::stop() {
    thread_ = {};
    return ended_;
}

Result<BesideLoad> BesideLoad::start(const TrialSettings& settings, Managed* redis,
                                     Managed* database) {
    BesideLoad beside;
    const auto strategy = find_strategy(settings.strategy);
    const bool on_redis = strategy && strategy->store == StoreKind::redis;
    if (settings.bystander && on_redis) {
        HOTCOUNT_TRY_ASSIGN(beside.bystander_, Bystander::start(settings));
    }
    if (settings.rebuild_every > Duration{0}) {
        HOTCOUNT_TRY_ASSIGN(beside.rebuilder_, Rebuilder::start(settings));
    }
    if (!settings.faults.empty()) {
        beside.faults_ = std::make_unique<ServerFaults>(settings, redis, database,
                                                        std::chrono::steady_clock::now());
    }
    return beside;
}

BesideLoad::Found BesideLoad::stop() {
    Found found;
    if (faults_) found.faults = faults_->stop();
    if (rebuilder_) found.builds = rebuilder_->stop();
    if (bystander_) found.bystander_ns = bystander_->stop();
    return found;
}

}  // namespace hotcount::loadtest
