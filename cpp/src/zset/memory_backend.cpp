#include <algorithm>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/zset/sorted_set.hpp>

#include "backend.hpp"

namespace hotcount {
namespace {

using memory::Entry;

class MemorySets final : public LiveSetsBackend {
  public:
    MemorySets(std::shared_ptr<memory::Store> store, LiveSetsOptions sets_options)
        : LiveSetsBackend(std::move(sets_options), store->options().prefix),
          store_(std::move(store)) {}

    void upsert(std::vector<Element> elements, std::size_t, const AsyncCall&,
                Completion<Upserts> done) override {
        Upserts results;
        results.reserve(elements.size());
        for (const Element& element : elements) results.push_back(put_one(element));
        done(std::move(results));
    }
    void upsert_one(Element element, const AsyncCall&, Completion<Upsert> done) override {
        done(put_one(element));
    }
    void remove(const Element& which, const AsyncCall&, Completion<Upsert> done) override {
        done(take_one(which));
    }
    void range(const std::string& key, std::int64_t start, std::int64_t stop, const AsyncCall&,
               Completion<Members> done) override {
        done(store_->read(key, [&](const Entry* entry) -> Result<Members> {
            Members members;
            if (entry == nullptr) return members;
            const auto* const set = entry->as<SortedSet>();
            if (set == nullptr) return wrong_type(key);
            const auto size = static_cast<std::int64_t>(set->size());
            const std::int64_t first = std::max<std::int64_t>(start < 0 ? start + size : start, 0);
            const std::int64_t last = std::min(stop < 0 ? stop + size : stop, size - 1);
            if (first > last) return members;
            for (const auto& item :
                 set->highest(static_cast<std::size_t>(first), static_cast<std::size_t>(last))) {
                members.push_back({std::string{item.member}, item.score});
            }
            return members;
        }));
    }

    void rank(const std::string& key, std::string_view member, const AsyncCall&,
              Completion<Rank> done) override {
        done(store_->read(key, [&](const Entry* entry) -> Result<Rank> {
            if (entry == nullptr) return Rank{};
            const auto* const set = entry->as<SortedSet>();
            if (set == nullptr) return wrong_type(key);
            const auto place = set->rank(member);
            if (!place) return Rank{};
            return Rank{static_cast<std::int64_t>(*place)};
        }));
    }

    void create(const std::string& key, const std::string& companion, Duration ttl,
                std::span<const ScoredMember> members, const AsyncCall&,
                Completion<void> done) override {
        done(make(key, companion, ttl, members));
    }

    std::shared_ptr<Builds> builds() const override { return make_memory_builds(store_); }
    Deadline deadline(Timeout timeout) const override {
        // A call waits only for another call of the same build.
        return Deadline::after(timeout.value_or(std::chrono::seconds{10}));
    }
    WaitingCalls* waiting_calls() override { return nullptr; }

    void sweep(const std::string& pattern, bool dry_run, const AsyncCall&,
               Completion<SweepReport> done) override {
        SweepReport report;
        store_->erase_if([&](std::string_view key, const Entry& entry) {
            const auto* const set = entry.as<SortedSet>();
            // On a server a set without members is no key.
            if (set == nullptr || set->empty() || !zset::matches(pattern, key)) return false;
            ++report.scanned;
            if (entry.expires_at) return false;
            ++report.found;
            if (report.keys.size() < SweepReport::kMaxKeys) report.keys.emplace_back(key);
            if (!dry_run) ++report.deleted;
            return !dry_run;
        });
        done(std::move(report));
    }

  private:
    static Error wrong_type(const std::string& key) {
        return make_error(ErrorCode::wrong_type,
                          "the key " + printable(key) + " holds something that is no sorted set")
            .about(&ErrorFacts::key, key);
    }

    // The result of an upsert with this gate. A gate below 0 admits every set with a TTL.
    Result<Upsert> state_of(const Entry* entry, const std::string& key, Duration gate) const {
        const bool keeps_empty = options().method == UpsertMethod::script;
        if (entry == nullptr || !(keeps_empty || is_key(entry))) return Upsert::absent;
        if (entry->as<SortedSet>() == nullptr) return wrong_type(key);
        if (!entry->expires_at) return Upsert::no_ttl;
        return *entry->expires_at - store_->now() > gate ? Upsert::applied : Upsert::expiring;
    }

    Result<Upsert> take_one(const Element& which) {
        const auto take_out = [&](Entry& entry, bool keeps_empty) {
            auto* const set = entry.as<SortedSet>(false);
            const bool was_there = set->erase(which.member);
            if (was_there && set->empty() && !(keeps_empty && entry.expires_at)) {
                entry.expires_at = store_->now();
            }
            return was_there;
        };
        if (which.version) {
            return with_companion(which, [&](Entry* entry, Entry* beside) {
                return written(which, std::nullopt, beside, [&] {
                    return with_version(which, Duration{-1}, entry, beside,
                                        [&](Entry& set) { take_out(set, true); });
                });
            });
        }
        return with_companion(which, [&](Entry* entry, Entry* beside) {
            return written(which, std::nullopt, beside, [&]() -> Result<Upsert> {
                if (entry == nullptr) return Upsert::absent;
                if (entry->as<SortedSet>() == nullptr) return wrong_type(which.key);
                const bool keeps_empty =
                    beside != nullptr && options().method == UpsertMethod::script;
                return take_out(*entry, keeps_empty) ? Upsert::applied : Upsert::absent;
            });
        });
    }

