#include "agent_group.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "clock_offset.hpp"
#include "link.hpp"
#include "load/run_folder.hpp"
#include "load/settings_json.hpp"
#include "messages.hpp"

namespace hotcount::loadtest {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr int kProbes = 16;
// Setting up an agent's target is as slow as here: targets/sql_place.hpp allows two minutes.
constexpr Duration kReadyWithin = seconds{150};
// So long before the start all agents know of it.
constexpr Duration kLead = milliseconds{250};
// Beyond the load and the time limit of a call: what waits in the agent goes to the store, and the rest.
constexpr Duration kEndsWithin = seconds{150};
constexpr Duration kObserveEvery = seconds{1};
constexpr Duration kWatchEvery = milliseconds{50};
// Two machines may have mathematical libraries that differ in the last bit.
constexpr std::int64_t kSameNs = 1000;

std::int64_t in_ns(SteadyTime time) { return nanoseconds{time.time_since_epoch()}.count(); }

}  // namespace

/// What the threads of all agents wait for. Guarded by its mutex but for `stop`.
struct AgentGroup::Shared {
    std::mutex mutex{};
    std::condition_variable_any changed{};
    std::atomic<bool> stop{false};  ///< The load is to end before its time.
    bool begun{false};              ///< The rest is set, and the load begins.
    SteadyTime start{};
    LoadSettings load{};
    Ledger* ledger{nullptr};
    std::optional<Planner> planner{};
};

class AgentGroup::Agent {
  public:
    enum class Phase { connecting, ready, ended };

    Agent(std::string address, const TrialSettings& settings, UnvoteValue unvote, PlanPart part,
          Shared& shared)
        : shared_(shared),
          trial_(settings),
          unvote_(unvote),
          part_(part),
          thread_([this, address = std::move(address)](const std::stop_token& abandoned) {
              work(address, abandoned);
          }) {}

    // The shared mutex is held for all of these.
    Phase phase() const { return phase_; }
    const std::string& problem() const { return report_.problem; }
    const LoadSample& sample() const { return sample_; }

    // Once the phase is `ended`.
    const AgentReport& report() const { return report_; }
    const LoadResult& part_result() const { return result_; }
    const Processes::Faults& faults() const { return faults_; }
    bool came_back() const { return came_back_; }
    /// What it did not bring back was sent or not: its part of the plan says nothing of that.
    void forget_unsent() {
        Ledger& ledger = *shared_.ledger;
        for (std::uint64_t at = part_.index; at < ledger.planned(); at += part_.of) {
            if (ledger[at].load_status() == Status::planned) ledger[at].store_status(Status::empty);
        }
    }

  private:
    void work(const std::string& address, const std::stop_token& abandoned) {
        {
            const std::lock_guard lock(shared_.mutex);
            report_.address = address;
        }
        auto done = prepare(address, abandoned);
        if (done) {
            enter(Phase::ready);
            done = idle(abandoned);
        }
        if (done) done = drive(abandoned);
        const std::lock_guard lock(shared_.mutex);
        came_back_ = static_cast<bool>(done);
        if (!done) report_.problem = fmt::format("agent {}: {}", address, done.error().message);
        phase_ = Phase::ended;
        shared_.changed.notify_all();
    }

    void enter(Phase phase) {
        const std::lock_guard lock(shared_.mutex);
        phase_ = phase;
        shared_.changed.notify_all();
    }

    Result<void> prepare(const std::string& address, const std::stop_token& abandoned) {
        HOTCOUNT_TRY_ASSIGN(const Address to, parse_address(address));
        HOTCOUNT_TRY_ASSIGN(link_, Link::connect(to, kSilence));
        const json hello = {{"version", own_version()}, {"token", trial_.agents_token}};
        HOTCOUNT_TRY(link_->send(FrameKind::hello, json_text(hello), kSilence));
        HOTCOUNT_TRY_ASSIGN(const auto greeting, link_->receive(kSilence, kMostHello));
        if (!greeting) return make_error(ErrorCode::deadline, "it does not answer");
        HOTCOUNT_TRY_ASSIGN(const json its, read(*greeting, FrameKind::hello));
        if (its.value("version", "") != own_version()) {
            return make_error(ErrorCode::config,
                              fmt::format("it is hotcount-load {}, and this is {}",
                                          its.value("version", "?"), own_version()));
        }
        HOTCOUNT_TRY(link_->send(FrameKind::settings, json_text(order()), kSilence));
        const Deadline deadline = Deadline::after(kReadyWithin);
        HOTCOUNT_TRY(wait_for(FrameKind::ready, deadline, abandoned));
        HOTCOUNT_TRY_ASSIGN(before_, measure());
        return {};
    }

