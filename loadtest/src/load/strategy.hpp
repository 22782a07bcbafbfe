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
// STORE is memory or redis. No name stands for two things, so a name tells its workload too. The
// part after the slash alone (gcra) means the strategy on Redis if a Redis is given, and otherwise
// in memory.
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

/// Of votes and counters: where they are counted.
enum class StoreKind : std::uint8_t { sql, memory, redis };

struct Strategy {
    WorkloadKind workload;
    StoreKind store;
    /// The library's name for it; counters: also empty, ttl, retry or a racy way; exec: the command.
    std::string way;
    std::string name;   ///< In full, as above.
    bool async{false};  ///< Driven by completions: many calls under way, no thread for each.
};

/// Counters that nobody keeps: it measures the generator, and stands in no list.
inline constexpr const char* kNothing = "nothing";
/// Whether it is a program of the user's own.
bool is_exec(const Strategy& strategy);
/// Whether it is a WriteBehindCounter, on Redis and SQL.
bool is_views(const Strategy& strategy);
/// Whether it is a way of others that races or leaves keys behind: a comparison has it to show how often.
bool is_wrong_way(const Strategy& strategy);
/// Whether it has tables.
bool is_on_sql(const Strategy& strategy);

/// What a read says of the writes that were acknowledged before it was sent.
struct ReadPromise {
    enum class Kind : std::uint8_t {
        none,      ///< It tells no count.
        exact,     ///< It has them all.
        within,    ///< It has those that are older than a time.
        eventual,  ///< Any of them may be missing for a while.
    };
    Kind kind{Kind::none};
    Duration time{0};  ///< within.

    /// For people: "at most 30s stale".
    std::string str() const;
};
/// `exact`: what the user's own program says of its reads.
ReadPromise reads_of(const Strategy& strategy, bool exact = true);

/// All of them, by workload.
const std::vector<Strategy>& all_strategies();
/// By its full name.
Result<Strategy> find_strategy(std::string_view name);
/// The full names of those that can be driven, of one workload or of all.
std::vector<std::string> strategies_of(std::optional<WorkloadKind> workload, bool with_redis);
/// a,b,c or all, as full names. Those on Redis need one: `with_redis`.
/// Whether one of the names in such a text is `all`.
bool names_all(std::string_view text);
Result<std::vector<std::string>> parse_strategies(std::string_view text,
                                                  std::optional<WorkloadKind> workload,
                                                  bool with_redis);

}  // namespace hotcount::loadtest
