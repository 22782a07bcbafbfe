// The strategies that can be driven, and their names.
//
//   votes      naive  slotted  batched                                          on SQL
//              insert_only                                a row for each vote, and no count
//              batched/async                 the same by completions, not a thread for each call
//              STORE/cached                              on SQL, counted in the store
//              redis/cached_alone                        each vote in a transaction of its own
//              redis/seed_cached                         RACY: plain_votes.hpp
//              redis/write_behind                        in Redis, written to SQL by a worker
//   counters   memory  redis, and with a TTL on every key memory/ttl  redis/ttl
//              redis/incr  redis/set_nx_none  redis/set_nx_first  redis/set_nx_ttl
//              redis/set_nx_both                                  with a TTL, RACY: plain_ways.hpp
//              redis/retry                                        adds wait while Redis is away
//              slots/sticky  slots/random  slots/adaptive         SlottedCounter, on SQL
//              redis/views  redis/views_local  redis/views_sql    WriteBehindCounter, by its Ack
//   limiter    STORE/gcra  STORE/token_bucket  STORE/leaky_bucket  STORE/fixed_window
//              STORE/fixed_window_first  STORE/sliding_window  STORE/sliding_log
//              redis/list, and RACY: redis/per_second_key  redis/racy_incr  redis/incr_expire
//              redis/racy_list                            plain_ways.hpp
//   zset       STORE/script  STORE/ttl_gate
//              redis/watch  redis/exists_then_add  redis/unguarded_pipeline    plain_ways.hpp
//   exec:COMMAND  (votes)    the user's own program: targets/driver_session.hpp; not in the lists
//
// STORE is memory or redis. A name belongs to one workload only. The part after the slash alone
// (gcra) means the strategy on Redis if a Redis is given, and otherwise in memory.
#pragma once

#include <cstdint>
#include <hotcount/clock.hpp>
#include <hotcount/result.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hotcount::loadtest {

enum class WorkloadKind : std::uint8_t {
    votes,     ///< hotcount::Votes on SQL.
    counters,  ///< hotcount::Counter.
    limiter,   ///< hotcount::Limiter.
    zset,      ///< hotcount::LiveSets.
};
std::string_view to_string(WorkloadKind kind);
Result<WorkloadKind> parse_workload(std::string_view text);

/// Where votes and counters are counted.
enum class StrategyStore : std::uint8_t { sql, memory, redis };

/// The writes acknowledged before a read was sent that the read includes.
struct ReadPromise {
    enum class Kind : std::uint8_t {
        none,      ///< The strategy returns no count.
        exact,     ///< All such writes.
        within,    ///< Such writes that are older than `time`.
        eventual,  ///< Any such write may be missing for a while.
    };
    Kind kind{Kind::none};
    Duration time{0};  ///< Only with `within`.

    /// For people: "at most 30s stale".
    std::string str() const;
};
struct Strategy {
    WorkloadKind workload;
    StrategyStore store;
    /// The library's name for it; counters: also empty, ttl, retry or a racy way; exec: the command.
    std::string way;
    std::string name;  ///< In full, as above.
    ReadPromise reads{};
    bool async{false};       ///< Driven by completions: many calls in flight, no thread for each.
    bool racy{false};        ///< It races or leaves keys behind; a comparison shows how often.
    bool plain{false};       ///< Votes in statements of the generator's own: plain_votes.hpp.
    bool views{false};       ///< A WriteBehindCounter, on Redis and SQL.
    bool expires{false};     ///< Counters whose keys have a TTL.
    bool in_process{false};  ///< A part of its state is in the memory of its process.
    bool rebuilds{false};    ///< Sorted sets that can be rebuilt.
    bool exec{false};        ///< exec:COMMAND.

    /// True if the strategy has tables.
    bool on_sql() const {
        return workload == WorkloadKind::votes || store == StrategyStore::sql || views;
    }
    /// `exact`: for exec, whether the program declares its reads exact.
    ReadPromise reads_if(bool exact) const {
        return exec && !exact ? ReadPromise{ReadPromise::Kind::eventual} : reads;
    }
};

/// A counter that stores nothing: it measures the generator, and is in no list.
inline constexpr const char* kNothing = "nothing";

/// All strategies, by workload.
const std::vector<Strategy>& all_strategies();
/// By its full name.
Result<Strategy> find_strategy(std::string_view name);
/// The full names of the strategies of one workload or of all.
std::vector<std::string> strategies_of(std::optional<WorkloadKind> workload, bool with_redis);
/// True if one of the names in a text for parse_strategies() is `all`.
bool names_all(std::string_view text);
/// Returns the full names for `a,b,c` or `all`. Strategies on Redis need `with_redis`.
Result<std::vector<std::string>> parse_strategies(std::string_view text,
                                                  std::optional<WorkloadKind> workload,
                                                  bool with_redis);

}  // namespace hotcount::loadtest
