#include "session.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "load/callers.hpp"
#include "load/owned_folder.hpp"
#include "load/run_folder.hpp"
#include "load/say.hpp"
#include "load/settings_json.hpp"
#include "messages.hpp"
#include "targets/target.hpp"

namespace hotcount::loadtest {
namespace {

using nlohmann::json;

// After its coordinator has gone, how long the calls under way may take beyond their time limit.
constexpr Duration kLeaving = std::chrono::seconds{5};
// For a coordinator to read why it was refused.
constexpr Duration kLastWords = std::chrono::seconds{1};

/// Takes as long whatever is wrong with it.
bool is_token(std::string_view given, std::string_view token) {
    unsigned char different = given.size() != token.size() ? 1 : 0;
    for (std::size_t at = 0; at < given.size(); ++at) {
        different |=
            static_cast<unsigned char>(given[at] ^ token[token.empty() ? 0 : at % token.size()]);
    }
    return token.empty() || different == 0;
}

/// What comes from the coordinator: pings are answered here, the rest waits for the load's thread.
class Mailbox {
  public:
    Mailbox(Link& link, const std::atomic<bool>& interrupt)
        : link_(link),
          interrupt_(interrupt),
          thread_([this](const std::stop_token& ended) { read(ended); }) {}

    /// The next frame, which must be of this kind.
    Result<std::string> wait(FrameKind kind) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return frame_ || gone_; });
        if (!frame_) return *gone_;
        const Frame frame = *std::exchange(frame_, std::nullopt);
        if (frame.kind == kind) return frame.body;
        return make_error(ErrorCode::reply, "it says what does not belong here");
    }
    /// Ends the load: the coordinator said so, or is gone, or this process is to end.
    const std::atomic<bool>& stop() const { return stop_; }
    bool stopped_here() const { return stopped_here_.load(); }
    void set_timeout(Duration timeout) {
        const std::lock_guard lock(mutex_);
        timeout_ = timeout;
    }
    void observe(const LoadSample& sample) {
        const std::lock_guard lock(mutex_);
        sample_ = {{"elapsed_s", sample.elapsed_s},
                   {"rate_per_s", sample.rate_per_s},
                   {"p99_ns", sample.p99_ns},
                   {"errors", sample.errors},
                   {"backlog", sample.backlog}};
    }
    void wait_until_gone() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return gone_.has_value(); });
    }

  private:
    void read(const std::stop_token& ended) {
        SteadyTime heard = std::chrono::steady_clock::now();
        while (!ended.stop_requested()) {
            if (interrupt_.load(std::memory_order_relaxed) && !stop_.exchange(true)) {
                stopped_here_ = true;
            }
            auto received = link_.receive(kPingEvery);
            const SteadyTime now = std::chrono::steady_clock::now();
            if (!received) return leave(ended, received.error());
            if (!*received) {
                if (now - heard < kSilence) continue;
                return leave(ended, make_error(ErrorCode::deadline, "it was not heard for 5 s"));
            }
            heard = now;
            Frame& frame = **received;
            if (frame.kind == FrameKind::ping) {
                if (auto answered = answer(frame.body); !answered)
                    return leave(ended, answered.error());
            } else if (frame.kind == FrameKind::stop) {
                stop_ = true;
            } else {
                const std::lock_guard lock(mutex_);
                frame_ = std::move(frame);
                changed_.notify_all();
            }
        }
    }

    Result<void> answer(const std::string& ping) {
        const std::int64_t now_ns = steady_now_ns();
        json pong;
        {
            const std::lock_guard lock(mutex_);
            pong = sample_;
        }
        pong["ping"] = ping;
        pong["now_ns"] = now_ns;
        return link_.send(FrameKind::pong,
                          pong.dump(-1, ' ', false, json::error_handler_t::replace), kSilence);
    }

    void leave(const std::stop_token& ended, const Error& why) {
        stop_ = true;
        std::unique_lock lock(mutex_);
        gone_ = why;
        changed_.notify_all();
        // A call that never returns must not keep this process, and with it the agent's only place.
        changed_.wait_for(lock, ended, timeout_ + kLeaving, [] { return false; });
        if (!ended.stop_requested()) _exit(1);
    }

    Link& link_;
    const std::atomic<bool>& interrupt_;
    std::mutex mutex_;
    std::condition_variable_any changed_;
    std::optional<Frame> frame_{};
    std::optional<Error> gone_{};
    json sample_ = json::object();
    Duration timeout_{0};
    std::atomic<bool> stop_{false};
    std::atomic<bool> stopped_here_{false};
    std::jthread thread_;  // Last: it ends before what it uses.
};