    json order() const {
        TrialSettings mine = trial_;
        mine.agents.clear();
        const auto share_of = [&](std::uint32_t whole) {
            return std::max(static_cast<std::uint32_t>(part_.share_of(whole)), 1U);
        };
        mine.workers = share_of(trial_.workers);
        mine.in_flight = share_of(trial_.in_flight);
        json settings = describe_settings(mine);
        // It has to open them.
        settings["database_url"] = trial_.database_url;
        settings["redis_url"] = trial_.redis_url;
        return {{"settings", std::move(settings)},
                {"unvote", static_cast<int>(unvote_)},
                {"part", part_.index},
                {"parts", part_.of}};
    }

    /// The body of a frame that must be of this kind.
    static Result<json> read(const Frame& frame, FrameKind kind) {
        json body = json::parse(frame.body, nullptr, false);
        if (!body.is_object()) return make_error(ErrorCode::reply, "it answers what is no JSON");
        if (frame.kind == kind) return body;
        if (frame.kind != FrameKind::failed) {
            return make_error(ErrorCode::reply, "it answers what does not belong here");
        }
        return make_error(ErrorCode::unavailable, text_of(body, "message"));
    }

    static std::string text_of(const json& from, const char* name) {
        const auto found = from.find(name);
        return found != from.end() && found->is_string() ? found->get<std::string>() : "";
    }

    /// One round trip. What else comes meanwhile is kept for wait_for().
    Result<void> ping() {
        const std::string number = std::to_string(++pings_);
        const Deadline deadline = Deadline::after(kSilence);
        const std::int64_t sent_ns = steady_now_ns();
        const auto sent = link_->send(FrameKind::ping, number, kSilence);
        for (;;) {
            // One that hung up may have said why before.
            HOTCOUNT_TRY_ASSIGN(auto frame,
                                link_->receive(sent ? deadline.remaining() : Duration{0}));
            const std::int64_t answered_ns = steady_now_ns();
            if (frame && frame->kind == FrameKind::failed) {
                return read(*frame, FrameKind::pong).error();
            }
            if (!frame && !sent) return sent;
            if (!frame) return make_error(ErrorCode::deadline, "it was not heard for 5 s");
            if (frame->kind != FrameKind::pong) {
                if (inbox_) return make_error(ErrorCode::reply, "it answers what nobody asked");
                inbox_ = std::move(frame);
                continue;
            }
            HOTCOUNT_TRY_ASSIGN(const json pong, read(*frame, FrameKind::pong));
            if (text_of(pong, "ping") != number) continue;
            try {
                probe_.add(sent_ns, pong.at("now_ns").get<std::int64_t>(), answered_ns);
                const std::lock_guard lock(shared_.mutex);
                sample_.elapsed_s = pong.value("elapsed_s", 0.0);
                sample_.rate_per_s = pong.value("rate_per_s", 0.0);
                sample_.p99_ns = pong.value("p99_ns", std::int64_t{0});
                sample_.errors = pong.value("errors", std::uint64_t{0});
                sample_.backlog = pong.value("backlog", std::int64_t{0});
            } catch (const json::exception& wrong) {
                return make_error(ErrorCode::reply, wrong.what());
            }
            return {};
        }
    }

    /// The clocks' distance now.
    Result<ClockOffset> measure() {
        probe_ = {};
        for (int probe = 0; probe < kProbes; ++probe) HOTCOUNT_TRY(ping());
        return *probe_.best();
    }

