// BoundLimiter, the object behind hotcount.Limiter and hotcount.aio.Limiter, and the conversion of
// decisions.
#pragma once

#include <array>
#include <functional>
#include <hotcount/detail/base/hash.hpp>
#include <hotcount/limiter.hpp>
#include <limits>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "concepts/limiter_arguments.hpp"
#include "native/native_calls.hpp"
#include "native/options.hpp"
#include "native/result.hpp"
#include "native/rows.hpp"

namespace hotcount::python {

/// A decision as a batch holds it: with the columns, and with what its headers need.
struct DecisionRow {
    bool allowed{false};
    std::int64_t limit{0};
    std::int64_t remaining{0};
    std::optional<double> retry_after{};
    double reset_after{0};
    std::string reason{};
    std::string policy{};
    double period{0};
    std::vector<std::string> violated{};
    std::optional<std::int64_t> quota{};
    double retry_column{retry_after.value_or(std::numeric_limits<double>::quiet_NaN())};
};
using Decisions = RowBatch<DecisionRow>;

inline std::optional<double> seconds_of(const std::optional<Duration>& duration) {
    if (!duration) return std::nullopt;
    return to_seconds(*duration);
}

template <>
inline ResultRow<&DecisionRow::allowed, &DecisionRow::limit, &DecisionRow::remaining,
                 &DecisionRow::retry_after, &DecisionRow::reset_after, &DecisionRow::reason,
                 &DecisionRow::policy, &DecisionRow::period, &DecisionRow::violated,
                 &DecisionRow::quota>
    kResultRow<DecisionRow>{"Decision"};
inline const auto& decision_class = kResultRow<DecisionRow>;

using LO = LimiterOptions;
inline constexpr std::array kLimiterOptions{
    OptionRow<LO>{"rate", RateOption::read, RateOption::get, Shown::as_text},
    always_shown(option<&LO::algorithm>()),
    option_or_none<&LO::name>(),
    option<&LO::align>(),
    option<&LO::charge_denied>(),
    option<&LO::shadow>(),
    option<&LO::table>(),
    option<&LO::on_error>(),
    option<&LO::deny_cache>(),
    option<&LO::lease>(),
    option<&LO::op_keep>()};

class BoundLimiter final : public Bound<Limiter> {
  public:
    BoundLimiter(std::shared_ptr<Limiter> limiter, StoreReference reference)
        : Bound(std::move(limiter), std::move(reference), &kTag<BoundLimiter>),
          policy_(To<std::string>::make(core->options().name)) {
        for (const Rate& rate : core->options().rates) {
            known_.push_back({To<std::int64_t>::make(rate.burst), To<Duration>::make(rate.period),
                              To<std::string>::make(rate.str()),
                              To<std::int64_t>::make(rate.limit)});
        }
    }

    /// This limiter at the rates of a call. As many as 1,000 are kept, by the text that said them.
    std::shared_ptr<BoundLimiter> at(const Argument& argument) {
        const auto text = [&]() -> std::string_view {
            if (PyUnicode_Check(argument.value) == 0) return {};
            const std::string_view said = to_bytes(argument.value, argument.name);
            return said.size() <= kLongestText ? said : std::string_view{};
        }();
        if (!text.empty()) {
            if (const auto found = at_rates_.find(text); found != at_rates_.end()) {
                return found->second;
            }
        }
        LimiterOptions options;
        RateOption::read(options, argument);
        std::string canonical;
        for (const Rate& rate : options.rates) canonical += rate.str() + ";";
        std::shared_ptr<BoundLimiter> limiter;
        if (const auto found = at_rates_.find(canonical); found != at_rates_.end()) {
            limiter = found->second;
        } else {
            limiter = std::make_shared<BoundLimiter>(
                unwrap(core->with_rates(std::move(options.rates))), store);
            limiter->warned_ = warned_;
            limiter->decided_ = decided_;
            limiter->calls = calls;
        }
        if (at_rates_.size() + 2 > kMostKept) at_rates_.clear();
        at_rates_.emplace(std::move(canonical), limiter);
        if (!text.empty()) at_rates_.emplace(text, limiter);
        return limiter;
    }

    std::string shown_options() const override {
        return python::shown_options<LimiterOptions, kLimiterOptions>(core->options());
    }

    /// A hit or a reserve: not what only looks, or gives back.
    void count(const Decision& decision) {
        ++(*decided_)[static_cast<std::size_t>(decision.reason)][decision.allowed ? 1 : 0];
    }

    /// Hits and reserves at all rates, by outcome and reason.
    py::object stats() const {
        std::array<std::uint64_t, 2> sums{};
        py::dict reasons;
        for (std::size_t i = 0; i < decided_->size(); ++i) {
            const auto& [refused, admitted] = (*decided_)[i];
            sums[0] += refused;
            sums[1] += admitted;
            if (refused + admitted == 0) continue;
            reasons[name_of(static_cast<Reason>(i))] = refused + admitted;
        }
        py::dict all;
        all["admitted"] = sums[1];
        all["refused"] = sums[0];
        all["reasons"] = reasons;
        return all;
    }

    py::object to_python(const Decision& decision) {
        tell_outage();
        warn_if_untracked(decision);
        const KnownRate& rate = known_[decision.rate];
        return decision_class.make(decision.allowed, rate.limit, decision.remaining,
                                   decision.retry_after, decision.reset_after,
                                   name_of(decision.reason), policy_, rate.period,
                                   violated_by(decision), rate.quota);
    }

    // The cost that a hit with at_most took.
    py::object to_python(std::int64_t taken) {
        tell_outage();
        return To<std::int64_t>::make(taken);
    }

