#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "checkers/audit.hpp"
#include "driver_session.hpp"
#include "load/run_folder.hpp"
#include "target.hpp"

namespace hotcount::loadtest {
namespace {

// Calls sent before the end of the load may still be answered.
constexpr Duration kLeastDrain = std::chrono::seconds{1};

class ExecTarget final : public Target {
  public:
    static Result<std::unique_ptr<ExecTarget>> open(DriverSettings settings) {
        std::unique_ptr<ExecTarget> target(new ExecTarget(std::move(settings)));
        HOTCOUNT_TRY(target->start());
        if (target->settings_.fresh) HOTCOUNT_TRY(target->refuse_used());
        return target;
    }

    Driver& driver() override { return *session_; }
    Contract contract() const override { return contract_; }
    std::string place() const override { return place_; }
    UnvoteValue unvote() const override { return UnvoteValue::set_zero; }
    TargetStats stats() const override { return {}; }

    /// By the program that carried the load, or if that is gone or does not answer any more, by a new
    /// one.
    Result<AuditResult> audit(const Ledger& ledger) override {
        if (!session_->drain(std::max(kLeastDrain, settings_.timeout))) {
            session_.reset();
            settings_.fresh = false;
            HOTCOUNT_TRY(start());
        }
        const VoteSource source = [this](std::int64_t first, std::int64_t last,
                                         std::vector<VoteRow>& rows,
                                         std::vector<ItemCount>& counts) -> Result<void> {
            HOTCOUNT_TRY_ASSIGN(rows, session_->rows(first, last));
            HOTCOUNT_TRY_ASSIGN(counts, session_->counts(first, last));
            std::sort(rows.begin(), rows.end(), [](const VoteRow& a, const VoteRow& b) {
                return std::tie(a.item, a.user) < std::tie(b.item, b.user);
            });
            std::sort(counts.begin(), counts.end(),
                      [](const ItemCount& a, const ItemCount& b) { return a.item < b.item; });
            // It has one count of each item.
            for (ItemCount& count : counts) count.counted = count.stored;
            return {};
        };
        return audit_votes(ledger, source);
    }

    std::optional<AnswerRules> answer_rules(const Ledger& /*ledger*/) const override {
        AnswerRules rules;
        rules.items = settings_.items;
        if (contract_.exact) rules.reads_within = Duration{0};
        return rules;
    }

  private:
    explicit ExecTarget(DriverSettings settings) : settings_(std::move(settings)) {}

    Result<void> start() {
        HOTCOUNT_TRY_ASSIGN(session_, DriverSession::start(settings_));
        contract_ = session_->contract();
        place_ = session_->place();
        if (place_.empty()) place_ = "a store that the driver does not name";
        return {};
    }

    /// Also finds a program that cannot be audited before it is measured.
    Result<void> refuse_used() {
        HOTCOUNT_TRY_ASSIGN(const auto rows, session_->rows(INT64_MIN, INT64_MAX));
        HOTCOUNT_TRY_ASSIGN(const auto counts, session_->counts(INT64_MIN, INT64_MAX));
        const auto counted = std::find_if(counts.begin(), counts.end(),
                                          [](const ItemCount& count) { return count.stored != 0; });
        if (rows.empty() && counted == counts.end()) return {};
        return make_error(
            ErrorCode::config,
            fmt::format("exec:{}: after its set-up there are {} votes and {} already; the audit "
                        "could not tell them from the run's own",
                        settings_.command, rows.size(),
                        counted == counts.end()
                            ? "no counts"
                            : fmt::format("a count on item {}", counted->item)));
    }

    DriverSettings settings_;
    std::unique_ptr<DriverSession> session_{};
    Contract contract_{};
    std::string place_{};
};

}  // namespace

Result<std::unique_ptr<Target>> make_exec_target(const TrialSettings& settings,
                                                 const Strategy& strategy,
                                                 const std::filesystem::path& folder, bool fresh) {
    DriverSettings driver;
    driver.command = strategy.way;
    std::error_code ignored;
    driver.folder = std::filesystem::absolute(folder, ignored);
    driver.database_url = settings.database_url.empty() ? sqlite_url(driver.folder / kDatabaseFile)
                                                        : settings.database_url;
    driver.items = settings.traffic.items;
    driver.timeout = settings.timeout;
    driver.fresh = fresh;
    HOTCOUNT_TRY_ASSIGN(auto target, ExecTarget::open(std::move(driver)));
    return std::unique_ptr<Target>(std::move(target));
}

}  // namespace hotcount::loadtest
