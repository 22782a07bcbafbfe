// The voters of hotcount-peers-votes: what the callers of one process share, for each strategy.
//
// Voters may be called by all callers of the process at once, unless there is one caller only.
// A failed call returns the library's error.
#pragma once

#include <cstdint>
#include <hotcount/sql.hpp>
#include <hotcount/votes.hpp>
#include <memory>
#include <string>

namespace hotcount::peers {

constexpr Duration kTimeout = std::chrono::seconds{60};

struct Settings {
    std::string url{};
    std::string strategy{"batched"};
    int processes{1};
    int callers{1};
    std::int64_t items{1};
    double zipf{0.99};
    double reads{0};
    double seconds{2};
    double warm_up{0.4};
    std::uint64_t seed{1};
    bool aside{false};
    bool hold{false};
};

/// The state that a process's callers share.
class Voters {
  public:
    virtual ~Voters() = default;
    virtual Result<void> vote(std::int64_t item, std::int64_t user) = 0;
    virtual void vote_async(std::int64_t item, std::int64_t user, Completion<Cast> done) = 0;
    virtual Result<std::int64_t> count(std::int64_t item) = 0;
};

/// A connection for each caller; the process that asks for it must not be forked afterwards.
Result<std::shared_ptr<sql::Database>> open_database(const Settings& settings);
Result<std::shared_ptr<Votes>> make_votes(const std::shared_ptr<sql::Database>& database,
                                          const std::string& strategy);
Result<std::unique_ptr<Voters>> make_voters(const Settings& settings);

}  // namespace hotcount::peers
