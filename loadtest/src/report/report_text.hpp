// The tables for people. Each function returns the whole text.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "compare.hpp"
#include "trial.hpp"

namespace hotcount::loadtest {

std::string run_text(const TrialResult& trial);
std::string compare_text(const Comparison& comparison);
/// The last sentences of a comparison. Of the first load that was compared, on each of several
/// databases: the fastest strategy, and by how much.
std::string fastest_sentences(const Comparison& comparison);
/// Whether anything was lost. `all` is what the audits of `audited` of so many runs found.
std::string lost_sentence(const Comparison& comparison, std::size_t audited, std::size_t runs,
                          const AuditResult& all);
std::string audit_text(const std::vector<FolderAudit>& audits);

}  // namespace hotcount::loadtest
