#include "diff.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "load/run_folder.hpp"
#include "report_json.hpp"
#include "table.hpp"

namespace hotcount::loadtest {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::uint64_t kSeed = 1;

/// A strategy of a folder, by round.
struct Rounds {
    std::string part{};
    std::string strategy{};
    json settings{};
    std::vector<std::string> contenders{};  ///< Of the part, in their order.
    std::vector<double> per_s{};
    std::vector<double> p50_us{};
    std::vector<double> p99_us{};
};

struct Folder {
    DiffSide side{};
    std::vector<Rounds> all{};
};

void add_round(Rounds& rounds, const json& result) {
    const bool writes = rounds.settings.at("mix").at("vote").get<double>() > 0;
    const bool open = rounds.settings.at("arrival") != "closed";
    const json& times = result.at(open ? "response_us" : "service_us");
    rounds.per_s.push_back(result.at(writes ? "writes_per_s" : "reads_per_s").get<double>());
    rounds.p50_us.push_back(times.at("p50").get<double>());
    rounds.p99_us.push_back(times.at("p99").get<double>());
}

std::vector<Rounds> rounds_of_run(const json& document) {
    Rounds rounds;
    rounds.settings = document.at("settings");
    rounds.strategy = rounds.settings.at("strategy").get<std::string>();
    add_round(rounds, document.at("result"));
    return {rounds};
}

std::vector<Rounds> rounds_of_comparison(const json& document) {
    std::vector<Rounds> all;
    for (const json& part : document.at("parts")) {
        json strategies = part.at("strategies");
        const json references = part.value("references", json::array());
        strategies.insert(strategies.end(), references.begin(), references.end());
        std::vector<std::string> contenders;
        for (const json& strategy : strategies) {
            contenders.push_back(strategy.at("strategy").get<std::string>());
        }
        for (const json& strategy : strategies) {
            Rounds& rounds = all.emplace_back();
            rounds.part = part.at("name").get<std::string>();
            rounds.strategy = strategy.at("strategy").get<std::string>();
            rounds.settings = part.at("settings");
            rounds.contenders = contenders;
            for (const json& trial : strategy.at("trials")) add_round(rounds, trial.at("result"));
        }
    }
    return all;
}

Result<Folder> read_folder(const fs::path& path) {
    const auto refuse = [&](const std::string& why) {
        return make_error(ErrorCode::config, fmt::format("{}: {}", path.string(), why));
    };
    const bool comparison = fs::exists(path / kCompareFile);
    if (!comparison && !fs::exists(path / kRunFile)) {
        return refuse(
            fmt::format("neither {} nor {} is in it; --out of run or compare makes such "
                        "a folder",
                        kCompareFile, kRunFile));
    }
    HOTCOUNT_TRY_ASSIGN(const json document,
                        read_json(path / (comparison ? kCompareFile : kRunFile)));
    try {
        if (document.at("schema") != kSchema) {
            return refuse(fmt::format("its schema is '{}', this program knows '{}'",
                                      document.at("schema").get<std::string>(), kSchema));
        }
        Folder folder;
        folder.side.folder = path;
        folder.side.kind = document.at("kind").get<std::string>();
        if (!comparison && !document.contains("result")) {
            return refuse("its run has no figures: it was killed, or goes on");
        }
        folder.side.started = document.at("started").get<std::string>();
        folder.side.conclusion = document.at("conclusion").get<std::string>();
        folder.all = comparison ? rounds_of_comparison(document) : rounds_of_run(document);
        return folder;
    } catch (const json::exception& wrong) {
        return refuse(wrong.what());
    }
}

/// Two runs are compared whatever their strategies; else names must agree.
bool same(const Rounds& a, const Rounds& b) {
    if (a.part.empty() && b.part.empty()) return true;
    return a.strategy == b.strategy && (a.part == b.part || a.part.empty() || b.part.empty());
}

bool is_open(const Rounds& rounds) { return rounds.settings.at("arrival") != "closed"; }

bool same_blocks(const Rounds& a, const Rounds& b) {
    return !a.part.empty() && a.contenders == b.contenders && a.per_s.size() == b.per_s.size() &&
           a.settings.at("seed") == b.settings.at("seed");
}

DiffFigure figure_of(const std::vector<double>& a, const std::vector<double>& b, bool paired) {
    DiffFigure figure{a, b, {}};
    figure.ratio = paired ? paired_ratio(b, a, kSeed) : unpaired_ratio(b, a, kSeed);
    return figure;
}

/// What may differ without a word: where a run was, and what it called its keys.
bool is_place(const std::string& name) {
    return name == "database_url" || name == "redis_url" || name == "key_prefix";
}

void add_settings(Diff& diff, const Rounds& a, const Rounds& b) {
    for (const auto& [name, value] : a.settings.items()) {
        if (is_place(name) || !b.settings.contains(name) || b.settings.at(name) == value) continue;
        std::string line = fmt::format("{}{}{} {} and {}", a.part, a.part.empty() ? "" : ": ", name,
                                       json_text(value), json_text(b.settings.at(name)));
        if (std::find(diff.settings.begin(), diff.settings.end(), line) == diff.settings.end()) {
            diff.settings.push_back(std::move(line));
        }
    }
}

constexpr std::array kFigures = {&DiffRow::per_s, &DiffRow::p50_us, &DiffRow::p99_us};

/// The first and last words of a person who asks whether B is any better.
std::string sentence(const Diff& diff) {
    std::vector<std::string> shown;
    std::vector<std::string> same_rate;
    std::vector<std::string> same_p99;
    for (const DiffRow& row : diff.rows) {
        const Ratio& ratio = row.open ? row.p99_us.ratio : row.per_s.ratio;
        if (!ratio.called) {
            (row.open ? same_p99 : same_rate).push_back(row.strategy);
        } else if (row.open) {
            shown.push_back(fmt::format("{} has {} times the p99", row.strategy,
                                        three_digits(ratio.spread.median)));
        } else {
            shown.push_back(fmt::format("{} makes {} times as many a second", row.strategy,
                                        three_digits(ratio.spread.median)));
        }
    }
    std::string text;
    if (!shown.empty()) text += fmt::format("In B {}.\n", fmt::join(shown, ", "));
    for (const auto& [what, names] :
         {std::pair{"the rate", &same_rate}, std::pair{"p99", &same_p99}}) {
        if (names->empty()) continue;
        text +=
            fmt::format("No difference in {} could be shown: {}.\n", what, fmt::join(*names, ", "));
    }
    return text;
}

std::string whole_or_digits(double value) {
    return value >= 1000 ? grouped(value) : three_digits(value);
}

json describe(const DiffFigure& figure) {
    const Ratio& ratio = figure.ratio;
    json result = {{"a", median(figure.a)},
                   {"b", median(figure.b)},
                   {"ratio",
                    {{"median", ratio.spread.median},
                     {"min", ratio.spread.min},
                     {"max", ratio.spread.max},
                     {"interval", nullptr},
                     {"p", ratio.p},
                     {"p_adjusted", ratio.p_adjusted},
                     {"difference", ratio.called}}}};
    if (ratio.interval) result["ratio"]["interval"] = {ratio.interval->low, ratio.interval->high};
    return result;
}

json describe(const DiffSide& side) {
    return {{"folder", side.folder.string()},
            {"kind", side.kind},
            {"started", side.started},
            {"conclusion", side.conclusion}};
}

}  // namespace

