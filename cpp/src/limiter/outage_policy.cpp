// The backend of a limiter with a policy for outages (LimiterOptions::on_error): the store's own
// backend, and the policy that answers in its place while the store is unreachable.
#include <algorithm>
#include <hotcount/detail/base/interrupt.hpp>
#include <limits>
#include <utility>

#include "limiter/algorithm.hpp"
#include "limiter/outage.hpp"
#include "limiter/wrapped_backend.hpp"

namespace hotcount {

// The longest time after its deadline at which a call ends, unless its process or loop stalled.
constexpr Duration kPunctual = std::chrono::milliseconds{100};

// The state that calls share with the limiter, because they may outlive it.
struct OutageAnswers {
    OutagePolicy policy;
    std::shared_ptr<Outages> outages;
    std::shared_ptr<redis::Client> client;
    std::vector<Rate> rates;
    std::unique_ptr<LimiterBackend> local;  // Null but for OutagePolicy::local.

    Result<Outcome> decide(const std::string& key, std::int64_t cost, Take take) const {
        if (take == Take::ahead) take = Take::all;
        // No store admits a cost above the limit, so none need be asked.
        if (take != Take::what_fits && cost > least().burst) return above_limit(cost);
        Outcome outcome{};
        switch (policy) {
            case OutagePolicy::local: {
                HOTCOUNT_TRY_ASSIGN(outcome, local->run_now(key, {HitRequest{cost, take}}, {}));
                outcome.instead = Reason::local;
                return outcome;
            }
            case OutagePolicy::closed:
                outcome.instead = Reason::closed;
                outcome.retry_after_us = outcome.reset_after_us =
                    std::chrono::ceil<std::chrono::microseconds>(outages->of_key(key).next_probe())
                        .count();
                break;
            case OutagePolicy::open:
            case OutagePolicy::raise:  // It has no such backend.
                outcome.instead = Reason::open;
                outcome.allowed = true;
                outcome.retry_after_us = 0;
                outcome.taken = take == Take::what_fits ? std::min(cost, least().burst) : cost;
                outcome.remaining = least().burst - (take == Take::nothing ? 0 : outcome.taken);
        }
        outcome.rate = static_cast<std::uint8_t>(std::ranges::min_element(rates, {}, &Rate::burst) -
                                                 rates.begin());
        return outcome;
    }

    /// A call that asks the store: its server, its phase and start, and its timeout.
    struct Asking {
        Outage* outage;
        std::uint64_t phase;
        Timeout timeout;
        SteadyTime at{std::chrono::steady_clock::now()};
    };
    Asking begin(const std::string& key, Timeout timeout) const {
        Outage& outage = outages->of_key(key);
        return {&outage, outage.phase(), timeout};
    }

    /// Answers in the store's place if it is away; sends a probe if one is due.
    std::optional<Result<Outcome>> decide_if_away(const Asking& asking, redis::Channel& channel,
                                                  const std::string& key, std::int64_t cost,
                                                  Take take) const {
        if (!Outage::is_away(asking.phase)) return std::nullopt;
        probe(asking, channel, key);
        return decide(key, cost, take);
    }

    /// Whether a call has failed so that the policy answers it. Such a failure begins an outage,
    /// unless it is_doubtful(). A call that Ctrl-C has ended is no failure of the store.
    template <class T>
    bool takes_over(const Asking& asking, const std::string& key, const Result<T>& result) const {
        if (result) {
            asking.outage->answered();
            return false;
        }
        const Error& error = result.error();
        if (!is_outage(error.code) || interrupted()) return false;
        const Duration patience = client->options().timeout;
        if (!is_doubtful(asking, error.code, patience) || asking.outage->doubted_for(patience)) {
            outages->begin(*asking.outage, asking.phase, error, key);
        }
        return true;
    }

    void probe(const Asking& asking, redis::Channel& channel, const std::string& key) const {
        if (!asking.outage->takes_probe()) return;
        // A write that changes nothing, whatever the key holds: servers that are demoted or full
        // refuse it as they would refuse a hit, and in a cluster it asks the node of this key.
        const std::string_view command[] = {"SETRANGE", key, "0", ""};
        const Duration longest = std::min<Duration>(client->options().timeout, Outage::kProbeEvery);
        channel.submit(redis::Request::command(command), Deadline::after(longest),
                       [keep = outages, asking](const Result<redis::Reply>& reply) {
                           if (reply || !is_outage(reply.error().code)) {
                               asking.outage->end(asking.phase);
                           }
                       });
    }

  private:
    // Two timeouts are no sign of an outage: that of a call with less than nine tenths of the
    // store's timeout, and that of a call that ended more than kPunctual late, because this process
    // stalled.
    static bool is_doubtful(const Asking& asking, ErrorCode code, Duration patience) {
        if (code != ErrorCode::deadline && code != ErrorCode::outcome_unknown) return false;
        const Duration wanted = asking.timeout.value_or(patience);
        return wanted < patience - patience / 10 ||
               std::chrono::steady_clock::now() - asking.at > wanted + kPunctual;
    }

    const Rate& least() const { return *std::ranges::min_element(rates, {}, &Rate::burst); }

