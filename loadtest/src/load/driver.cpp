#include "driver.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstring>
#include <iterator>
#include <limits>
#include <string_view>
#include <variant>

#include "callers.hpp"
#include "pacer.hpp"
#include "words.hpp"

namespace hotcount::loadtest {
namespace {

template <class T>
Answer answer_from(const Result<T>& result) {
    if (result.ok()) return {};
    const ErrorCode code = result.error().code;
    return {nothing_applied(code) ? Outcome::failed : Outcome::unknown, code};
}

Answer answer_of(const Result<Upsert>& done) {
    Answer answer = answer_from(done);
    if (done) {
        answer.refused = *done != Upsert::applied;
        answer.returned = static_cast<std::int64_t>(*done);
    }
    return answer;
}

Answer answer_of(const Result<Count>& count) {
    Answer answer = answer_from(count);
    if (!count) return answer;
    answer.tell(count->value);
    if (count->exact) answer.said |= said::kExact;
    return answer;
}

Answer answer_of(const Result<Cast>& cast) {
    Answer answer = answer_from(cast);
    if (cast && !cast->pending) {
        answer.tell_cast(cast->previous, cast->value, cast->changed, cast->counted);
    }
    return answer;
}

/// "item:123" or "user:123", without an allocation.
class Name {
  public:
    Name(std::string_view prefix, std::int64_t number) {
        std::memcpy(text_.data(), prefix.data(), prefix.size());
        const auto end =
            std::to_chars(text_.data() + prefix.size(), text_.data() + text_.size(), number);
        size_ = static_cast<std::size_t>(end.ptr - text_.data());
    }
    std::string_view view() const { return {text_.data(), size_}; }

  private:
    std::array<char, 32> text_;
    std::size_t size_;
};

Name item_name(std::int64_t item) { return {"item:", item}; }

std::int64_t amount_of(const Operation& operation) {
    return operation.kind == OperationKind::vote ? 1 : -1;
}

Ballot ballot_of(const Operation& operation) {
    const std::int64_t value = operation.kind == OperationKind::vote ? 1 : 0;
    return {sql::Id{operation.item}, sql::Id{operation.user}, value, {}};
}

}  // namespace

Answer answer_of(const Result<std::int64_t>& number) {
    Answer answer = answer_from(number);
    if (number) answer.tell(*number);
    return answer;
}

Answer answer_of(const Result<bool>& admitted) {
    Answer answer = answer_from(admitted);
    if (admitted) {
        answer.refused = !*admitted;
        answer.returned = *admitted ? 1 : 0;
    }
    return answer;
}

std::string_view to_string(Outcome outcome) {
    return word_of(outcome, {"ok", "failed", "unknown"});
}

void Answer::tell_cast(std::int64_t previous, std::int64_t value, bool changed, bool counted) {
    said |= said::kCast;
    if (changed) said |= said::kChanged;
    if (counted) said |= said::kCounted;
    returned = previous;
    // No vote of this load is beyond 32 bits: what a driver makes up stays wrong.
    now = static_cast<std::int32_t>(std::clamp<std::int64_t>(
        value, std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()));
}

std::vector<Answer> Driver::apply_many(std::span<const Operation> operations) {
    std::vector<Answer> answers;
    answers.reserve(operations.size());
    for (const Operation& operation : operations) answers.push_back(apply(operation));
    return answers;
}

Answer VotesDriver::apply(const Operation& operation) {
    switch (operation.kind) {
        case OperationKind::read:
            return answer_of(votes_->count(sql::Id{operation.item}, Consistency::cached, timeout_));
        case OperationKind::vote:
        case OperationKind::unvote:
            break;
    }
    return answer_of(votes_->cast(ballot_of(operation), timeout_));
}

void VotesDriver::start(const Operation& operation, Done done) {
    const auto answer = [done = std::move(done)](const auto& result) { done(answer_of(result)); };
    if (operation.kind == OperationKind::read) {
        votes_->count_async(sql::Id{operation.item}, answer, timeout_);
    } else {
        votes_->cast_async(ballot_of(operation), answer, timeout_);
    }
}

namespace {

/// `read(key)` and `add(key, amount)` give the answers.
template <class Read, class Add>
class KeyDriver final : public Driver {
  public:
    KeyDriver(Read read, Add add) : read_(std::move(read)), add_(std::move(add)) {}
    Answer apply(const Operation& operation) override {
        const Name key = item_name(operation.item);
        if (operation.kind == OperationKind::read) return read_(key.view());
        return add_(key.view(), amount_of(operation));
    }

