#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/period_counter.hpp>

#include "backend.hpp"
#include "period_place.hpp"

namespace hotcount {
namespace {

constexpr std::chrono::seconds kMostKept = std::chrono::days{36'525};

Result<void> check_options(const PeriodCounterOptions& options) {
    if (options.prefix.size() > kMaxKeyBytes) {
        return bad_option("prefix", "is longer than 1000 bytes");
    }
    if (options.zone->name().empty() || options.zone->name().size() > kMaxKeyBytes) {
        return bad_option("tz", "has a name that is not 1 to 1000 bytes long");
    }
    const std::int64_t most = kMostKept / longest(options.period);
    if (options.keep < 1 || options.keep > most) {
        return bad_value("keep", options.keep,
                         "it takes 1 to " + std::to_string(most) + " periods of a " +
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
    prefix_ = full_key("", options_.prefix, to_string(options_.period)) + ":" +
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
                 PeriodWindow{span.begins, span.ends, calendar_.later(span, options_.keep), false}};
}

Error PeriodCounter::not_added(bool gone, const std::string& label) const {
    const std::string where = "at is in the " + std::string{to_string(options_.period)} + " " +
                              label + " of " + printable(options_.zone->name());
    if (gone) {
        return make_error(ErrorCode::config, where + ", which is not kept any more (keep is " +
                                                 std::to_string(options_.keep) +
                                                 "); nothing was added");
    }
    return make_error(ErrorCode::config, where + ", more than 100 years ahead; nothing was added");
}

// -- each call, over any route ---------------------------------------------------------------

void PeriodCounter::start_add(std::string_view key, std::int64_t n, std::optional<Instant> at,
                              const Route& route, Deadline deadline,
                              Completion<std::int64_t> done) {
    if (!at) {
        return ask_present(std::string{key}, n, backend_->guess_time(), route, deadline,
                           std::move(done));
    }
    auto place = this->place(key, *at, "at");
    if (!place) return done(std::move(place).error());
    backend_->in_period(place->name, n, place->window, route,
                        [self = shared_from_this(), label = place->label,
                         done = std::move(done)](Result<PeriodAnswer> answer) {
                            using Kind = PeriodAnswer::Kind;
                            if (!answer) return done(std::move(answer).error());
                            if (answer->kind == Kind::done) return done(answer->value);
                            done(self->not_added(answer->kind == Kind::gone, label));
                        });
}

void PeriodCounter::start_get(std::string_view key, std::optional<Instant> at, const Route& route,
                              Deadline deadline, Completion<std::int64_t> done) {
    if (!at) {
        return ask_present(std::string{key}, std::nullopt, backend_->guess_time(), route, deadline,
                           std::move(done));
    }
    auto place = this->place(key, *at, "at");
    if (!place) return done(std::move(place).error());
    backend_->get(place->name, route, std::move(done));
}

// Asks about the present until the store's time is in the period asked about: usually once, and
// twice when the clocks disagree or the period has just ended.
void PeriodCounter::ask_present(std::string key, std::optional<std::int64_t> n, Instant present,
                                const Route& route, Deadline deadline,
                                Completion<std::int64_t> done) {
    auto place = this->place(key, present, "the store's time");
    if (!place) return done(std::move(place).error());
    place->window.present = true;
    backend_->in_period(
        place->name, n, place->window, route,
        [self = shared_from_this(), key = std::move(key), n, route, deadline,
         done = std::move(done)](Result<PeriodAnswer> answer) {
            if (!answer) return done(std::move(answer).error());
            if (answer->kind == PeriodAnswer::Kind::done) return done(answer->value);
            if (!deadline.passed()) {
                return self->ask_present(key, n, answer->store_time, route, deadline, done);
            }
            done(make_error(ErrorCode::deadline,
                            "the deadline passed before the store was met in a period that it was "
                            "in; nothing was applied (key " +
                                printable(key) + ")"));
        });
}

void PeriodCounter::start_series(std::string_view key, Instant start, Instant end,
                                 const Route& route, Completion<std::vector<PeriodCount>> done) {
    if (auto fits = check_key(key); !fits) return done(fits.error());
    if (!Calendar::takes(start)) {
        return done(bad_option("start", "is outside of the years 2 to 9799"));
    }
    if (!Calendar::takes(end)) {
        return done(bad_option("end", "is outside of the years 2 to 9799"));
    }
    if (end < start) return done(bad_option("end", "is before start"));
    std::vector<PeriodCount> counts;
    std::vector<std::string> names;
    for (Instant at = start; at < end;) {
        if (counts.size() == kMaxSeries) {
            return done(bad_option("start", "and end are more than 100000 periods of a " +
                                                std::string{to_string(options_.period)} +
                                                " apart"));
        }
        const Span span = calendar_.span(at);
        counts.push_back({span.begins, 0});
        names.push_back(name(span, key));
        at = span.ends;
    }
    backend_->get_many(std::move(names), route,
                       [counts = std::move(counts),
                        done = std::move(done)](const Result<BatchResult<std::int64_t>>& batch) {
                           if (!batch) return done(batch.error());
                           if (!batch->errors.empty()) return done(batch->errors.begin()->second);
                           std::vector<PeriodCount> filled = counts;
                           for (std::size_t i = 0; i < filled.size(); ++i) {
                               filled[i].count = batch->values[i];
                           }
                           done(std::move(filled));
                       });
}

// -- calls that are waited for --------------------------------------------------------------------

Result<std::int64_t> PeriodCounter::add(std::string_view key, std::int64_t n,
                                        std::optional<Instant> at, Timeout timeout) {
    return wait_for<std::int64_t>([&](Completion<std::int64_t> done) {
        start_add(key, n, at, backend_->waiting(timeout), Deadline::after(backend_->limit(timeout)),
                  std::move(done));
    });
}

Result<std::int64_t> PeriodCounter::get(std::string_view key, std::optional<Instant> at,
                                        Timeout timeout) {
    return wait_for<std::int64_t>([&](Completion<std::int64_t> done) {
        start_get(key, at, backend_->waiting(timeout), Deadline::after(backend_->limit(timeout)),
                  std::move(done));
    });
}

Result<std::vector<PeriodCount>> PeriodCounter::series(std::string_view key, Instant start,
                                                       Instant end, Timeout timeout) {
    using Counts = std::vector<PeriodCount>;
    return wait_for<Counts>([&](Completion<Counts> done) {
        start_series(key, start, end, backend_->waiting(timeout), std::move(done));
    });
}

// -- calls that are not ---------------------------------------------------------------------------

void PeriodCounter::add_async(std::string_view key, std::int64_t n, std::optional<Instant> at,
                              Completion<std::int64_t> done, AsyncCall call) {
    start_add(key, n, at, backend_->route(call), Deadline::after(backend_->limit(call.timeout)),
              std::move(done));
}

void PeriodCounter::get_async(std::string_view key, std::optional<Instant> at,
                              Completion<std::int64_t> done, AsyncCall call) {
    start_get(key, at, backend_->route(call), Deadline::after(backend_->limit(call.timeout)),
              std::move(done));
}

void PeriodCounter::series_async(std::string_view key, Instant start, Instant end,
                                 Completion<std::vector<PeriodCount>> done, AsyncCall call) {
    start_series(key, start, end, backend_->route(call), std::move(done));
}

}  // namespace hotcount