    Outcome above_limit(std::int64_t cost) const {
        Outcome outcome{};
        outcome.remaining = least().burst;
        for (std::size_t i = rates.size(); i-- > 0;) {
            if (cost <= rates[i].burst) continue;
            outcome.rate = static_cast<std::uint8_t>(i);
            outcome.violated |= static_cast<std::uint8_t>(1U << i);
        }
        return outcome;
    }
};

namespace {

// The outcomes of the limiters' policies for the hits of one hit_all().
Result<std::vector<Outcome>> decide_together(std::span<const JointHit> hits) {
    std::vector<Outcome> outcomes(hits.size());
    std::vector<JointHit> local;
    std::vector<std::size_t> places;
    bool refused = false;
    for (std::size_t i = 0; i < hits.size(); ++i) {
        const JointHit& hit = hits[i];
        const OutageAnswers& answers = *hit.backend->stand_in();
        if (answers.local) {
            local.push_back({answers.local.get(), hit.key, hit.cost, hit.is_shadow});
            places.push_back(i);
            continue;
        }
        HOTCOUNT_TRY_ASSIGN(outcomes[i], answers.decide(hit.key, hit.cost, Take::all));
        refused = refused || !(outcomes[i].allowed || hit.is_shadow);
    }
    if (local.empty()) return outcomes;
    Result<std::vector<Outcome>> counted{std::vector<Outcome>{}};
    if (refused) {
        for (const JointHit& hit : local) {
            HOTCOUNT_TRY_ASSIGN(
                const Outcome looked,
                hit.backend->run_now(hit.key, {HitRequest{hit.cost, Take::nothing}}, {}));
            counted->push_back(looked);
        }
    } else {
        // In memory: it has called back when it returns.
        local.front().backend->hit_together(
            local, {}, [&](Result<std::vector<Outcome>> found) { counted = std::move(found); });
    }
    if (!counted) return counted;
    for (std::size_t i = 0; i < places.size(); ++i) {
        outcomes[places[i]] = (*counted)[i];
        outcomes[places[i]].instead = Reason::local;
    }
    return outcomes;
}

// The timeout of the commit in the background that ends a reservation of unknown outcome.
constexpr std::chrono::seconds kFollows{10};

class PolicyBackend final : public WrappedBackend {
  public:
    PolicyBackend(std::unique_ptr<LimiterBackend> store,
                  std::shared_ptr<const OutageAnswers> answers)
        : WrappedBackend(std::move(store)), answers_(std::move(answers)) {}

    void run(const std::string& key, const LimitRequest& request, const AsyncCall& call,
             Completion<Outcome> done) override {
        if (const HitRequest* const hit = request.hit()) {
            return ask(key, hit->cost, hit->take, call, std::move(done),
                       [&](Completion<Outcome> answered) {
                           backend_->run(key, request, call, std::move(answered));
                       });
        }
        if (const auto* const held = std::get_if<ReserveRequest>(&request.call)) {
            return reserve(key, *held, call, std::move(done));
        }
        // Calls that set or show a state are no decisions: no policy can answer them. In memory a
        // reset has completed when it returns.
        if (request.resets() && answers_->local) {
            answers_->local->run(key, request, {}, [](const Result<Outcome>&) {});
        }
        backend_->run(key, request, call, std::move(done));
    }

    void hit_many(std::vector<std::string> keys, std::vector<std::int64_t> costs,
                  const AsyncCall& call, Completion<std::vector<Result<Outcome>>> done) override {
        // On a cluster, a policy answers only the keys of primaries that are away.
        struct Asked {
            std::size_t place;
            std::string key;
            std::int64_t cost;
            OutageAnswers::Asking asking;
        };
        std::vector<Result<Outcome>> outcomes(keys.size(), Outcome{});
        const auto asked = std::make_shared<std::vector<Asked>>();
        std::vector<std::string> asked_keys;
        std::vector<std::int64_t> asked_costs;
        for (std::size_t i = 0; i < keys.size(); ++i) {
            const OutageAnswers::Asking asking = answers_->begin(keys[i], call.timeout);
            if (auto instead =
                    answers_->decide_if_away(asking, channel(call), keys[i], costs[i], Take::all)) {
                outcomes[i] = std::move(*instead);
                continue;
            }
            asked_keys.push_back(keys[i]);
            asked_costs.push_back(costs[i]);
            asked->push_back({i, std::move(keys[i]), costs[i], asking});
        }
        if (asked->empty()) return done(std::move(outcomes));
        backend_->hit_many(
            std::move(asked_keys), std::move(asked_costs), call,
            [answers = answers_, asked, outcomes = std::move(outcomes),
             done = std::move(done)](Result<std::vector<Result<Outcome>>> found) mutable {
                if (!found) return done(std::move(found));
                for (std::size_t i = 0; i < asked->size(); ++i) {
                    const Asked& one = (*asked)[i];
                    outcomes[one.place] = answers->takes_over(one.asking, one.key, (*found)[i])
                                              ? answers->decide(one.key, one.cost, Take::all)
                                              : std::move((*found)[i]);
                }
                done(std::move(outcomes));
            });
    }