Result<Diff> diff_folders(const fs::path& a, const fs::path& b) {
    HOTCOUNT_TRY_ASSIGN(const Folder first, read_folder(a));
    HOTCOUNT_TRY_ASSIGN(const Folder second, read_folder(b));
    Diff diff;
    diff.a = first.side;
    diff.b = second.side;
    std::vector<const Rounds*> met;
    for (const Rounds& of_a : first.all) {
        const auto of_b = std::find_if(second.all.begin(), second.all.end(),
                                       [&](const Rounds& one) { return same(of_a, one); });
        if (of_b == second.all.end()) {
            diff.missing.push_back(of_a.strategy + " in A alone");
            continue;
        }
        met.push_back(&*of_b);
        DiffRow& row = diff.rows.emplace_back();
        row.part = of_a.part;
        row.strategy = of_a.strategy == of_b->strategy
                           ? of_a.strategy
                           : fmt::format("{}, {}", of_a.strategy, of_b->strategy);
        row.paired = same_blocks(of_a, *of_b);
        row.open = is_open(of_a) || is_open(*of_b);
        row.per_s = figure_of(of_a.per_s, of_b->per_s, row.paired);
        row.p50_us = figure_of(of_a.p50_us, of_b->p50_us, row.paired);
        row.p99_us = figure_of(of_a.p99_us, of_b->p99_us, row.paired);
        add_settings(diff, of_a, *of_b);
    }
    for (const Rounds& of_b : second.all) {
        if (std::find(met.begin(), met.end(), &of_b) == met.end()) {
            diff.missing.push_back(of_b.strategy + " in B alone");
        }
    }
    if (diff.rows.empty()) {
        return make_error(ErrorCode::config,
                          fmt::format("{} and {} have no strategy in common: {}", a.string(),
                                      b.string(), fmt::join(diff.missing, ", ")));
    }
    for (DiffFigure DiffRow::*figure : kFigures) {
        std::vector<Ratio*> table;
        for (DiffRow& row : diff.rows) table.push_back(&(row.*figure).ratio);
        call_differences(table, std::nullopt);
    }
    const bool paired = std::all_of(diff.rows.begin(), diff.rows.end(),
                                    [](const DiffRow& row) { return row.paired; });
    diff.needed = paired ? least_rounds(diff.rows.size()) : kLeastRounds;
    return diff;
}