    Result<void> make(const std::string& key, const std::string& companion, Duration ttl,
                      std::span<const ScoredMember> members) {
        SortedSet made;
        for (const auto& [member, score] : members) made.put(member, score);
        const auto check = [&](const Entry* entry) -> Result<void> {
            if (entry != nullptr && entry->as<SortedSet>() == nullptr) return wrong_type(key);
            return {};
        };
        HOTCOUNT_TRY(store_->read(key, check));
        // First, so that no set is ever seen without it.
        if (!companion.empty()) {
            HOTCOUNT_TRY(store_->modify_with(
                key, companion, [&](Entry*, Entry& beside, bool fresh) -> Result<void> {
                    if (beside.as<Versions>(fresh) == nullptr) return wrong_type(companion);
                    outlive(beside, store_->now() + ttl);
                    return {};
                }));
        }
        return store_->upsert(key, [&](Entry& entry, bool fresh) -> Result<void> {
            auto* const set = entry.as<SortedSet>(fresh);
            if (set == nullptr) return wrong_type(key);
            *set = std::move(made);
            entry.expires_at = store_->now() + ttl;
            return {};
        });
    }

    Result<Upsert> put_one(const Element& element) {
        const auto put = [&](Entry& entry) {
            entry.as<SortedSet>(false)->put(element.member, element.score);
        };
        if (options().method == UpsertMethod::ttl_gate) return upsert_in_two_steps(element);
        const auto put_plainly = [&](Entry* entry) -> Result<Upsert> {
            HOTCOUNT_TRY_ASSIGN(const Upsert state, state_of(entry, element.key, gate()));
            if (state == Upsert::applied) put(*entry);
            return state;
        };
        if (element.version) {
            return with_companion(element, [&](Entry* entry, Entry* beside) {
                return written(element, element.score, beside,
                               [&] { return with_version(element, gate(), entry, beside, put); });
            });
        }
        // An upsert that sees no build is before it: it began before begin() returned.
        if (!SetBuild::exist()) return store_->modify(element.key, put_plainly);
        return with_companion(element, [&](Entry* entry, Entry* beside) {
            return written(element, element.score, beside, [&] { return put_plainly(entry); });
        });
    }

    // Makes a change of the set, and of its build if there is one, whatever the set answers.
    template <class Change>
    Result<Upsert> written(const Element& which, std::optional<double> score, Entry* beside,
                           const Change& change) {
        auto* const versions = beside == nullptr || options().method != UpsertMethod::script
                                   ? nullptr
                                   : beside->as<Versions>(false);
        SetBuild* const build = versions == nullptr ? nullptr : versions->build(store_->now());
        const auto known = build == nullptr ? std::nullopt : versions->find(which.member);
        Result<Upsert> state = change();
        if (build != nullptr && state) build->write(which.member, score, which.version, known);
        return state;
    }

    // ttl_gate as it is on a server, its hole included: between the steps others may run.
    Result<Upsert> upsert_in_two_steps(const Element& element) {
        HOTCOUNT_TRY_ASSIGN(const Upsert state, store_->read(element.key, [&](const Entry* entry) {
            return state_of(entry, element.key, gate());
        }));
        if (state != Upsert::applied) return state;
        return store_->upsert(element.key, [&](Entry& entry, bool fresh) -> Result<Upsert> {
            // For ZADD a set without members is an absent key.
            if (!is_key(&entry)) entry.expires_at.reset();
            auto* const set = entry.as<SortedSet>(fresh);
            if (set == nullptr) return wrong_type(element.key);
            set->put(element.member, element.score);
            return state;
        });
    }

    // Whether the key would exist on a server: a set without members is no key there. Its companion
    // says that it lives on, but only script asks the companion.
    static bool is_key(const Entry* entry) {
        if (entry == nullptr) return false;
        const auto* const set = entry->as<SortedSet>();
        return set == nullptr || !set->empty();
    }

    template <class Visit>
    Result<Upsert> with_companion(const Element& which, Visit&& visit) {
        if (!which.companion.empty()) {
            return store_->modify_both(which.key, which.companion, visit);
        }
        return store_->modify(which.key, [&](Entry* entry) { return visit(entry, nullptr); });
    }

    template <class Change>
    Result<Upsert> with_version(const Element& which, Duration gate, Entry* entry, Entry* beside,
                                const Change& change) {
        HOTCOUNT_TRY_ASSIGN(const Upsert state, state_of(entry, which.key, gate));
        if (state != Upsert::applied) return state;
        if (beside == nullptr) return Upsert::absent;
        auto* const versions = beside->as<Versions>(false);
        if (versions == nullptr) return wrong_type(which.companion);
        const auto last = versions->find(which.member);
        if (last && *last >= *which.version) return Upsert::stale;
        versions->put(which.member, *which.version);
        outlive(*beside, *entry->expires_at);
        change(*entry);
        return Upsert::applied;
    }

    void outlive(Entry& companion, SteadyTime set_ends) const {
        const SteadyTime end = set_ends + kVersionsStay;
        if (!companion.expires_at || *companion.expires_at < end) companion.expires_at = end;
    }

    std::shared_ptr<memory::Store> store_;
};

}  // namespace

std::unique_ptr<LiveSetsBackend> make_memory_sets(std::shared_ptr<memory::Store> store,
                                                  LiveSetsOptions options) {
    return std::make_unique<MemorySets>(std::move(store), std::move(options));
}

}  // namespace hotcount