/// What the coordinator wants driven here.
struct Order {
    TrialSettings trial{};
    PlanPart part{};
    UnvoteValue unvote{UnvoteValue::set_zero};
};

Error strange(std::string_view what) {
    return make_error(ErrorCode::reply, fmt::format("what it wants makes no sense: {}", what));
}

/// The bounds that the command line has: a slip elsewhere must not fill the memory or the disk here.
Result<void> check(const Order& order) {
    const TrialSettings& trial = order.trial;
    const TrafficSettings& traffic = trial.traffic;
    const auto within = [](auto value, auto least, auto most) {
        return value >= least && value <= most;
    };
    constexpr Duration kLongest = std::chrono::hours{30 * 24};
    const bool open = trial.arrival != Arrival::closed;
    const double shares = traffic.mix.vote + traffic.mix.unvote + traffic.mix.read;
    const bool fits = within(trial.workers, 1U, kMostWorkers) &&
                      within(trial.in_flight, 1U, kMostInFlight) && trial.batch <= kMostBatch &&
                      trial.processes <= kMostProcesses &&
                      within(trial.max_operations, std::uint64_t{1}, kMostOperations) &&
                      within(traffic.items, std::uint64_t{1}, kMostItems) &&
                      within(traffic.users, std::uint64_t{1}, kMostUsers) &&
                      within(traffic.zipf, 0.0, 20.0) && within(traffic.dup, 0.0, 1.0) &&
                      traffic.mix.vote >= 0 && traffic.mix.unvote >= 0 && traffic.mix.read >= 0 &&
                      within(shares, 1e-9, 1e9) && (!open || within(trial.rate_per_s, 1e-9, 1e8)) &&
                      within(trial.warmup, Duration{0}, kLongest) &&
                      within(trial.duration, Duration{1}, kLongest) &&
                      within(trial.timeout, Duration{1}, kLongest) &&
                      within(order.part.of, 1U, kMostAgents) && order.part.index < order.part.of;
    return fits ? Result<void>{} : strange("a number is out of its bounds");
}

Result<Order> read_order(const std::string& body) {
    const json from = json::parse(body, nullptr, false);
    if (!from.is_object()) return strange("it is no JSON");
    try {
        Order order;
        HOTCOUNT_TRY_ASSIGN(order.trial, settings_of(from.at("settings")));
        order.part = {from.at("part").get<std::uint32_t>(), from.at("parts").get<std::uint32_t>()};
        const int unvote = from.at("unvote").get<int>();
        for (const UnvoteValue value :
             {UnvoteValue::set_zero, UnvoteValue::add_minus_one, UnvoteValue::numbered}) {
            if (static_cast<int>(value) == unvote) order.unvote = value;
        }
        HOTCOUNT_TRY(check(order));
        return order;
    } catch (const json::exception& wrong) {
        return strange(wrong.what());
    }
}

json describe(const LoadResult& load, const Processes::Faults& faults, bool stopped_here,
              std::uint64_t records) {
    json result = {{"refused", load.tally.refused},
                   {"own_ns", load.time.own_ns},
                   {"planning_ns", load.time.planning_ns},
                   {"cpu_s", load.cpu_s},
                   {"operations", load.operations},
                   {"repeated", load.repeated},
                   {"ledger_full", load.ledger_full},
                   {"stopped_here", stopped_here},
                   {"kills", faults.kills},
                   {"stalls", faults.stalls},
                   {"records", records}};
    if (load.error) result["error"] = load.error->message;
    return result;
}

Result<void> send_records(Link& link, const Ledger& ledger) {
    const std::uint64_t planned = ledger.planned();
    for (std::uint64_t from = 0; from < planned; from += kMostRecords) {
        const std::uint64_t count = std::min<std::uint64_t>(kMostRecords, planned - from);
        const auto* const bytes = reinterpret_cast<const char*>(&ledger[from]);
        HOTCOUNT_TRY(
            link.send(FrameKind::records, {bytes, count * sizeof(LedgerRecord)}, kSilence));
    }
    return {};
}

