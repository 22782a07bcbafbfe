#include "idle_target.hpp"

#include "load/strategy.hpp"

namespace hotcount::loadtest {
namespace {

class IdleTarget final : public Target, private Driver {
  public:
    Driver& driver() override { return *this; }
    Contract contract() const override {
        return {kNothing, "nothing has happened", "everything", false, false};
    }
    std::string place() const override { return "nothing"; }
    UnvoteValue unvote() const override { return UnvoteValue::add_minus_one; }
    TargetStats stats() const override { return {}; }
    Result<AuditResult> audit(const Ledger& /*ledger*/) override { return AuditResult{}; }

  private:
    Answer apply(const Operation& /*operation*/) override { return {}; }
};

}  // namespace

std::unique_ptr<Target> make_idle_target() { return std::make_unique<IdleTarget>(); }

}  // namespace hotcount::loadtest
