#include "votes/tables/outside_triggers.hpp"

#include "dialect.hpp"

namespace hotcount {
namespace {

class SqliteOutsideTriggers final : public OutsideTriggers {
  public:
    Result<FoundTriggers> find(sql::Connection&, const VotesOptions&) const override {
        FoundTriggers found;
        found.refused = "only PostgreSQL has them";
        return found;
    }
    std::string script(const VotesOptions&, const VoteNames&, OutsideWrites,
                       const FoundTriggers&) const override {
        return {};
    }
    std::string_view blind_to(OutsideWrites) const override { return {}; }
};

}  // namespace

const OutsideTriggers& sqlite_outside_triggers() {
    static const SqliteOutsideTriggers kTriggers;
    return kTriggers;
}

}  // namespace hotcount