Result<void> serve_load(Link& link, const std::atomic<bool>& interrupt) {
    Mailbox mailbox(link, interrupt);
    HOTCOUNT_TRY_ASSIGN(const std::string wanted, mailbox.wait(FrameKind::settings));
    HOTCOUNT_TRY_ASSIGN(const Order order, read_order(wanted));
    const TrialSettings& trial = order.trial;
    HOTCOUNT_TRY_ASSIGN(const std::unique_ptr<Target> target, join_target(trial));
    HOTCOUNT_TRY_ASSIGN(const RunFolder folder, RunFolder::make({}));
    LoadSettings load = load_settings(trial, order.unvote);
    load.part = order.part;
    HOTCOUNT_TRY_ASSIGN(
        const std::unique_ptr<Ledger> ledger,
        Ledger::create(folder.path() / kLedgerFile, ledger_capacity(load, trial.max_operations),
                       trial.traffic.seed));
    HOTCOUNT_TRY_ASSIGN(Callers callers, Callers::start(trial, target->driver()));
    mailbox.set_timeout(trial.timeout);
    HOTCOUNT_TRY(link.send(FrameKind::ready, "{}", kSilence));
    HOTCOUNT_TRY_ASSIGN(const std::string start, mailbox.wait(FrameKind::start));
    const json at = json::parse(start, nullptr, false);
    if (!at.is_object() || !at.contains("at_ns") || !at["at_ns"].is_number_integer()) {
        return strange("it names no time to start at");
    }
    load.start = SteadyTime{std::chrono::nanoseconds{at["at_ns"].get<std::int64_t>()}};
    LoadResult result = run_load(load, callers.driver(), *ledger, mailbox.stop(),
                                 [&](const LoadSample& sample) { mailbox.observe(sample); });
    const Processes::Faults faults = callers.stop();
    if (auto handed = target->hand_over(); !handed && !result.error) result.error = handed.error();
    const json figures = describe(result, faults, mailbox.stopped_here(), ledger->planned());
    HOTCOUNT_TRY(link.send(FrameKind::result,
                           figures.dump(-1, ' ', false, json::error_handler_t::replace), kSilence));
    HOTCOUNT_TRY(mailbox.wait(FrameKind::fetch));
    HOTCOUNT_TRY(send_records(link, *ledger));
    mailbox.wait_until_gone();
    return {};
}

/// The one load of an agent at a time.
bool take_turn(int busy) {
    struct flock whole {};
    whole.l_type = F_WRLCK;
    return fcntl(busy, F_SETLK, &whole) == 0;
}

Result<void> greet(Link& link, const std::string& token, int busy) {
    HOTCOUNT_TRY_ASSIGN(const auto frame, link.receive(kSilence, kMostHello));
    if (!frame || frame->kind != FrameKind::hello) {
        return make_error(ErrorCode::reply, "it does not greet as a coordinator does");
    }
    const json hello = json::parse(frame->body, nullptr, false);
    const auto text = [&](const char* name) {
        const bool there = hello.is_object() && hello.contains(name) && hello[name].is_string();
        return there ? hello[name].get<std::string>() : std::string{};
    };
    if (!is_token(text("token"), token)) {
        return make_error(
            ErrorCode::auth,
            "it wants another token: --token-file names the same secret on both sides");
    }
    if (text("version") != own_version()) {
        return make_error(
            ErrorCode::config,
            fmt::format("it is of another version: the agent is hotcount-load {}", own_version()));
    }
    if (!take_turn(busy)) {
        return make_error(ErrorCode::capacity, "it is busy with another load");
    }
    return link.send(FrameKind::hello, json{{"version", own_version()}}.dump(), kSilence);
}

/// Nothing may leave this process but a frame that says why.
template <class Work>
Result<void> guarded(const Work& work) {
    try {
        return work();
    } catch (const std::exception& thrown) {
        return make_error(ErrorCode::capacity, thrown.what());
    }
}

}  // namespace

void serve_coordinator(Link& link, const std::string& from, const std::string& token, int busy,
                       const std::atomic<bool>& interrupt, std::FILE* log) {
    auto done = guarded([&] { return greet(link, token, busy); });
    if (done) {
        say(log, "hotcount-load agent: a load from {} begins\n", from);
        std::fflush(log);
        done = guarded([&] { return serve_load(link, interrupt); });
        if (done) say(log, "hotcount-load agent: the load from {} has ended\n", from);
    }
    if (done) return;
    say(log, "hotcount-load agent: {}: {}\n", from, done.error().message);
    const json why = {{"message", done.error().message}};
    (void)link.send(FrameKind::failed, why.dump(-1, ' ', false, json::error_handler_t::replace),
                    kSilence);
    // It hangs up when it has read that; what it sent meanwhile must not reset the connection before.
    const Deadline deadline = Deadline::after(kLastWords);
    while (!deadline.passed() && link.receive(deadline.remaining())) {
    }
}

}  // namespace hotcount::loadtest
