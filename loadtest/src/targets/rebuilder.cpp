#include "rebuilder.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "load/driver.hpp"
#include "load/pacer.hpp"
#include "load/strategy.hpp"
#include "store_handle.hpp"
#include "store_target.hpp"

namespace hotcount::loadtest {

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

}  // namespace hotcount::loadtest