    py::object to_python(const JointDecision& joint) {
        tell_outage();
        count(joint.decision);
        const LimiterOptions& options = joint.limiter->options();
        const Decision& decision = joint.decision;
        const Rate& rate = options.rates[decision.rate];
        py::tuple answered_by(joint.answered_by.size());
        for (std::size_t i = 0; i < joint.answered_by.size(); ++i) {
            answered_by[i] = name_of(joint.answered_by[i]);
        }
        return py::make_tuple(
            decision_class.make(decision.allowed, decision.limit, decision.remaining,
                                decision.retry_after, decision.reset_after,
                                name_of(decision.reason), options.name, Duration{rate.period},
                                joint.violated, rate.limit),
            answered_by);
    }

    py::object to_batch(std::vector<Result<Decision>> decisions, const Refusals& refusals,
                        OnErrors on_errors) {
        tell_outage();
        auto rows = to_rows(std::move(decisions), [this](const Decision& decision) {
            warn_if_untracked(decision);
            count(decision);
            return to_row(decision);
        });
        return python::to_batch(std::move(rows), refusals, on_errors);
    }

  private:
    DecisionRow to_row(const Decision& decision) const {
        DecisionRow row{.allowed = decision.allowed,
                        .limit = decision.limit,
                        .remaining = decision.remaining,
                        .retry_after = seconds_of(decision.retry_after),
                        .reset_after = to_seconds(decision.reset_after),
                        .reason = std::string{to_string(decision.reason)},
                        .policy = core->options().name,
                        .period = to_seconds(core->options().rates[decision.rate].period),
                        .quota = core->options().rates[decision.rate].limit};
        for (std::size_t i = 0; i < known_.size(); ++i) {
            if ((decision.violated >> i & 1U) == 0) continue;
            row.violated.push_back(core->options().rates[i].str());
        }
        if (row.retry_after) row.retry_column = *row.retry_after;
        return row;
    }

    /// The rates that refused, as text.
    py::object violated_by(const Decision& decision) const {
        static PyObject* const kNone = PyTuple_New(0);
        if (decision.violated == 0) return py::reinterpret_borrow<py::object>(kNone);
        py::list texts;
        for (std::size_t i = 0; i < known_.size(); ++i) {
            if ((decision.violated >> i & 1U) != 0) texts.append(known_[i].text);
        }
        return py::tuple(texts);
    }

    // The reasons' names, made once.
    static py::handle name_of(Reason reason) {
        static std::array<PyObject*, static_cast<std::size_t>(Reason::local) + 1> names{};
        PyObject*& name = names[static_cast<std::size_t>(reason)];
        if (name == nullptr) name = To<std::string_view>::make(to_string(reason)).release().ptr();
        return name;
    }

    /// Logs an outage, and its end, once in this process.
    void tell_outage() {
        if (core->options().on_error == OutagePolicy::raise) return;
        const auto event = core->next_outage_event();
        if (!event) return;
        if (event->is_away) {
            log("warning", event->server + " is away: on_error='" +
                               std::string{to_string(core->options().on_error)} +
                               "' answers for limiters. " + event->why);
        } else {
            const auto ms = std::chrono::ceil<std::chrono::milliseconds>(event->duration);
            log("info", event->server + " answers limiters again, after " +
                            std::to_string(ms.count()) + " ms");
        }
    }

    /// Warns with the first hit that was admitted without being counted.
    void warn_if_untracked(const Decision& decision) {
        if (decision.reason != Reason::untracked || *warned_) return;
        *warned_ = true;
        const std::string text =
            core->options().on_error == OutagePolicy::local
                ? store.name() +
                      " is away, and on_error='local' counts as many keys as it can: other keys "
                      "are admitted and not limited"
                : store.name() +
                      " is full: new keys are admitted and not limited. Raise max_keys, or refuse "
                      "them with when_full='refuse'";
        if (PyErr_WarnEx(PyExc_RuntimeWarning, text.c_str(), 1) != 0) throw py::error_already_set();
    }

    // The Python objects that all decisions by one rate share.
    struct KnownRate {
        py::object limit;
        py::object period;
        py::object text;
        py::object quota;
    };
    py::object policy_;
    std::vector<KnownRate> known_{};
    static constexpr std::size_t kReasons = static_cast<std::size_t>(Reason::local) + 1;
    // [reason][allowed]; of this limiter at all rates.
    using Decided = std::array<std::array<std::uint64_t, 2>, kReasons>;
    std::shared_ptr<Decided> decided_{std::make_shared<Decided>()};
    std::shared_ptr<bool> warned_{std::make_shared<bool>(false)};
    static constexpr std::size_t kMostKept = 1000;
    static constexpr std::size_t kLongestText = 200;
    // Callers choose the texts.
    std::unordered_map<std::string, std::shared_ptr<BoundLimiter>, KeyedHash, std::equal_to<>>
        at_rates_{};
};

template <>
struct BoundOf<Limiter> {
    using type = BoundLimiter;
};

/// rate= of a call: the limiter at these rates. None: the one that is called.
struct AtRates {
    std::shared_ptr<BoundLimiter> limiter;
};
template <>
struct From<AtRates> {
    static AtRates read(const Argument& argument, BoundLimiter& called) {
        if (argument.value == Py_None) return {};
        called.check_open();
        return {called.at(argument)};
    }
    static std::tuple<> pass(const AtRates&) { return {}; }
    static const std::shared_ptr<BoundLimiter>& instead(const AtRates& at) { return at.limiter; }
};

}  // namespace hotcount::python
