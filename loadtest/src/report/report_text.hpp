// The tables for people. Each function returns the whole text.
#pragma once

#include <string>
#include <vector>

#include "compare.hpp"
#include "trial.hpp"

namespace hotcount::loadtest {

std::string run_text(const TrialResult& trial);
std::string compare_text(const Comparison& comparison);
std::string audit_text(const std::vector<FolderAudit>& audits);

}  // namespace hotcount::loadtest