    /// With pings, until a frame of this kind comes.
    Result<json> wait_for(FrameKind kind, std::optional<Deadline> deadline,
                          const std::stop_token& abandoned) {
        bool stop_sent = false;
        for (;;) {
            if (inbox_) return read(*std::exchange(inbox_, std::nullopt), kind);
            if (abandoned.stop_requested()) return make_error(ErrorCode::closed, "it is left");
            if (shared_.stop && !stop_sent) {
                stop_sent = true;
                HOTCOUNT_TRY(link_->send(FrameKind::stop, "", kSilence));
                if (kind == FrameKind::result) {
                    deadline = Deadline::after(trial_.timeout + kEndsWithin);
                }
            }
            if (deadline && deadline->remaining() <= Duration{0}) {
                return make_error(ErrorCode::deadline,
                                  "it lives, and has not done its part in time");
            }
            HOTCOUNT_TRY(ping());
            if (inbox_) continue;
            HOTCOUNT_TRY_ASSIGN(inbox_, link_->receive(kPingEvery));
        }
    }

    /// Until the load begins.
    Result<void> idle(const std::stop_token& abandoned) {
        for (;;) {
            {
                std::unique_lock lock(shared_.mutex);
                shared_.changed.wait_for(lock, abandoned, kPingEvery,
                                         [&] { return shared_.begun; });
                if (shared_.begun) return {};
            }
            if (abandoned.stop_requested()) return make_error(ErrorCode::closed, "it is left");
            HOTCOUNT_TRY(ping());
            if (inbox_) {
                HOTCOUNT_TRY(read(*inbox_, FrameKind::ready));
                return make_error(ErrorCode::reply, "it answers what nobody asked");
            }
        }
    }

    Result<void> drive(const std::stop_token& abandoned) {
        const json start = {{"at_ns", in_ns(shared_.start) + before_.ns}};
        HOTCOUNT_TRY(link_->send(FrameKind::start, json_text(start), kSilence));
        const Duration most = (shared_.start - std::chrono::steady_clock::now()) + trial_.warmup +
                              trial_.duration + trial_.timeout + kEndsWithin;
        HOTCOUNT_TRY_ASSIGN(const json result,
                            wait_for(FrameKind::result, Deadline::after(most), abandoned));
        std::uint64_t records = 0;
        HOTCOUNT_TRY(take(result, records));
        HOTCOUNT_TRY_ASSIGN(const ClockOffset after, measure());
        const ClockOffset offset = between(before_, after);
        {
            const std::lock_guard lock(shared_.mutex);
            report_.offset_ns = offset.ns;
            report_.clock_error_ns = offset.error_ns;
        }
        HOTCOUNT_TRY(link_->send(FrameKind::fetch, "", kSilence));
        return fetch(records, before_.ns - offset.ns);
    }

    Result<void> take(const json& result, std::uint64_t& records) {
        try {
            records = result.at("records").get<std::uint64_t>();
            result_.tally.refused = result.at("refused").get<std::uint64_t>();
            result_.time.own_ns = result.at("own_ns").get<std::int64_t>();
            result_.time.planning_ns = result.at("planning_ns").get<std::int64_t>();
            result_.cpu_s = result.at("cpu_s").get<double>();
            result_.repeated = result.at("repeated").get<std::uint64_t>();
            result_.ledger_full = result.at("ledger_full").get<bool>();
            faults_ = {result.at("kills").get<std::uint64_t>(),
                       result.at("stalls").get<std::uint64_t>()};
            report_.operations = result.at("operations").get<std::uint64_t>();
            std::string error = text_of(result, "error");
            if (result.at("stopped_here").get<bool>()) error = "it was ended there, by a signal";
            if (!error.empty()) {
                result_.error = make_error(ErrorCode::unavailable,
                                           fmt::format("agent {}: {}", report_.address, error));
                // What is left of the load would say little.
                shared_.stop = true;
            }
        } catch (const json::exception& wrong) {
            return make_error(ErrorCode::reply, wrong.what());
        }
        return {};
    }

