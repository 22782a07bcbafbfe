#include "cli.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <cerrno>

#include <algorithm>
#include <chrono>
#include <exception>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "load/run_folder.hpp"
#include "report/compare.hpp"
#include "report/machine.hpp"
#include "report/progress.hpp"
#include "report/report.hpp"
#include "report/trial.hpp"
#include "targets/managed_group.hpp"

namespace hotcount::loadtest {
namespace {

constexpr int kBadUsage = 2;
const int kInconclusive = exit_code(Conclusion::inconclusive);

/// Callers of a generator that was killed hold its folder until they are gone, too.
bool is_run_under_way(const std::filesystem::path& folder) {
    constexpr std::chrono::milliseconds kLook{50};
    for (int look = 0; look < 40; ++look) {
        if (!RunFolder::in_use(folder)) return false;
        std::this_thread::sleep_for(kLook);
    }
    return true;
}

class Program {
  public:
    Program(const Settings& settings, const std::atomic<bool>& interrupt, std::FILE* out,
            std::FILE* log)
        : settings_(settings), interrupt_(interrupt), out_(out), log_(log) {}

    int go() {
        if (settings_.command == Command::audit) return audit();
        if (const auto why = why_not_measurable(); why && !settings_.allow_debug) {
            say(log_,
                "hotcount-load: no figures from this build, because {}; build with "
                "CMAKE_BUILD_TYPE=Release, or take --allow-debug\n",
                *why);
            return kInconclusive;
        }
        std::filesystem::path drawer;
        if (settings_.html && !settings_.each) {
            auto found = find_drawer(*settings_.html);
            if (!found) return fail(found.error());
            drawer = std::move(*found);
        }
        auto folder = RunFolder::make(settings_.out);
        if (!folder) return fail(folder.error());
        if (auto started = start_servers(*folder); !started) return fail(started.error());
        const nlohmann::json provenance = describe_provenance(settings_.command_line);
        if (const auto cache = calibration_cache()) ceiling_ = find_ceiling(*cache, provenance);
        int code = measure(*folder, provenance);
        if (measured_ && settings_.html && !settings_.each) {
            // Without the page the measurement is still valid.
            const auto drawn = write_html(drawer, folder->path(), *settings_.html);
            if (!drawn) {
                say(log_, "hotcount-load: no page: {}\n", drawn.error().message);
                if (code == 0) code = kInconclusive;
            }
        }
        if (measured_ && !folder->temporary()) say_where(folder->path());
        return code;
    }

  private:
    /// The private servers asked for; the canonical comparison takes a Redis if it can.
    Result<void> start_servers(const RunFolder& folder) {
        const bool canonical = settings_.command == Command::canonical;
        std::vector<ServerKind> kinds = settings_.managed;
        if (canonical) kinds = {ServerKind::redis};
        for (const ServerKind kind : kinds) {
            auto started = start_server(kind, folder);
            if (!started && canonical) {
                notes_.push_back(fmt::format("Redis is left out: {}", started.error().message));
                return {};
            }
            if (!started) {
                return make_error(
                    started.error().code,
                    fmt::format("--managed {}: {}", to_string(kind), started.error().message));
            }
            servers_.push_back(std::move(started).value());
            use(kind, *servers_.back());
        }
        return {};
    }

    Result<std::unique_ptr<Managed>> start_server(ServerKind kind, const RunFolder& folder) {
        if (is_group(kind)) return start_group(kind, settings_.trial.kills_redis(), interrupt_);
        ManagedOptions options;
        if (kind == ServerKind::redis) {
            HOTCOUNT_TRY_ASSIGN(options, redis_options(folder));
        }
        HOTCOUNT_TRY_ASSIGN(auto server, ManagedServer::start(kind, interrupt_, options));
        return std::unique_ptr<Managed>(std::move(server));
    }

    void use(ServerKind kind, Managed& server) {
        const bool redis = is_redis(kind);
        if (redis) {
            redis_ = &server;
        } else {
            databases_.push_back(&server);
        }
        const auto use_in = [&](TrialSettings& trial) {
            (redis ? trial.redis_url : trial.database_url) = server.url();
            (redis ? trial.managed_redis : trial.managed_database) = true;
        };
        use_in(settings_.trial);
        const bool all = redis || settings_.databases.empty();
        for (StrategyGroup& group : settings_.groups) {
            if (all || (group.database && group.database->managed == kind)) use_in(group.trial);
        }
    }

