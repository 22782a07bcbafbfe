#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/period_counter.hpp>

#include "backend.hpp"

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
                         "it takes 1 to " + std::to_string(most) + " periods of one " +
                             std::string{to_string(options.period)});
    }
    return {};
}

Error never_met(std::string_view key) {
    return make_error(ErrorCode::deadline,
                      "the deadline passed before the store's present period was found; "
                      "nothing was applied (key " +
                          printable(key) + ")");
}

// The longest period, of UTC, that the span consists of.
std::string longest_part_of(const Span& span) {
    for (const Period period : {Period::hour, Period::minute}) {
        const auto rest = [&](Instant at) { return at.time_since_epoch() % longest(period); };
        if (rest(span.begins).count() == 0 && rest(span.ends).count() == 0) {
            return std::string{to_string(period)};
        }
    }
    return "second";
}

CounterOptions backend_options(const PeriodCounterOptions& options) {
    CounterOptions plain;
    plain.prefix = options.prefix;
    return plain;
}

}  // namespace

Error bad_time(std::string_view argument) {
    return bad_option(argument, "is outside of the years 2 to 9799");
}

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
    if (!Calendar::takes(at)) return bad_time(argument);
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

// A batch on its way. An element is left until it has a value or an error.
struct PeriodCounter::Many {
    std::vector<std::string> keys;
    std::optional<std::vector<std::int64_t>> amounts;  // Null: only read.
    bool present;
    std::vector<std::size_t> left;
    BatchResult<std::int64_t> result;
    Completion<BatchResult<std::int64_t>> done;
};

void PeriodCounter::start_many(std::span<const std::string_view> keys,
                               std::optional<std::span<const std::int64_t>> amounts,
                               std::optional<Instant> at, const Route& route, Deadline deadline,
                               Completion<BatchResult<std::int64_t>> done) {
    if (at && !Calendar::takes(*at)) return done(bad_time("at"));
    const auto many =
        std::make_shared<Many>(Many{{keys.begin(), keys.end()}, {}, !at, {}, {}, std::move(done)});
    if (amounts) many->amounts.emplace(amounts->begin(), amounts->end());
    many->result.values.resize(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
        if (auto fits = check_key(keys[i]); !fits) {
            many->result.errors.emplace(i, fits.error());
        } else {
            many->left.push_back(i);
        }
    }
    ask_many(many, at ? *at : backend_->guess_time(), route, deadline);
}

// As ask_present(): elements for which the store's time is in another period are asked again.
void PeriodCounter::ask_many(const std::shared_ptr<Many>& many, Instant at, const Route& route,
                             Deadline deadline) {
    if (!Calendar::takes(at)) return many->done(bad_time("the store's time"));
    const Span span = calendar_.span(at);
    const std::string begin = name(span, "");
    std::vector<std::string> names;
    std::vector<std::int64_t> amounts;
    names.reserve(many->left.size());
    for (const std::size_t i : many->left) {
        names.push_back(begin + many->keys[i]);
        if (many->amounts) amounts.push_back((*many->amounts)[i]);
    }
    if (!many->amounts && !many->present) {
        return backend_->get_many(std::move(names), route,
                                  [many](Result<BatchResult<std::int64_t>> found) {
                                      if (!found) return many->done(std::move(found).error());
                                      for (std::size_t i = 0; i < many->left.size(); ++i) {
                                          many->result.values[many->left[i]] = found->values[i];
                                      }
                                      for (auto& [i, error] : found->errors) {
                                          many->result.errors.emplace(many->left[i], error);
                                      }
                                      many->done(std::move(many->result));
                                  });
    }
    const PeriodWindow window{span.begins, span.ends, calendar_.later(span, options_.keep),
                              many->present};
    backend_->in_period_many(
        std::move(names), std::move(amounts), window, route,
        [self = shared_from_this(), many, label = calendar_.label(span), route,
         deadline](Result<BatchResult<PeriodAnswer>> answers) {
            using Kind = PeriodAnswer::Kind;
            if (!answers) return many->done(std::move(answers).error());
            std::vector<std::size_t> again;
            Instant store_time{};
            for (std::size_t i = 0; i < many->left.size(); ++i) {
                const std::size_t place = many->left[i];
                const PeriodAnswer& answer = answers->values[i];
                if (const auto failed = answers->errors.find(i); failed != answers->errors.end()) {
                    many->result.errors.emplace(place, failed->second);
                } else if (answer.kind == Kind::done) {
                    many->result.values[place] = answer.value;
                } else if (answer.kind != Kind::elsewhere) {
                    many->result.errors.emplace(place,
                                                self->not_added(answer.kind == Kind::gone, label));
                } else if (deadline.passed()) {
                    many->result.errors.emplace(place, never_met(many->keys[place]));
                } else {
                    again.push_back(place);
                    store_time = answer.store_time;
                }
            }
            many->left = std::move(again);
            if (many->left.empty()) return many->done(std::move(many->result));
            self->ask_many(many, store_time, route, deadline);
        });
}

// Asks about the present until the store's time is in the period asked about: usually once, and
// twice when the clocks disagree or the period has just ended.
void PeriodCounter::ask_present(std::string key, std::optional<std::int64_t> n, Instant present,
                                const Route& route, Deadline deadline,
                                Completion<std::int64_t> done) {
    auto place = this->place(key, present, "the store's time");
    if (!place) return done(std::move(place).error());
    place->window.present = true;
    backend_->in_period(place->name, n, place->window, route,
                        [self = shared_from_this(), key = std::move(key), n, route, deadline,
                         done = std::move(done)](Result<PeriodAnswer> answer) {
                            if (!answer) return done(std::move(answer).error());
                            if (answer->kind == PeriodAnswer::Kind::done)
                                return done(answer->value);
                            if (!deadline.passed()) {
                                return self->ask_present(key, n, answer->store_time, route,
                                                         deadline, done);
                            }
                            done(never_met(key));
                        });
}