    Result<void> fetch(std::uint64_t records, std::int64_t shift_ns) {
        SteadyTime pinged = std::chrono::steady_clock::now();
        SteadyTime heard = pinged;
        for (std::uint64_t taken = 0; taken < records;) {
            HOTCOUNT_TRY_ASSIGN(const auto frame, link_->receive(kPingEvery));
            const SteadyTime now = std::chrono::steady_clock::now();
            if (now - pinged >= kPingEvery) {
                pinged = now;
                HOTCOUNT_TRY(link_->send(FrameKind::ping, "0", kSilence));
            }
            if (!frame) {
                if (now - heard < kSilence) continue;
                return make_error(ErrorCode::deadline, "it was not heard for 5 s");
            }
            heard = now;
            if (frame->kind == FrameKind::pong) continue;
            if (frame->kind == FrameKind::failed) return read(*frame, FrameKind::records).error();
            const std::size_t count = frame->body.size() / sizeof(LedgerRecord);
            if (frame->kind != FrameKind::records || count == 0 || taken + count > records ||
                frame->body.size() % sizeof(LedgerRecord) != 0) {
                return make_error(ErrorCode::reply, "it sends no records");
            }
            for (std::size_t at = 0; at < count; ++at) {
                LedgerRecord record;
                std::memcpy(&record, frame->body.data() + at * sizeof(record), sizeof(record));
                HOTCOUNT_TRY(bring(record, (taken + at) * part_.of + part_.index, shift_ns));
            }
            taken += count;
        }
        return {};
    }

    /// Into the ledger of the whole, if the plan has this operation too.
    Result<void> bring(const LedgerRecord& record, std::uint64_t number, std::int64_t shift_ns) {
        const auto strange = [&](std::string_view what) {
            return make_error(ErrorCode::reply, fmt::format("its operation {} {}", number, what));
        };
        Ledger& ledger = *shared_.ledger;
        if (number >= ledger.capacity() || !shared_.planner->reach(number)) {
            if (const auto error = shared_.planner->error()) return *error;
            // In an open loop it may have planned an instant further.
            if (record.load_status() == Status::planned) return {};
            return strange("is beyond the end of the plan");
        }
        LedgerRecord& mine = ledger[number];
        const std::int64_t apart = record.intended_ns - mine.intended_ns;
        if (record.item != mine.item || record.user != mine.user || record.kind != mine.kind ||
            record.value != mine.value || record.resent != mine.resent || apart > kSameNs ||
            apart < -kSameNs) {
            return strange("is another one in the plan of this machine");
        }
        const Status status = record.load_status();
        if (status == Status::planned) return {};
        constexpr std::int64_t kMostNs = std::int64_t{1} << 53;
        const bool ended = status > Status::sent;
        if (status < Status::planned || status > Status::unknown || record.error > kErrorCodes ||
            record.sent_ns < 0 || record.sent_ns > kMostNs || record.done_ns > kMostNs ||
            (ended && record.done_ns < record.sent_ns)) {
            return strange("makes no sense");
        }
        const std::int64_t intended_ns = mine.intended_ns;
        mine = record;
        mine.intended_ns = intended_ns;
        // Nothing was sent before the start; what seems so is the clocks' error.
        mine.sent_ns = std::max<std::int64_t>(record.sent_ns + shift_ns, 0);
        if (ended) mine.done_ns = std::max(record.done_ns + shift_ns, mine.sent_ns);
        return {};
    }

    Shared& shared_;
    const TrialSettings trial_;
    const UnvoteValue unvote_;
    const PlanPart part_;
    // Its own thread's.
    std::unique_ptr<Link> link_{};
    std::optional<Frame> inbox_{};
    std::uint64_t pings_{0};
    ClockProbe probe_{};
    ClockOffset before_{};
    // Guarded by the shared mutex, until it has ended.
    Phase phase_{Phase::connecting};
    bool came_back_{false};
    AgentReport report_{};
    LoadSample sample_{};
    LoadResult result_{};
    Processes::Faults faults_{};
    std::jthread thread_;  // Last: it ends before what it uses.
};

AgentGroup::AgentGroup(const std::atomic<bool>& interrupt)
    : interrupt_(interrupt), shared_(std::make_unique<Shared>()) {}

AgentGroup::~AgentGroup() = default;

