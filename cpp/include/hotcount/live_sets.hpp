// LiveSets: upserts into sorted sets that apply only while the set lives.
//
//   key        {store prefix}{key}, or {store prefix}{prefix}:{key}      the sorted set, with a TTL
//   companion  "{" key "}:versions.1", or key ":versions.1t" when        a hash: member -> version
//              the key has a hash tag of its own                         of its last write
//
// ZADD creates a missing set. So a late upsert into a cached set that has expired leaves a set of
// one member without a TTL, which readers take for the whole set. Here such an upsert returns
// absent. Redis has no flag for that; UpsertMethod names the two ways to get it.
//
// A version makes a late write harmless: a write is applied only if its version is above that of
// the member's last write. Versions outlive the set by an hour, also those of removed members; an
// older write that comes after that hour is applied. Upserts without a version ignore versions.
//
// Versions are lost if the companion is evicted or deleted. So the first version of a set also
// creates a marker: a key with the companion's name and ":used". If the marker exists without the
// companion, writes with a version return absent until create() is called. A set that another
// program created gets both keys with its first version; create() makes the companion alone. Writes
// without a version need neither key, and in memory neither can be lost.
//
// Redis deletes a set with its last member. If remove() took that member and the set has a
// companion, the set lives on, empty. The companion's field "" (no member has that name) then holds
// the end of the set in ms of the server's clock; while the set has members it is '0'. An upsert
// before that end gives the set the rest of its TTL. Only method script reads companions, so an
// empty set lives on for script only. A set without a companion, or one that another program
// emptied with ZREM, is gone. DEL does not end an empty set; call create() again.
//
// A Rebuild makes a new set while others read and write the old one. It gathers the members beside
// the set, under a lease, and publishes them in one step:
//
//   build   companion ":build"   the sorted set that becomes the set
//   hash    companion ":next"    the builder, and the writes made meanwhile; it lives as long as
//                                the lease, and becomes the companion
//
// Upserts and removes of method script go to both sets. With ttl_gate, and for a user without
// rights to the helper keys, they change only the live set, which a publication replaces.
//
// Thread-safe; it holds no state itself.
//
// Example, the body of a function that returns Result<void>:
//
//   @code
//   HOTCOUNT_TRY_ASSIGN(const auto store, memory::Store::make());
//   HOTCOUNT_TRY_ASSIGN(const auto sets, LiveSets::make(store));
//   const std::vector<ScoredMember> members{{"anna", 30}, {"ben", 20}};
//   HOTCOUNT_TRY(sets->create("board", std::chrono::minutes{10}, members));
//   HOTCOUNT_TRY(sets->upsert("board", "ben", 40));
//   HOTCOUNT_TRY_ASSIGN(const auto top, sets->top("board", 1));
//   std::cout << top[0].member << ' ' << top[0].score << '\n';  // ben 40
//   HOTCOUNT_TRY_ASSIGN(const Upsert late, sets->upsert("expired", "ben", 1));
//   std::cout << (late == Upsert::absent) << '\n';  // 1
//   @endcode
#pragma once

#include <cstddef>
#include <cstdint>
#include <hotcount/clock.hpp>
#include <hotcount/detail/base/completion.hpp>
#include <hotcount/memory.hpp>
#include <hotcount/redis.hpp>
#include <hotcount/result.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hotcount {

/// The result of an upsert or remove. The numbers stand in columns and in the scripts.
enum class Upsert : std::int8_t {
    failed = 0,    ///< Only in a batch: the element has an error.
    applied = 1,   ///< The member has the score.
    absent = 2,    ///< The set does not exist; nothing was created.
    stale = 3,     ///< The member's last write has this version or a higher one.
    expiring = 4,  ///< The set's TTL is not above the gate.
    no_ttl = 5,    ///< The set has no TTL, which is a leak; nothing was changed. See sweep().
};
std::string_view to_string(Upsert upsert);  ///< As spelled above, in capitals.

enum class UpsertMethod : std::uint8_t {
    script,    ///< Lua: checks and adds in one step, a whole batch in one round trip.
    ttl_gate,  ///< PTTL, then ZADD if it is above the gate. Two round trips a batch.
               ///< HOLE: the set may expire in a stall between them that is longer than the gate.
};
std::string_view to_string(UpsertMethod method);

struct LiveSetsOptions {
    UpsertMethod method{UpsertMethod::script};
    /// An upsert is applied only if the set's remaining TTL is above this. Default: 10 s with
    /// ttl_gate, which is safe only if the gate is longer than the longest stall; 0 with script,
    /// which needs no gate.
    std::optional<Duration> gate{};
    /// Put before every key, with a ":". Default: none, for sets that other programs share.
    std::string prefix{};
};

struct UpsertItem {
    std::string_view key;
    std::string_view member;
    double score;
    std::optional<std::int64_t> version{};
};

struct ScoredMember {
    std::string member;
    double score;
    bool operator==(const ScoredMember&) const = default;
};