// The reads of a series: the counter's periods in order, `parts` of them for each period of the
// series.
struct PeriodCounter::Reads {
    std::vector<PeriodCount> counts;
    std::vector<std::size_t> parts;
    std::vector<std::string> names;
};

Result<PeriodCounter::Reads> PeriodCounter::reads_of(std::string_view key, Instant start,
                                                     Instant end, const Calendar& in) const {
    const auto described = [](const Calendar& calendar) {
        return std::string{to_string(calendar.period())} + "s of " +
               printable(calendar.zone().name());
    };
    Reads reads;
    for (Instant at = start; at < end;) {
        const Span whole = in.span(at);
        reads.counts.push_back({whole.begins, 0});
        const std::size_t before = reads.names.size();
        for (Instant inner = whole.begins; inner < whole.ends;) {
            if (reads.names.size() == kMaxSeries) {
                return bad_option("start", "and end are more than 100000 periods of one " +
                                               std::string{to_string(options_.period)} + " apart");
            }
            const Span part = calendar_.span(inner);
            if (part.begins < whole.begins || part.ends > whole.ends) {
                return bad_option(
                    options_.zone->name() == in.zone().name() ? "period" : "tz",
                    "asks for " + described(in) + ", which do not consist of whole " +
                        described(calendar_) + ": the " + std::string{to_string(in.period())} +
                        " " + in.label(whole) + " begins or ends within the " +
                        std::string{to_string(options_.period)} + " " + calendar_.label(part) +
                        ". A counter by the " + longest_part_of(whole) + " has what it needs");
            }
            reads.names.push_back(name(part, key));
            inner = part.ends;
        }
        reads.parts.push_back(reads.names.size() - before);
        at = whole.ends;
    }
    return reads;
}

void PeriodCounter::start_series(std::string_view key, Instant start, Instant end,
                                 const std::optional<Calendar>& in, const Route& route,
                                 Completion<std::vector<PeriodCount>> done) {
    if (auto fits = check_key(key); !fits) return done(fits.error());
    if (!Calendar::takes(start)) return done(bad_time("start"));
    if (!Calendar::takes(end)) return done(bad_time("end"));
    if (end < start) return done(bad_option("end", "is before start"));
    auto reads = reads_of(key, start, end, in ? *in : calendar_);
    if (!reads) return done(std::move(reads).error());
    backend_->get_many(
        std::move(reads->names), route,
        [key = std::string{key}, counts = std::move(reads->counts), parts = std::move(reads->parts),
         done = std::move(done)](const Result<BatchResult<std::int64_t>>& batch) {
            if (!batch) return done(batch.error());
            if (!batch->errors.empty()) return done(batch->errors.begin()->second);
            std::vector<PeriodCount> filled = counts;
            auto value = batch->values.begin();
            for (std::size_t i = 0; i < filled.size(); ++i) {
                for (std::size_t part = 0; part < parts[i]; ++part) {
                    const auto sum = checked_add(filled[i].count, *value++);
                    if (!sum) return done(counter_overflow(key));
                    filled[i].count = *sum;
                }
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

Result<BatchResult<std::int64_t>> PeriodCounter::add_many(std::span<const std::string_view> keys,
                                                          std::span<const std::int64_t> amounts,
                                                          std::optional<Instant> at,
                                                          Timeout timeout) {
    return wait_for<BatchResult<std::int64_t>>([&](Completion<BatchResult<std::int64_t>> done) {
        start_many(keys, amounts, at, backend_->waiting(timeout),
                   Deadline::after(backend_->limit(timeout)), std::move(done));
    });
}

Result<BatchResult<std::int64_t>> PeriodCounter::get_many(std::span<const std::string_view> keys,
                                                          std::optional<Instant> at,
                                                          Timeout timeout) {
    return wait_for<BatchResult<std::int64_t>>([&](Completion<BatchResult<std::int64_t>> done) {
        start_many(keys, {}, at, backend_->waiting(timeout),
                   Deadline::after(backend_->limit(timeout)), std::move(done));
    });
}

Result<std::vector<PeriodCount>> PeriodCounter::series(std::string_view key, Instant start,
                                                       Instant end,
                                                       const std::optional<Calendar>& in,
                                                       Timeout timeout) {
    using Counts = std::vector<PeriodCount>;
    return wait_for<Counts>([&](Completion<Counts> done) {
        start_series(key, start, end, in, backend_->waiting(timeout), std::move(done));
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

void PeriodCounter::add_many_async(std::span<const std::string_view> keys,
                                   std::span<const std::int64_t> amounts, std::optional<Instant> at,
                                   Completion<BatchResult<std::int64_t>> done, AsyncCall call) {
    start_many(keys, amounts, at, backend_->route(call),
               Deadline::after(backend_->limit(call.timeout)), std::move(done));
}

void PeriodCounter::get_many_async(std::span<const std::string_view> keys,
                                   std::optional<Instant> at,
                                   Completion<BatchResult<std::int64_t>> done, AsyncCall call) {
    start_many(keys, {}, at, backend_->route(call), Deadline::after(backend_->limit(call.timeout)),
               std::move(done));
}

void PeriodCounter::series_async(std::string_view key, Instant start, Instant end,
                                 const std::optional<Calendar>& in,
                                 Completion<std::vector<PeriodCount>> done, AsyncCall call) {
    start_series(key, start, end, in, backend_->route(call), std::move(done));
}

}  // namespace hotcount
