// The last sentences of a comparison: who was fastest, by how much, and whether anything was lost.
//
// Pure functions; they may be called from any thread.
#pragma once

#include <cstddef>
#include <string>

#include "compare.hpp"

namespace hotcount::loadtest {

/// Of the first load that was compared: who was fastest, and by how much. Of several databases, on
/// each.
std::string fastest_sentences(const Comparison& comparison);

/// Was anything lost? `all` is what the audits of `audited` of so many runs found.
std::string lost_sentence(const Comparison& comparison, std::size_t audited, std::size_t runs,
                          const AuditResult& all);

}  // namespace hotcount::loadtest