  private:
    Read read_;
    Add add_;
};

template <class Read, class Add>
std::unique_ptr<Driver> key_driver(Read read, Add add) {
    return std::make_unique<KeyDriver<Read, Add>>(std::move(read), std::move(add));
}

}  // namespace

/// The count or value under a key.
template <class Counts>
static auto get_of(const std::shared_ptr<Counts>& counts, Timeout timeout) {
    return [=](std::string_view key) { return answer_of(counts->get(key, timeout)); };
}

std::unique_ptr<Driver> make_driver(std::shared_ptr<Counter> counter, Timeout timeout) {
    return key_driver(get_of(counter, timeout), [=](std::string_view key, std::int64_t n) {
        return answer_of(counter->add(key, n, timeout));
    });
}

std::unique_ptr<Driver> make_driver(std::shared_ptr<RetryingCounter> retrying,
                                    std::shared_ptr<Counter> counter, Timeout timeout) {
    return key_driver(get_of(counter, timeout), [=](std::string_view key, std::int64_t n) {
        const auto added = retrying->add(key, n, timeout);
        Answer answer = answer_from(added);
        if (!added) return answer;
        if (const auto* const value = std::get_if<std::int64_t>(&*added)) answer.tell(*value);
        return answer;
    });
}

std::unique_ptr<Driver> make_driver(std::shared_ptr<SlottedCounter> counter, Timeout timeout) {
    return key_driver(get_of(counter, timeout), [=](std::string_view key, std::int64_t n) {
        return answer_from(counter->add(key, n, {}, {}, timeout));
    });
}

std::unique_ptr<Driver> make_driver(std::shared_ptr<WriteBehindCounter> views, Ack ack,
                                    Timeout timeout) {
    return key_driver(get_of(views, timeout), [=](std::string_view key, std::int64_t n) {
        return answer_from(views->add(key, n, ack, timeout));
    });
}

Answer LimiterDriver::apply(const Operation& operation) {
    const Name key = item_name(operation.item);
    const auto decision = operation.kind == OperationKind::read
                              ? limiter_->peek(key.view(), timeout_)
                              : limiter_->hit(key.view(), 1, timeout_);
    return answer_of(decision ? Result<bool>{decision->allowed} : decision.error());
}

Answer SetsDriver::apply(const Operation& operation) {
    const Name key = item_name(operation.item);
    if (operation.kind == OperationKind::read) {
        return answer_from(sets_->top(key.view(), 10, timeout_));
    }
    const Name member("user:", operation.user);
    const auto done =
        operation.kind == OperationKind::vote
            ? upsert({key.view(), member.view(), static_cast<double>(operation.value), {}})
            : sets_->remove(key.view(), member.view(), {}, timeout_);
    return answer_of(done);
}

Result<Upsert> SetsDriver::upsert(const UpsertItem& item) {
    return sets_->upsert(item.key, item.member, item.score, item.version, timeout_);
}

Result<std::vector<Result<Upsert>>> SetsDriver::upsert_many(std::span<const UpsertItem> items) {
    return sets_->upsert_many(items, std::max<std::size_t>(items.size(), 1), timeout_);
}

// Upserts travel in one batch. The other operations have no batched form and run one by one.
std::vector<Answer> SetsDriver::apply_many(std::span<const Operation> operations) {
    std::vector<Name> names;  // Item and member of each.
    std::vector<UpsertItem> upserts;
    names.reserve(2 * operations.size());
    for (const Operation& operation : operations) {
        if (operation.kind != OperationKind::vote) continue;
        const Name& key = names.emplace_back(item_name(operation.item));
        const Name& member = names.emplace_back("user:", operation.user);
        upserts.push_back(
            {key.view(), member.view(), static_cast<double>(operation.value), std::nullopt});
    }
    auto done = upsert_many(upserts);
    std::vector<Answer> answers;
    answers.reserve(operations.size());
    for (std::size_t next = 0; const Operation& operation : operations) {
        if (operation.kind != OperationKind::vote) {
            answers.push_back(apply(operation));
        } else {
            answers.push_back(done ? answer_of((*done)[next]) : answer_from(done));
            ++next;
        }
    }
    return answers;
}

std::string item_key(std::int64_t item) { return std::string{item_name(item).view()}; }
std::string member_name(std::int64_t user) { return std::string{Name("user:", user).view()}; }

// -- calls of a batch, and of an open loop without threads -----------------------------------------

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

/// The time that a thread still has to wait. A thread calls one driver at a time.
struct Debt {
    const void* of{nullptr};
    SteadyTime since{};
    double s{0};
    double calls{0};  ///< The calls since the thread last read the clock.
    double look{1};   ///< The number of calls after which it reads the clock again.
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
