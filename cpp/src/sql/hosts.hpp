// The hosts of a database's URL. One of them, the primary, takes writes; a failover changes it.
//
//   find()    finds a suitable host: dials the one found last first, then the others
//   leave()   a session's host is silent, lost or read-only: dial it last from now on
//
// libpq waits for a silent first host until the deadline, and libmariadb knows one host, so this class
// dials each host with its share of the time. If a round over all hosts finds none, a pause and
// another round follow, until the deadline. All callers of a process share the rounds: the rate of
// dials does not grow with the number of callers.
//
// Thread-safe. A fork waits for its lock: freeze().
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <hotcount/clock.hpp>
#include <hotcount/result.hpp>
#include <hotcount/url.hpp>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hotcount::sql {

/// The kind of host that sessions need: the option target_session_attrs.
enum class HostUse : std::uint8_t {
    writes,  ///< read-write, primary: a host that takes writes.
    reads,   ///< read-only, standby: a host that takes none.
    any,     ///< any: the first that answers.
};

/// Returns the option target_session_attrs of a URL with several hosts, by default read-write. A
/// config error for other values, and for a host that is named twice. `port`: the default port.
Result<HostUse> check_hosts(const Url& url, std::uint16_t port);
/// "h1:5432", "[::1]:5432", for messages.
std::string host_name(const UrlHost& host);
/// The names of all hosts, with commas between them.
std::string host_names(const Url& url);

class Hosts {
  public:
    /// `name`: the database's; `each`: the hosts' names, in the URL's order.
    Hosts(std::string name, std::vector<std::string> each, HostUse use);

    bool several() const { return each_.size() > 1; }
    /// True if there are several hosts and sessions need the primary.
    bool wants_writes() const { return several() && use_ == HostUse::writes; }

    /// Opens a session with a host by `until`. Returns the host's refusal as error.
    using Dial = std::function<Result<void>(std::size_t host, Deadline until)>;
    /// Dials until a host is suitable. `waits_for_room`: a host without room for a session is tried
    /// again; otherwise its refusal is returned. At the deadline the error is unavailable, with the
    /// last refusal of each host. A config error, such as of another cluster, ends the search.
    Result<void> find(Deadline deadline, bool waits_for_room, const Dial& dial);
    /// True if a host other than `host` is suitable. Dials each of them once, briefly, until `until`.
    /// Nothing if another caller has just begun to ask: ask again after kAsksEvery. `dialled`: when
    /// this session was dialled, in a cluster whose nodes all take writes. There another node that
    /// was found counts only if a caller has found since then that this node is gone.
    std::optional<bool> any_other(std::size_t host, SteadyTime until, const Dial& dial,
                                  std::optional<SteadyTime> dialled = {});
    /// True if another host than `host` is known to take writes now: answers of `host` do not count.
    bool replaced(std::size_t host) const;
    static constexpr Duration kAsksEvery = std::chrono::milliseconds{20};
    /// Reports that a session with the host became unusable.
    void leave(std::size_t host);

    /// An error if the host does not suit HostUse. `reads_only`: it takes no writes. `dialled`: when
    /// the dial began; a host that was replaced since is refused, as its answer may be older.
    Result<void> takes(std::size_t host, bool reads_only, SteadyTime dialled) const;
    /// A config error if the host belongs to another cluster than earlier hosts. 0 is no cluster.
    Result<void> check_cluster(std::size_t host, std::uint64_t cluster);
    /// An error for a primary of an older timeline than one seen before: it was replaced, and has
    /// restarted with its old state. 0: the server has no timelines.
    Result<void> check_timeline(std::size_t host, std::uint64_t timeline);
    /// The error of the last round, if no host has been found since.
    std::optional<Error> refusal();

    void freeze() { mutex_.lock(); }
    void thaw() { mutex_.unlock(); }

  private:
    enum class Turn : std::uint8_t { dial, late };
    Turn await_round(Deadline deadline);
    std::optional<Error> end_round(const std::vector<std::optional<Error>>& refusals,
                                   bool waits_for_room) const;
    Error none(const std::vector<std::optional<Error>>& refusals) const;
    void found(std::size_t host);
    void set_found(std::size_t host);
    bool gone_since(std::size_t host, SteadyTime dialled);
    void set_refusal(std::optional<Error> refusal);

    const std::string name_;
    const std::vector<std::string> each_;
    const HostUse use_;
    std::atomic<std::size_t> first_{0};  // The host that is dialled first.
    // The last host that was found suitable; none before the first.
    static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
    std::atomic<std::size_t> found_{kNone};
    std::atomic<SteadyTime::rep> found_at_{0};
    std::atomic<SteadyTime::rep> next_look_{0};  // Of any caller: any_other().
    std::atomic<int> failed_rounds_{0};          // Since a host was found.
    std::atomic<SteadyTime::rep> next_round_{0};

    std::mutex mutex_;
    std::uint64_t cluster_{0};
    std::size_t of_cluster_{0};  // The host from which cluster_ is.
    std::uint64_t newest_{0};    // The newest timeline.
    std::optional<Error> refusal_{};
    std::vector<SteadyTime> gone_;  // When a node's cluster was last found to be without it.
};

}  // namespace hotcount::sql