    /// A run of --each uses the servers of all.
    void use_servers_in(TrialSettings& trial) const {
        if (redis_ != nullptr) trial.redis_url = redis_->url();
        if (!databases_.empty()) trial.database_url = databases_.front()->url();
        trial.keep = settings_.out.has_value();
    }

    /// A run that is kept keeps what its Redis holds; one that kills it must find it again.
    Result<ManagedOptions> redis_options(const RunFolder& folder) const {
        ManagedOptions options;
        options.durable = settings_.trial.kills_redis();
        if (folder.temporary()) return options;
        options.keep = folder.path() / kRedisFolder;
        std::error_code failed;
        std::filesystem::create_directory(options.keep, failed);
        if (!failed) return options;
        return make_error(ErrorCode::config, fmt::format("cannot make {}: {}",
                                                         options.keep.string(), failed.message()));
    }

    /// The reason from the contract of a user's own program, in one of the runs.
    static std::optional<std::string> why_not_again(const std::filesystem::path& folder,
                                                    const Strategy& strategy) {
        if (!strategy.exec) return std::nullopt;
        for (const std::filesystem::path& run : run_folders(folder)) {
            const auto document = read_json(run / kRunFile);
            const auto settings =
                document ? trial_settings_of(*document) : Result<TrialSettings>(document.error());
            if (!settings || settings->strategy != strategy.name) continue;
            if (auto why = why_driver_not_again(*document)) return why;
        }
        return std::nullopt;
    }

    void say_where(const std::filesystem::path& folder) const {
        // By reason, the names of its strategies; a strategy on two databases is named once.
        std::map<std::string, std::vector<std::string>> whys;
        bool again = false;
        const bool canonical = settings_.command == Command::canonical;
        for (const Part& part : canonical ? canonical_parts(settings_) : compare_parts(settings_)) {
            for (const std::string& name : part.strategies) {
                const auto strategy = find_strategy(name);
                auto why =
                    strategy ? loadtest::why_not_again(part.settings, *strategy) : std::nullopt;
                if (strategy && !why) why = why_not_again(folder, *strategy);
                again = again || !why;
                if (!why) continue;
                auto& names = whys[*why];
                if (std::find(names.begin(), names.end(), name) == names.end()) {
                    names.push_back(name);
                }
            }
        }
        if (whys.empty()) {
            say(log_, "The run is in {}; hotcount-load audit checks it again.\n", folder.string());
            return;
        }
        say(log_, "The run is in {}{}\n", folder.string(),
            again ? "; hotcount-load audit checks a part of it again." : ".");
        for (const auto& [why, names] : whys) {
            say(log_, "  {} cannot be audited again: {}.\n", fmt::to_string(fmt::join(names, ", ")),
                why);
        }
    }

    int fail(const Error& error) {
        say(log_, "hotcount-load: {}\n", error.message);
        return exit_code_of(error);
    }

    static int exit_code_of(const Error& error) {
        const bool usage =
            error.code == ErrorCode::config || error.code == ErrorCode::permission_denied;
        return usage ? kBadUsage : kInconclusive;
    }

    void write(const std::string& text) {
        told_ = say(out_, "{}", text) && told_;
        told_ = std::fflush(out_) == 0 && told_;
    }

    /// As the user called this program.
    static std::string next_steps() {
        return fmt::format(
            "\nNext, with {} (--help of each command has examples)\n"
            "  compare -s naive,batched --managed postgres   the same on a private PostgreSQL\n"
            "  run -s batched -r 1000 --threshold 'p99<50ms' does it carry your rate? Exit code 1: "
            "no\n"
            "  compare -s naive,batched --db URL --item-table T ...   on tables of your own\n"
            "  --wide, --json                                all columns, all figures\n",
            program_invocation_name);
    }