struct SweepReport {
    std::int64_t scanned{0};  ///< Sorted sets that matched.
    std::int64_t found{0};    ///< Of them, those without a TTL.
    std::int64_t deleted{0};  ///< Of them, those that still had none when they were deleted.
    std::vector<std::string> keys{};  ///< Of those found the first kMaxKeys, without the prefixes.
    static constexpr std::size_t kMaxKeys = 1000;
};

struct RebuildMember {
    std::string_view member;
    double score;
    std::optional<std::int64_t> version{};
};

class LiveSetsBackend;
class Rebuild;

class LiveSets {
  public:
    /// Most elements in one round trip, which bounds the time of one script.
    static constexpr std::size_t kMaxBatch = 300;
    /// Beside such batches another client's 99th percentile stays below 1 ms.
    static constexpr std::size_t kDefaultBatch = 128;
    /// Most members that create() takes.
    static constexpr std::size_t kMaxCreated = 10'000;

    static Result<std::shared_ptr<LiveSets>> make(std::shared_ptr<memory::Store> store,
                                                  LiveSetsOptions options = {});
    static Result<std::shared_ptr<LiveSets>> make(std::shared_ptr<redis::Client> client,
                                                  LiveSetsOptions options = {});
    explicit LiveSets(std::shared_ptr<LiveSetsBackend> backend);  // Use make().
    ~LiveSets();

    /// Sets the member's score if the set lives. The score may be infinite, as in Redis; NaN is a
    /// config error. Member: 1 to 1,000 bytes. The call may be repeated after an unknown outcome. A
    /// version needs method script, otherwise it is a config error.
    Result<Upsert> upsert(std::string_view key, std::string_view member, double score,
                          std::optional<std::int64_t> version = {}, Timeout timeout = {});
    /// In order, in batches of `batch` (1 to kMaxBatch), one after the other. A failed element does
    /// not stop the others. With script each batch is one atomic step; the whole call is not. A
    /// batch occupies the server for about 0.3 ms (128 elements) or 0.6 ms (250). The call fails
    /// with nothing sent for a bad batch size and for versions with ttl_gate.
    Result<std::vector<Result<Upsert>>> upsert_many(std::span<const UpsertItem> items,
                                                    std::size_t batch = kDefaultBatch,
                                                    Timeout timeout = {});
    /// applied: the member was removed. absent: no such set or member. With a version: applied if
    /// the set lives, whether the member was there or not; later upserts whose version is not
    /// higher are stale.
    Result<Upsert> remove(std::string_view key, std::string_view member,
                          std::optional<std::int64_t> version = {}, Timeout timeout = {});
    /// The n highest, highest first; equal scores by member, the greater bytes first.
    Result<std::vector<ScoredMember>> top(std::string_view key, std::int64_t n,
                                          Timeout timeout = {});
    /// Positions start to stop in that order, both inclusive, negative ones from the end: 0, -1 is
    /// all.
    Result<std::vector<ScoredMember>> range(std::string_view key, std::int64_t start,
                                            std::int64_t stop, Timeout timeout = {});
    /// The member's position in that order; nullopt if the set does not have the member.
    Result<std::optional<std::int64_t>> rank(std::string_view key, std::string_view member,
                                             Timeout timeout = {});
    /// Creates or replaces the set in one step, with its TTL and its companion. Upserts made while
    /// the caller gathers the members are lost (rebuild() keeps them). 1 to kMaxCreated members; of
    /// equal members the last counts. Versions are kept.
    Result<void> create(std::string_view key, Duration ttl, std::span<const ScoredMember> members,
                        Timeout timeout = {});
    /// Deletes sorted sets without a TTL whose key matches (*, ?, [a-z], \ as in Redis); the step
    /// that deletes a set checks it again. dry_run: counts only. The timeout is for the whole
    /// sweep; without one each page of about 500 keys has the store's timeout, and the sweep 100
    /// times that. Sets that were deleted before the timeout stay deleted.
    Result<SweepReport> sweep(std::string_view match, bool dry_run = false, Timeout timeout = {});

    /// How long a silent builder keeps its lease by default.
    static constexpr Duration kDefaultLease = std::chrono::seconds{10};
    /// The build of a set; nothing is sent before its begin(). ttl: of the published set, 1 ms or
    /// more. lease: 0.1 s to an hour. Needs method script, and a key without braces or with a hash
    /// tag.
    Result<std::shared_ptr<Rebuild>> rebuild(std::string_view key, Duration ttl,
                                             Duration lease = kDefaultLease);

