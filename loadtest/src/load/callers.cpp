#include "callers.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>

#include "pacer.hpp"

namespace hotcount::loadtest {

namespace {

// Far longer than the answers to a batch take to send its operations' successors.
constexpr std::chrono::milliseconds kPatience{20};

}  // namespace

Batches::Batches(Driver& inner, std::size_t batch, std::uint32_t threads)
    : inner_(inner), batch_(batch) {
    for (std::uint32_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

Batches::~Batches() {
    {
        const std::lock_guard lock(mutex_);
        ended_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

void Batches::start(const Operation& operation, Done done) {
    const std::lock_guard lock(mutex_);
    waiting_.emplace_back(operation, std::move(done));
    if (waiting_.size() >= batch_) changed_.notify_one();
}

std::vector<Batches::Waiting> Batches::take() {
    std::unique_lock lock(mutex_);
    while (!ended_) {
        const bool full =
            changed_.wait_for(lock, kPatience, [&] { return ended_ || waiting_.size() >= batch_; });
        if (full || !waiting_.empty()) break;
    }
    const auto count = static_cast<std::ptrdiff_t>(std::min(batch_, waiting_.size()));
    std::vector<Waiting> taken(std::make_move_iterator(waiting_.begin()),
                               std::make_move_iterator(waiting_.begin() + count));
    waiting_.erase(waiting_.begin(), waiting_.begin() + count);
    return taken;
}

void Batches::work() {
    while (true) {
        const std::vector<Waiting> taken = take();
        if (taken.empty()) return;  // It has ended.
        std::vector<Operation> operations;
        operations.reserve(taken.size());
        for (const auto& [operation, done] : taken) operations.push_back(operation);
        const std::vector<Answer> answers = inner_.apply_many(operations);
        for (std::size_t i = 0; i < taken.size(); ++i) taken[i].second(answers[i]);
    }
}

namespace {

using std::chrono::duration;
using std::chrono::steady_clock;

// A wait takes longer than reading the clock, and is far shorter than a round. So is the time between
// two looks at the clock, which costs as much as a short call.
constexpr double kLeastWaitS = 50e-6;
constexpr double kMostUnseen = 256;
// A sleep ends late: what is longer than this may sleep, and its lateness counts as waited.
constexpr double kLeastSleepS = 1e-3;

/// What a thread owes. A thread calls one driver at a time.
struct Debt {
    const void* of{nullptr};
    SteadyTime since{};
    double s{0};
    double calls{0};  ///< Since the last look at the clock ...
    double look{1};   ///< ... which comes after so many.
};
thread_local Debt debt;

}  // namespace

void SlowedDriver::wait() const {
    if (debt.of == this && ++debt.calls < debt.look) return;
    const SteadyTime now = steady_clock::now();
    if (debt.of != this) debt = {this, now, 0, 1, 1};
    const double spent = duration<double>(now - debt.since).count();
    debt.s += owed_per_s_ * spent;
    debt.since = now;
    if (spent > 0) debt.look = std::clamp(debt.calls * kLeastWaitS / spent, 1.0, kMostUnseen);
    debt.calls = 0;
    if (debt.s < kLeastWaitS) return;
    const SteadyTime until =
        now + std::chrono::duration_cast<steady_clock::duration>(duration<double>(debt.s));
    if (debt.s >= kLeastSleepS) sleep_until(until);
    SteadyTime waited = steady_clock::now();
    while (waited < until) waited = steady_clock::now();
    debt.s -= duration<double>(waited - now).count();
    debt.since = waited;
}

Answer SlowedDriver::apply(const Operation& operation) {
    const Answer answer = inner_.apply(operation);
    wait();
    return answer;
}

std::vector<Answer> SlowedDriver::apply_many(std::span<const Operation> operations) {
    std::vector<Answer> answers = inner_.apply_many(operations);
    wait();
    return answers;
}

LoadSettings load_settings(const TrialSettings& settings, UnvoteValue unvote) {
    LoadSettings load;
    load.arrival = settings.arrival;
    load.rate_per_s = settings.rate_per_s;
    load.profile = settings.profile;
    load.workers = settings.workers;
    if (const auto strategy = find_strategy(settings.strategy); strategy && strategy->async) {
        load.in_flight = settings.in_flight;
    }
    if (settings.batch > 0) load.in_flight = settings.workers * settings.batch;
    load.warmup = settings.warmup;
    load.duration = settings.duration;
    load.timeout = settings.timeout;
    load.traffic = settings.traffic;
    load.unvote = unvote;
    return load;
}

Result<Callers> Callers::start(const TrialSettings& settings, Driver& driver) {
    Callers callers(driver);
    if (settings.processes > 0) {
        HOTCOUNT_TRY_ASSIGN(callers.processes_,
                            Processes::start(driver, {settings.processes, settings.workers,
                                                      settings.kill_every, settings.stall}));
        callers.processes_->prepare();
        callers.driver_ = callers.processes_.get();
    }
    if (settings.batch > 0) {
        callers.batches_ =
            std::make_unique<Batches>(*callers.driver_, settings.batch, settings.workers);
        callers.driver_ = callers.batches_.get();
    }
    return callers;
}

Processes::Faults Callers::stop() {
    batches_.reset();
    if (!processes_) return {};
    const Processes::Faults faults = processes_->faults();
    processes_.reset();
    return faults;
}

}  // namespace hotcount::loadtest
