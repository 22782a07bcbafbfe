// Two folders of runs or comparisons side by side: what differs between them, and what is noise.
//
// Rounds are paired if both are comparisons of the same contenders, in the same drawn order, in as
// many rounds; else their medians are compared. Used from one thread.
#pragma once

#include <filesystem>
#include <hotcount/result.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "statistics/statistics.hpp"

namespace hotcount::loadtest {

/// One folder of the two.
struct DiffSide {
    std::filesystem::path folder{};
    std::string kind{};     ///< run or compare.
    std::string started{};  ///< UTC.
    std::string conclusion{};
};

/// A figure in both folders, by round, and what the second is beside the first.
struct DiffFigure {
    std::vector<double> a{};
    std::vector<double> b{};
    Ratio ratio{};  ///< b to a.
};

/// A strategy that both have.
struct DiffRow {
    std::string part{};      ///< Of the comparison; empty: a run.
    std::string strategy{};  ///< Of two runs both, if they differ: naive, batched.
    bool paired{false};
    bool open{false};    ///< In an open loop the rate is what was asked for, and no finding.
    DiffFigure per_s{};  ///< Acknowledged writes, or reads if nothing is written.
    DiffFigure p50_us{};
    DiffFigure p99_us{};
};

struct Diff {
    DiffSide a{};
    DiffSide b{};
    std::vector<std::string> settings{};  ///< What differs: "closed: workers 64 and 32".
    std::vector<DiffRow> rows{};
    std::vector<std::string> missing{};  ///< Strategies that only one of them has.
    std::size_t needed{0};               ///< Rounds to show a difference.
};

/// An error if one of them has no result, or if they have no strategy in common.
Result<Diff> diff_folders(const std::filesystem::path& a, const std::filesystem::path& b);

std::string diff_text(const Diff& diff);
/// "rows", "settings" ... of `diff --json`.
nlohmann::json diff_figures(const Diff& diff);

}  // namespace hotcount::loadtest