    int finish(const nlohmann::json& document, const std::string& text, Conclusion conclusion) {
        write(settings_.json ? json_text(document, 2) + '\n' : text);
        // A full disk or a closed pipe must not look like a result.
        if (!told_) {
            say(log_, "hotcount-load: the results could not be written{}\n",
                settings_.command != Command::audit && !settings_.out
                    ? "; without --out nothing of them is kept"
                    : "");
            return kInconclusive;
        }
        return exit_code(conclusion);
    }

    int run(const RunFolder& folder, const nlohmann::json& provenance) {
        const TrialSettings& trial_settings = settings_.trial;
        Progress progress(settings_.progress, log_);
        const double load_s =
            std::chrono::duration<double>(trial_settings.warmup + trial_settings.duration).count();
        progress.expect(1, load_s);
        progress.set_up(trial_settings.strategy, load_s);
        const TrialContext shared = context(folder, provenance, progress);
        auto trial = run_trial(trial_settings, folder.path(), provenance, shared.hooks());
        if (!trial) {
            progress.done();
            return fail(trial.error());
        }
        measured_ = true;
        progress.end(*trial);
        return finish(run_document(*trial, provenance), run_text(*trial, settings_.wide),
                      trial->conclusion);
    }

    int compare(const RunFolder& folder, const nlohmann::json& provenance) {
        Progress progress(settings_.progress, log_);
        const std::vector<Part> parts = settings_.command == Command::compare
                                            ? compare_parts(settings_)
                                            : canonical_parts(settings_);
        const bool canonical = settings_.command == Command::canonical;
        // A table is there as soon as its part has run.
        bool first = true;
        const auto show = [&](const PartResult& result) {
            if (settings_.json) return;
            const std::string title = canonical ? "hotcount-load: the canonical comparison"
                                                : "hotcount-load: a comparison";
            write((first ? title_text(title) : "") + part_text(result, settings_.wide));
            first = false;
        };
        auto comparison = run_comparison(parts, context(folder, provenance, progress), show);
        if (!comparison) return fail(comparison.error());
        comparison->notes = notes_;
        if (canonical) comparison->next = next_steps();
        return finish_study(folder, kCompareFile, compare_document(*comparison, provenance),
                            conclusion_text(*comparison, settings_.wide), comparison->conclusion);
    }

    int measure(const RunFolder& folder, const nlohmann::json& provenance) {
        if (settings_.command != Command::run) return compare(folder, provenance);
        return settings_.each ? run_each(folder, provenance) : run(folder, provenance);
    }

    TrialContext context(const RunFolder& folder, const nlohmann::json& provenance,
                         Progress& progress) const {
        return {folder.path(), !folder.temporary(), provenance, interrupt_, redis_, ceiling_,
                progress,      databases_};
    }

    /// The result of several trials: printed, and kept beside their folders.
    int finish_study(const RunFolder& folder, const char* file, const nlohmann::json& document,
                     const std::string& text, Conclusion conclusion) {
        measured_ = true;
        const int code = finish(document, text, conclusion);
        if (auto written = write_json(folder.path() / file, document); !written) {
            (void)fail(written.error());
            return kInconclusive;
        }
        return code;
    }

    /// For a program that chooses the next run by what the last one did.
    int run_each(const RunFolder& folder, const nlohmann::json& provenance) {
        nlohmann::json ready = begin_document("ready", provenance);
        for (const StrategyGroup& group : settings_.groups) {
            for (const std::string& name : group.strategies) {
                TrialSettings trial = group.trial;
                trial.strategy = name;
                ready["settings"].push_back(describe_settings(trial));
            }
        }
        if (!write_line(ready)) return kInconclusive;
        Progress progress(settings_.progress, log_);
        const ProgressScope scope(progress);
        FreshTrials trials(context(folder, provenance, progress));
        std::string line;
        while (!interrupt_ && std::getline(std::cin, line)) {
            if (!write_line(run_line(line, trials))) return kInconclusive;
        }
        measured_ = true;
        return exit_code(Conclusion::passed);
    }

