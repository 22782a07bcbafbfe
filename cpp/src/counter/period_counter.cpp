#include <hotcount/base/check.hpp>
#include <hotcount/base/codec.hpp>
#include <hotcount/counter/period_counter.hpp>

#include "backend.hpp"

namespace hotcount {
namespace {

constexpr std::chrono::seconds kMostKept = std::chrono::days{36'525};

Result<void> check_options(const PeriodCounterOptions& options) {
    if (options.prefix.size() > kMaxKeyBytes) {
        return make_error(ErrorCode::config, "prefix is longer than 1000 bytes");
    }
    if (options.zone->name().empty() || options.zone->name().size() > kMaxKeyBytes) {
        return make_error(ErrorCode::config, "tz has a name that is not 1 to 1000 bytes long");
    }
    const std::int64_t most = kMostKept / longest(options.period);
    if (options.keep < 1 || options.keep > most) {
        return make_error(ErrorCode::config, "keep is " + std::to_string(options.keep) +
                                                 "; it takes 1 to " + std::to_string(most) +
                                                 " periods of a " +
                                                 std::string{to_string(options.period)});
    }
    return {};
}

CounterOptions backend_options(const PeriodCounterOptions& options) {
    CounterOptions plain;
    plain.prefix = options.prefix;
    return plain;
}

}  // namespace

// A period's key in full, and what the store is told of the period.
struct PeriodCounter::Place {
    std::string name;
    std::string label;
    Term term;
};

Result<std::shared_ptr<PeriodCounter>> PeriodCounter::make(std::shared_ptr<memory::Store> store,
                                                           PeriodCounterOptions options) {
    HOTCOUNT_TRY(check_options(options));
    auto backend = make_memory_backend(std::move(store), backend_options(options));
    return std::make_shared<PeriodCounter>(std::move(backend), std::move(options));
}

Result<std::shared_ptr<PeriodCounter>> PeriodCounter::make(std::shared_ptr<redis::Client> client,
                                                           PeriodCounterOptions options) {
    HOTCOUNT_TRY(check_options(options));
    auto backend = make_redis_backend(std::move(client), backend_options(options));
    return std::make_shared<PeriodCounter>(std::move(backend), std::move(options));
}

PeriodCounter::PeriodCounter(std::unique_ptr<CounterBackend> backend, PeriodCounterOptions options)
    : backend_(std::move(backend)),
      options_(std::move(options)),
      calendar_(options_.period, options_.zone) {
    prefix_ = options_.prefix + ":" + std::string{to_string(options_.period)} + ":" +
              escape_part(options_.zone->name());
}
PeriodCounter::~PeriodCounter() = default;

std::string PeriodCounter::name(const Span& span, std::string_view key) const {
    return full_key(backend_->store_prefix(), prefix_ + ":" + calendar_.label(span), key);
}

Result<PeriodCounter::Place> PeriodCounter::place(std::string_view key, Instant at,
                                                  std::string_view argument) const {
    HOTCOUNT_TRY(check_key(key));
    if (!Calendar::takes(at)) {
        return make_error(ErrorCode::config,
                          std::string{argument} + " is outside of the years 2 to 9799");
    }
    const Span span = calendar_.span(at);
    return Place{name(span, key), calendar_.label(span),
                 Term{span.begins, span.ends, calendar_.later(span, options_.keep), false}};
}

Result<std::int64_t> PeriodCounter::add(std::string_view key, std::int64_t n,
                                        std::optional<Instant> at, Timeout timeout) {
    if (!at) return at_present(key, n, timeout);
    HOTCOUNT_TRY_ASSIGN(const Place place, this->place(key, *at, "at"));
    HOTCOUNT_TRY_ASSIGN(const TermAnswer answer,
                        backend_->in_term(place.name, n, place.term, timeout));
    if (answer.kind == TermAnswer::Kind::done) return answer.value;
    const std::string where = "at is in the " + std::string{to_string(options_.period)} + " " +
                              place.label + " of " + printable(options_.zone->name());
    if (answer.kind == TermAnswer::Kind::gone) {
        return make_error(ErrorCode::config, where + ", which is not kept any more (keep is " +
                                                 std::to_string(options_.keep) +
                                                 "); nothing was added");
    }
    return make_error(ErrorCode::config, where + ", more than 100 years ahead; nothing was added");
}

Result<std::int64_t> PeriodCounter::get(std::string_view key, std::optional<Instant> at,
                                        Timeout timeout) {
    if (!at) return at_present(key, std::nullopt, timeout);
    HOTCOUNT_TRY_ASSIGN(const Place place, this->place(key, *at, "at"));
    return wait_for<std::int64_t>([&](Completion<std::int64_t> done) {
        backend_->get(place.name, backend_->waiting(timeout), std::move(done));
    });
}

Result<std::int64_t> PeriodCounter::at_present(std::string_view key, std::optional<std::int64_t> n,
                                               Timeout timeout) {
    const Deadline deadline = Deadline::after(backend_->limit(timeout));
    Instant present = backend_->guess_time();
    do {
        HOTCOUNT_TRY_ASSIGN(Place place, this->place(key, present, "the store's time"));
        place.term.present = true;
        HOTCOUNT_TRY_ASSIGN(const TermAnswer answer,
                            backend_->in_term(place.name, n, place.term, deadline.remaining()));
        if (answer.kind == TermAnswer::Kind::done) return answer.value;
        // The clocks disagree, or the period has just ended: once more with what the store says.
        present = answer.store_time;
    } while (!deadline.passed());
    return make_error(ErrorCode::deadline,
                      "the deadline passed before the store was met in a period that it was in; "
                      "nothing was applied (key " +
                          printable(key) + ")");
}

Result<std::vector<PeriodCount>> PeriodCounter::series(std::string_view key, Instant start,
                                                       Instant end, Timeout timeout) {
    HOTCOUNT_TRY(check_key(key));
    if (!Calendar::takes(start)) {
        return make_error(ErrorCode::config, "start is outside of the years 2 to 9799");
    }
    if (!Calendar::takes(end)) {
        return make_error(ErrorCode::config, "end is outside of the years 2 to 9799");
    }
    if (end < start) return make_error(ErrorCode::config, "end is before start");
    std::vector<PeriodCount> counts;
    std::vector<std::string> names;
    for (Instant at = start; at < end;) {
        if (counts.size() == kMaxSeries) {
            return make_error(ErrorCode::config,
                              "start and end are more than 100000 periods of a " +
                                  std::string{to_string(options_.period)} + " apart");
        }
        const Span span = calendar_.span(at);
        counts.push_back({span.begins, 0});
        names.push_back(name(span, key));
        at = span.ends;
    }
    HOTCOUNT_TRY_ASSIGN(
        const Column<std::int64_t> column, wait_for<Column<std::int64_t>>([&](auto done) {
            backend_->get_many(std::move(names), backend_->waiting(timeout), std::move(done));
        }));
    if (!column.errors.empty()) return column.errors.begin()->second;
    for (std::size_t i = 0; i < counts.size(); ++i) counts[i].count = column.values[i];
    return counts;
}

}  // namespace hotcount
