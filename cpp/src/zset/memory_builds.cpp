#include <algorithm>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/zset/sorted_set.hpp>

#include "backend.hpp"

namespace hotcount {
namespace {

using memory::Entry;

class MemoryBuilds final : public Builds {
  public:
    explicit MemoryBuilds(std::shared_ptr<memory::Store> store) : store_(std::move(store)) {}

    Result<void> begin(const Build& build, Timeout) override {
        return store_->modify_with(
            build.key, build.companion,
            [&](Entry* entry, Entry& beside, bool fresh) -> Result<void> {
                HOTCOUNT_TRY(check_set(build, entry));
                auto* const versions = beside.as<Versions>(fresh);
                if (versions == nullptr) return no_sorted_set(build.companion);
                if (versions->build(store_->now()) != nullptr) {
                    return lease_lost(build, "was not begun: another builder has the lease");
                }
                const SteadyTime ends = store_->now() + build.lease;
                versions->set_build(std::make_unique<SetBuild>(build.token, ends));
                outlive(beside, ends);
                return {};
            });
    }

    Result<void> add(const Build& build, std::uint64_t chunk, std::span<const BuildMember> members,
                     Timeout) override {
        return store_->modify_both(
            build.key, build.companion, [&](Entry* entry, Entry* beside) -> Result<void> {
                SetBuild* const own = find(build, beside);
                if (own == nullptr) return lost(build);
                HOTCOUNT_TRY(check_set(build, entry));
                const auto* const versions = beside->as<Versions>(false);
                const auto* const set = entry == nullptr ? nullptr : entry->as<SortedSet>();
                for (const BuildMember& each : members) {
                    own->add(each.member, each.score, each.version, set,
                             versions->find(each.member));
                }
                own->chunks = chunk;
                own->lease_ends = store_->now() + build.lease;
                outlive(*beside, own->lease_ends);
                return {};
            });
    }

    Result<std::string> carry(const Build&, const std::string&, Timeout) override {
        return std::string{"0"};  // The companion stays, and the versions of the build are put in.
    }

    Result<void> publish(const Build& build, std::uint64_t chunks, Timeout) override {
        return store_->upsert_with<Versions>(
            build.key, build.companion,
            [&](Entry& entry, bool fresh, Entry& beside) -> Result<void> {
                SetBuild* const own = find(build, &beside);
                if (own == nullptr || own->chunks != chunks) return lost(build);
                auto* const set = entry.as<SortedSet>(fresh);
                if (set == nullptr) return no_sorted_set(build.key);
                auto* const versions = beside.as<Versions>(false);
                own->visit_versions([&](const std::string& member, std::int64_t version) {
                    const auto known = versions->find(member);
                    if (!known || *known < version) versions->put(member, version);
                });
                *set = std::move(own->set);
                entry.expires_at = store_->now() + build.ttl;
                outlive(beside, *entry.expires_at);
                versions->set_build(nullptr);
                return {};
            });
    }

    Result<void> abandon(const Build& build, Timeout) override {
        return store_->modify_both(build.key, build.companion,
                                   [&](Entry*, Entry* beside) -> Result<void> {
                                       if (find(build, beside) != nullptr) {
                                           beside->as<Versions>(false)->set_build(nullptr);
                                       }
                                       return {};
                                   });
    }

  private:
    static Error no_sorted_set(const std::string& key) {
        return make_error(ErrorCode::wrong_type,
                          "the key " + printable(key) + " holds something that is no sorted set")
            .about(&ErrorFacts::key, key);
    }
    static Result<void> check_set(const Build& build, Entry* entry) {
        if (entry == nullptr || entry->as<SortedSet>() != nullptr) return {};
        return no_sorted_set(build.key);
    }
    static Error lost(const Build& build) {
        return lease_lost(build, "has lost its lease: it has passed, or another builder has it");
    }
    // The build of this token, if its lease lasts.
    SetBuild* find(const Build& build, Entry* beside) const {
        auto* const versions = beside == nullptr ? nullptr : beside->as<Versions>(false);
        SetBuild* const found = versions == nullptr ? nullptr : versions->build(store_->now());
        return found != nullptr && found->token == build.token ? found : nullptr;
    }
    void outlive(Entry& companion, SteadyTime set_ends) const {
        const SteadyTime end = set_ends + kVersionsStay;
        companion.expires_at = std::max(companion.expires_at.value_or(end), end);
    }

    const std::shared_ptr<memory::Store> store_;
};

}  // namespace

std::shared_ptr<Builds> make_memory_builds(std::shared_ptr<memory::Store> store) {
    return std::make_shared<MemoryBuilds>(std::move(store));
}

}  // namespace hotcount