    /// One run of --each, or why there is none.
    nlohmann::json run_line(const std::string& line, FreshTrials& trials) const {
        const auto refuse = [](const std::string& why, int code) {
            return nlohmann::json{{"error", why}, {"exit_code", code}};
        };
        std::vector<std::string> arguments = settings_.arguments;
        std::string name;
        try {
            const nlohmann::json wanted = nlohmann::json::parse(line);
            name = wanted.at("name").get<std::string>();
            for (const auto& option : wanted.at("options")) {
                arguments.push_back(option.get<std::string>());
            }
        } catch (const nlohmann::json::exception& wrong) {
            return refuse(wrong.what(), kBadUsage);
        }
        auto parsed = parse_command_line(arguments);
        if (const auto* message = std::get_if<ExitMessage>(&parsed)) {
            return refuse(message->text, kBadUsage);
        }
        TrialSettings trial = std::get<Settings>(parsed).trial;
        use_servers_in(trial);
        const auto done = trials.run(std::move(trial), name, name);
        if (!done) return refuse(done.error().message, exit_code_of(done.error()));
        return trial_document(*done);
    }

    bool write_line(const nlohmann::json& document) {
        const bool told = say(out_, "{}\n", json_text(document));
        return std::fflush(out_) == 0 && told;
    }

    /// Of the databases that the user named, the one that the run was on: without its password and
    /// options it looks the same. Empty: the run's own.
    std::string database_of(const std::filesystem::path& folder) const {
        const std::vector<std::string>& urls = settings_.database_urls;
        if (urls.size() < 2) return urls.empty() ? "" : urls.front();
        const auto document = read_json(folder / kRunFile);
        if (!document) return {};
        const auto run = trial_settings_of(*document);
        const auto found = std::find_if(urls.begin(), urls.end(), [&](const std::string& url) {
            return run && redacted(url) == redacted(run->database_url);
        });
        return found == urls.end() ? "" : *found;
    }

    /// Whatever an audit stumbles over says nothing about the run.
    Result<FolderAudit> audit_one(const std::filesystem::path& folder) const {
        try {
            return audit_folder(folder, settings_.trial.redis_url, database_of(folder));
        } catch (const std::exception& failure) {
            return make_error(ErrorCode::capacity,
                              fmt::format("audit impossible: {}", failure.what()));
        }
    }

    int audit() {
        const std::vector<std::filesystem::path> folders = run_folders(settings_.audit_folder);
        if (folders.empty()) {
            return fail(make_error(
                ErrorCode::config,
                fmt::format("{} is no run folder: there is no {} in it or right below it",
                            settings_.audit_folder.string(), kRunFile)));
        }
        if (is_run_under_way(settings_.audit_folder)) {
            return fail(make_error(ErrorCode::unavailable,
                                   fmt::format("a run works in {}: audit it when that has ended",
                                               settings_.audit_folder.string())));
        }
        std::vector<FolderAudit> audits;
        Conclusion conclusion = Conclusion::passed;
        for (const std::filesystem::path& folder : folders) {
            if (interrupt_) {
                audits.push_back(not_audited(
                    folder, make_error(ErrorCode::unavailable, "not audited: interrupted before")));
                conclusion = worse_of(conclusion, Conclusion::inconclusive);
                continue;
            }
            auto audited = audit_one(folder);
            // A folder that cannot be audited says nothing about the run.
            audits.push_back(audited ? std::move(*audited) : not_audited(folder, audited.error()));
            conclusion = worse_of(conclusion, audits.back().conclusion);
        }
        const nlohmann::json document =
            audit_document(audits, describe_provenance(settings_.command_line), conclusion);
        return finish(document, audit_text(audits), conclusion);
    }

    Settings settings_;
    const std::atomic<bool>& interrupt_;
    std::FILE* out_;
    std::FILE* log_;
    std::vector<std::unique_ptr<Managed>> servers_{};
    Managed* redis_{nullptr};  ///< One of them, if there is one.
    std::vector<Managed*> databases_{};
    std::vector<std::string> notes_{};
    std::optional<GeneratorCeiling> ceiling_{};
    bool measured_{false};
    bool told_{true};  ///< Everything that was written so far could be.
};

}  // namespace

int run_program(const Settings& settings, const std::atomic<bool>& interrupt, std::FILE* out,
                std::FILE* log) {
    return Program(settings, interrupt, out, log).go();
}

}  // namespace hotcount::loadtest