Result<std::unique_ptr<AgentGroup>> AgentGroup::connect(const TrialSettings& settings,
                                                        UnvoteValue unvote,
                                                        const std::atomic<bool>& interrupt) {
    std::unique_ptr<AgentGroup> group{new AgentGroup(interrupt)};
    Shared& shared = *group->shared_;
    PlanPart part{0, static_cast<std::uint32_t>(settings.agents.size())};
    for (const std::string& address : settings.agents) {
        group->agents_.push_back(std::make_unique<Agent>(address, settings, unvote, part, shared));
        ++part.index;
    }
    std::unique_lock lock(shared.mutex);
    for (;;) {
        std::size_t ready = 0;
        for (const auto& agent : group->agents_) {
            if (agent->phase() == Agent::Phase::ready) ++ready;
            if (agent->phase() != Agent::Phase::ended) continue;
            return make_error(ErrorCode::unavailable, agent->problem());
        }
        if (ready == group->agents_.size()) return group;
        if (interrupt.load(std::memory_order_relaxed)) {
            return make_error(ErrorCode::unavailable, "interrupted before the agents were ready");
        }
        shared.changed.wait_for(lock, kWatchEvery);
    }
}

SteadyTime AgentGroup::begin(const LoadSettings& load, Ledger& ledger) {
    Shared& shared = *shared_;
    const bool open = load.arrival != Arrival::closed;
    shared.load = load;
    shared.ledger = &ledger;
    shared.planner.emplace(ledger, load.traffic,
                           Schedule(load.arrival, load.rate_per_s, load.traffic.seed, load.profile),
                           open ? (load.warmup + load.duration).count() : INT64_MAX, load.unvote);
    // Agents make their parts as they go; a schedule is whole here, for what nobody sends.
    if (open) shared.planner->reach(ledger.capacity());
    const std::lock_guard lock(shared.mutex);
    shared.start = std::chrono::steady_clock::now() + kLead;
    shared.begun = true;
    ledger.set_started_ns(in_ns(shared.start));
    shared.changed.notify_all();
    return shared.start;
}

GroupResult AgentGroup::watch(const LoadObserver& observe) {
    Shared& shared = *shared_;
    const Duration load_time = shared.load.warmup + shared.load.duration;
    std::unique_lock lock(shared.mutex);
    std::optional<SteadyTime> stopped_at;
    SteadyTime observed = shared.start;
    for (;;) {
        bool ended = true;
        for (const auto& agent : agents_) {
            ended = ended && agent->phase() == Agent::Phase::ended;
            if (!agent->problem().empty()) shared.stop = true;
        }
        if (interrupt_.load(std::memory_order_relaxed)) shared.stop = true;
        if (shared.planner->error()) shared.stop = true;
        const SteadyTime now = std::chrono::steady_clock::now();
        if (shared.stop && !stopped_at) stopped_at = now;
        if (ended) break;
        if (observe && now - observed >= kObserveEvery && now - shared.start < load_time) {
            observed = now;
            LoadSample whole{};
            whole.elapsed_s = std::chrono::duration<double>(now - shared.start).count();
            whole.total_s = std::chrono::duration<double>(load_time).count();
            for (const auto& agent : agents_) {
                const LoadSample& sample = agent->sample();
                whole.rate_per_s += sample.rate_per_s;
                whole.p99_ns = std::max(whole.p99_ns, sample.p99_ns);
                whole.errors += sample.errors;
                whole.backlog += sample.backlog;
            }
            lock.unlock();
            observe(whole);
            lock.lock();
        }
        shared.changed.wait_for(lock, kWatchEvery);
    }
    lock.unlock();

    GroupResult result;
    std::vector<LoadResult> parts;
    for (const auto& agent : agents_) {
        result.agents.push_back(agent->report());
        result.faults.kills += agent->faults().kills;
        result.faults.stalls += agent->faults().stalls;
        if (!agent->came_back()) {
            agent->forget_unsent();
            continue;
        }
        parts.push_back(agent->part_result());
        result.clock_error_ns = std::max(result.clock_error_ns, agent->report().clock_error_ns);
    }
    shared.ledger->set_clock_error_ns(result.clock_error_ns);
    result.load = merge_parts(shared.load, *shared.ledger, parts,
                              interrupt_.load(std::memory_order_relaxed), stopped_at);
    if (!result.load.error) result.load.error = shared.planner->error();
    for (const AgentReport& agent : result.agents) {
        if (agent.problem.empty() || result.load.error) continue;
        result.load.error = make_error(ErrorCode::unavailable, agent.problem);
    }
    return result;
}

}  // namespace hotcount::loadtest