    const OutageAnswers* stand_in() const override { return answers_.get(); }

    // Called when each hit's limiter has a policy.
    void hit_together(std::vector<JointHit> hits, const AsyncCall& call,
                      Completion<std::vector<Outcome>> done) override {
        // The store refuses keys of several slots; each of them is then decided by itself.
        const std::string& first = hits.front().key;
        if (!std::ranges::all_of(hits, [&](const JointHit& hit) {
                return answers_->outages->in_one_step(first, hit.key);
            })) {
            return backend_->hit_together(std::move(hits), call, std::move(done));
        }
        const OutageAnswers::Asking asking = answers_->begin(first, call.timeout);
        if (Outage::is_away(asking.phase)) {
            answers_->probe(asking, channel(call), first);
            return done(decide_together(hits));
        }
        backend_->hit_together(hits, call,
                               [answers = answers_, asking, hits,
                                done = std::move(done)](Result<std::vector<Outcome>> outcomes) {
                                   if (!answers->takes_over(asking, hits.front().key, outcomes)) {
                                       return done(std::move(outcomes));
                                   }
                                   done(decide_together(hits));
                               });
    }

  private:
    // A reservation that a policy admits is stored nowhere.
    void reserve(const std::string& key, const ReserveRequest& held, const AsyncCall& call,
                 Completion<Outcome> done) {
        ask(key, held.n, Take::all, call, std::move(done), [&](Completion<Outcome> answered) {
            // This commit is sent when the server answers again, perhaps after the call's timeout.
            const AsyncCall later{is_of_loop(call) ? call.channel : nullptr, kFollows, nullptr};
            backend_->run(
                key, {held}, call,
                [store = backend_, key, id = std::string{held.id}, later,
                 answered = std::move(answered)](Result<Outcome> reserved) {
                    // The policy answers in its place, so no caller would end a
                    // reservation that the store has made.
                    if (!reserved && reserved.error().code == ErrorCode::outcome_unknown) {
                        store->run(key, {CommitRequest{id, 0}}, later,
                                   [](const Result<Outcome>&) {});
                    }
                    answered(std::move(reserved));
                });
        });
    }

    // Starts a call that takes `cost`, unless the policy answers it.
    template <class Start>
    void ask(const std::string& key, std::int64_t cost, Take take, const AsyncCall& call,
             Completion<Outcome> done, const Start& start) {
        const OutageAnswers::Asking asking = answers_->begin(key, call.timeout);
        // A probe is not waited for, although the call is.
        redis::Channel& asked = channel(call);
        if (auto instead = answers_->decide_if_away(asking, asked, key, cost, take)) {
            return done(std::move(*instead));
        }
        start([answers = answers_, asking, key, cost, take,
               done = std::move(done)](Result<Outcome> outcome) {
            if (!answers->takes_over(asking, key, outcome)) return done(std::move(outcome));
            done(answers->decide(key, cost, take));
        });
    }
    // The calls of a loop need the loop's own connection, so their probes use it.
    bool is_of_loop(const AsyncCall& call) const {
        return call.channel != nullptr && call.channel != &answers_->client->waiting();
    }
    redis::Channel& channel(const AsyncCall& call) const {
        return is_of_loop(call) ? *call.channel : answers_->client->without_waiting();
    }
    const std::shared_ptr<const OutageAnswers> answers_;
};

}  // namespace

Result<void> refund_local(const LimiterBackend& backend, const std::string& key, std::int64_t n) {
    const OutageAnswers* const answers = backend.stand_in();
    if (answers == nullptr || !answers->local) return {};
    const auto left = answers->local->run_now(key, {RefundRequest{n}}, {});
    return left ? Result<void>{} : left.error();
}

std::optional<OutageEvent> next_outage_event(const LimiterBackend& backend) {
    const OutageAnswers* const answers = backend.stand_in();
    return answers == nullptr ? std::nullopt : answers->outages->next_event();
}

std::string_view to_string(OutagePolicy policy) {
    switch (policy) {
        case OutagePolicy::raise:
            return "raise";
        case OutagePolicy::open:
            return "open";
        case OutagePolicy::closed:
            return "closed";
        case OutagePolicy::local:
            return "local";
    }
    return "";
}

Result<std::unique_ptr<LimiterBackend>> with_outage_policy(
    std::unique_ptr<LimiterBackend> backend, const std::shared_ptr<redis::Client>& client,
    const LimiterOptions& options) {
    if (options.on_error == OutagePolicy::raise) return backend;
    HOTCOUNT_TRY_ASSIGN(auto outages, Outages::of(client));
    auto answers = std::make_shared<OutageAnswers>();
    if (options.on_error == OutagePolicy::local) {
        HOTCOUNT_TRY_ASSIGN(
            answers->local,
            find_algorithm(options.algorithm).over_memory(outages->local(), options));
    }
    answers->policy = options.on_error;
    answers->outages = std::move(outages);
    answers->client = client;
    answers->rates = options.rates;
    return std::unique_ptr<LimiterBackend>{
        std::make_unique<PolicyBackend>(std::move(backend), std::move(answers))};
}

}  // namespace hotcount
