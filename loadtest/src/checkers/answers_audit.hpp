// Takes what callers were told out of a ledger and lets read_checker.hpp judge it. Needs nothing but the
// ledger: what the store holds now says nothing of what it said then.
#pragma once

#include "checker.hpp"
#include "load/ledger.hpp"
#include "read_checker.hpp"

namespace hotcount::loadtest {

/// Adds what is found to `result`. Bounded memory but for 8 bytes a call, and the calls on one item.
void audit_answers(const Ledger& ledger, const AnswerRules& rules, AuditResult& result);

}  // namespace hotcount::loadtest