std::string diff_text(const Diff& diff) {
    std::string text;
    for (const auto& [name, side] : {std::pair{"A", &diff.a}, std::pair{"B", &diff.b}}) {
        text += fmt::format("{}: {} ({}, {}, {})\n", name, side->folder.string(), side->kind,
                            side->started, side->conclusion);
    }
    for (const std::string& setting : diff.settings) {
        text += fmt::format("  they differ in {}\n", setting);
    }
    Table table({"strategy", "rounds", "A /s", "B /s", "B / A", "95 %", "p50 B / A", "95 %",
                 "p99 B / A", "95 %"});
    std::size_t fewest = SIZE_MAX;
    for (const DiffRow& row : diff.rows) {
        const std::size_t a = row.per_s.a.size();
        const std::size_t b = row.per_s.b.size();
        fewest = std::min({fewest, a, b});
        std::vector<std::string> cells = {
            row.part.empty() ? row.strategy : fmt::format("{} {}", row.part, row.strategy),
            row.paired ? fmt::format("{} paired", a) : fmt::format("{} and {}", a, b),
            whole_or_digits(median(row.per_s.a)), whole_or_digits(median(row.per_s.b))};
        for (DiffFigure DiffRow::*figure : kFigures) {
            const Ratio& ratio = (row.*figure).ratio;
            cells.push_back(fmt::format("{:.3g}{}", ratio.spread.median, ratio.called ? "" : " ~"));
            cells.push_back(ratio.interval ? fmt::format("{:.3g} .. {:.3g}", ratio.interval->low,
                                                         ratio.interval->high)
                                           : "-");
        }
        table.add(std::move(cells));
    }
    text += '\n' + table.str();
    text += "  ~: no difference could be shown (5 % over each column)\n";
    if (fewest < diff.needed) {
        text += fmt::format("  {} round{}: no difference can be called; that takes {} or more.\n",
                            fewest, fewest == 1 ? "" : "s", diff.needed);
    }
    for (const std::string& name : diff.missing) text += fmt::format("  {}\n", name);
    return text + '\n' + sentence(diff);
}

json diff_figures(const Diff& diff) {
    json rows = json::array();
    for (const DiffRow& row : diff.rows) {
        rows.push_back({{"part", row.part},
                        {"strategy", row.strategy},
                        {"paired", row.paired},
                        {"rounds_a", row.per_s.a.size()},
                        {"rounds_b", row.per_s.b.size()},
                        {"per_s", describe(row.per_s)},
                        {"p50_us", describe(row.p50_us)},
                        {"p99_us", describe(row.p99_us)}});
    }
    return {{"a", describe(diff.a)},   {"b", describe(diff.b)},        {"settings", diff.settings},
            {"missing", diff.missing}, {"rounds_needed", diff.needed}, {"rows", std::move(rows)}};
}

}  // namespace hotcount::loadtest