    // The same without waiting. `done` gets the result of the call above, in the thread that
    // AsyncCall's channel names; over Memory, and for a bad argument, before the call returns. Over
    // Redis a sweep() and an upsert with ttl_gate take several round trips: threads of the library
    // make them and call `done`; they use no channel. At most Options::exclusive_connections run at
    // a time. They begin in order; a call that has not begun by its deadline has applied nothing.
    // Arguments are copied.
    void upsert_async(std::string_view key, std::string_view member, double score,
                      std::optional<std::int64_t> version, Completion<Upsert> done,
                      AsyncCall call = {});
    void upsert_many_async(std::span<const UpsertItem> items, std::size_t batch,
                           Completion<std::vector<Result<Upsert>>> done, AsyncCall call = {});
    void remove_async(std::string_view key, std::string_view member,
                      std::optional<std::int64_t> version, Completion<Upsert> done,
                      AsyncCall call = {});
    void top_async(std::string_view key, std::int64_t n, Completion<std::vector<ScoredMember>> done,
                   AsyncCall call = {});
    void range_async(std::string_view key, std::int64_t start, std::int64_t stop,
                     Completion<std::vector<ScoredMember>> done, AsyncCall call = {});
    void rank_async(std::string_view key, std::string_view member,
                    Completion<std::optional<std::int64_t>> done, AsyncCall call = {});
    void create_async(std::string_view key, Duration ttl, std::span<const ScoredMember> members,
                      Completion<void> done, AsyncCall call = {});
    void sweep_async(std::string_view match, bool dry_run, Completion<SweepReport> done,
                     AsyncCall call = {});

    const LiveSetsOptions& options() const;

  private:
    std::shared_ptr<LiveSetsBackend> backend_;
};

/// The build of one set: begin(), then add() the members from the source of the data, then
/// publish(). Read the source after begin(), and write to it before you upsert. Then no upsert is
/// lost: writes made before begin() are in the source, and later ones go to both sets.
///
/// A write made since begin() wins over an add, unless both have versions: then the higher version
/// wins. If the set has a higher version of the member than the add, the add gets the set's score; if
/// the set has expired or the member was removed, the add is left out. An add without a version
/// replaces a write made before begin(). Of two adds of a member the later wins, with versions the
/// higher.
///
/// Adds are gathered and sent 300 at a time, or when a third of the lease has passed; each sending
/// renews the lease. A builder that adds nothing for longer than the lease must call renew().
/// lease_lost, with nothing published: the lease has ended, another builder has it, or a key of the
/// build was deleted or evicted. A builder that dies leaves keys that expire with its lease.
///
/// Thread-safe; calls that send run one at a time. Not for a forked child. A call that failed with
/// another error may be repeated; gathered members are not lost. A timeout is for the whole call.
/// Without one each script (300 members, or 300 versions of a publication) has the store's timeout,
/// so sets of any size can be published.
class Rebuild {
  public:
    /// Most members in one round trip: about 1 ms of a server's time.
    static constexpr std::size_t kChunk = 300;

    Rebuild(std::shared_ptr<LiveSetsBackend> backend, std::string key, std::string companion,
            Duration ttl, Duration lease);  // Use LiveSets::rebuild().
    Rebuild(const Rebuild&) = delete;
    Rebuild& operator=(const Rebuild&) = delete;
    /// Sends nothing: a build that was not published expires with its lease.
    ~Rebuild();

    /// Takes the lease and deletes the keys of a dead builder. lease_lost if another builder has
    /// it.
    Result<void> begin(Timeout timeout = {});
    /// Member and score as for LiveSets::upsert.
    Result<void> add(std::string_view member, double score,
                     std::optional<std::int64_t> version = {}, Timeout timeout = {});
    /// In order. A bad element is a config error, and no element is taken.
    Result<void> add_many(std::span<const RebuildMember> members, Timeout timeout = {});
    /// Sends the gathered members and renews the lease.
    Result<void> renew(Timeout timeout = {});
    /// Sends the gathered members and publishes. After outcome_unknown the set may be published or
    /// not; begin another build.
    Result<void> publish(Timeout timeout = {});
    /// publish(), unless the build is published or abandoned already.
    Result<void> finish(Timeout timeout = {});
    /// Ends the build, also after an outcome_unknown of begin(); the live set does not change. No
    /// error if the lease is lost already.
    Result<void> abandon(Timeout timeout = {});

    // The same without waiting. Over Redis a thread of the library sends, as for
    // LiveSets::sweep_async; an add that is only gathered calls `done` before it returns.
    void begin_async(Completion<void> done, AsyncCall call = {});
    void add_async(std::string_view member, double score, std::optional<std::int64_t> version,
                   Completion<void> done, AsyncCall call = {});
    void add_many_async(std::span<const RebuildMember> members, Completion<void> done,
                        AsyncCall call = {});
    void renew_async(Completion<void> done, AsyncCall call = {});
    void publish_async(Completion<void> done, AsyncCall call = {});
    void finish_async(Completion<void> done, AsyncCall call = {});
    void abandon_async(Completion<void> done, AsyncCall call = {});

  private:
    class Work;
    struct Limit;
    Limit limit(Timeout timeout) const;
    void later(const AsyncCall& call, Completion<void> done,
               Result<void> (Work::*step)(const Limit&));

    const std::shared_ptr<LiveSetsBackend> backend_;
    const std::shared_ptr<Work> work_;  // Held by calls under way, which do not hold the backend.
};

}  // namespace hotcount
