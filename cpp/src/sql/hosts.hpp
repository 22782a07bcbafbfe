// The hosts of a database's URL: one of them takes writes, and which one changes when it fails.
//
//   find()    a host that will do: the one found last is dialled first, then the others
//   leave()   a session's host is silent, lost or only reads: it is dialled last from now on
//
// libpq stays with a first host that is silent until the deadline, and libmariadb knows one host, so
// each host is dialled here with its share of the time. A round over all hosts in which none will do
// is followed by a pause and another round, until the deadline. All callers of a process share the
// rounds: the rate of dials does not grow with the number of callers.
//
// Thread-safe. A fork waits for its lock: freeze().
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <hotcount/clock.hpp>
#include <hotcount/result.hpp>
#include <hotcount/url.hpp>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hotcount::sql {

/// For what a session is wanted: the option target_session_attrs.
enum class HostUse : std::uint8_t {
    writes,  ///< read-write, primary: a host that takes writes.
    reads,   ///< read-only, standby: a host that takes none.
    any,     ///< any: the first that answers.
};

/// The option target_session_attrs of a URL with several hosts, read-write without one. A config
/// error for other words, and for two hosts that are the same one; `port` is of a host without one.
Result<HostUse> check_hosts(const Url& url, std::uint16_t port);
/// "h1:5432", "[::1]:5432", for messages.
std::string host_name(const UrlHost& host);
/// The names of all, with commas between them.
std::string host_names(const Url& url);

class Hosts {
  public:
    /// `name`: the database's; `each`: the hosts' names, in the URL's order.
    Hosts(std::string name, std::vector<std::string> each, HostUse use);

    bool several() const { return each_.size() > 1; }
    /// Of several hosts the one that takes writes is looked for.
    bool wants_writes() const { return several() && use_ == HostUse::writes; }

    /// Opens a session with a host until a time. Its error is the refusal of that host.
    using Dial = std::function<Result<void>(std::size_t host, Deadline until)>;
    /// Dials until a host will do. `waits_for_room`: a host without room for a session is tried
    /// again, where the refusal is returned otherwise. At the deadline: unavailable, with the last
    /// refusal of each host. A config error, such as of another cluster, ends the search.
    Result<void> find(Deadline deadline, bool waits_for_room, const Dial& dial);
    /// Whether another host than that will do: each is dialled once, for a moment, until a time.
    bool any_other(std::size_t host, SteadyTime until, const Dial& dial) const;
    /// A session with the host is of no more use.
    void leave(std::size_t host);

    /// Whether a host may be used that takes writes or takes none.
    Result<void> takes(std::size_t host, bool reads_only) const;
    /// A config error if the host is of another cluster than those before. 0 is no cluster.
    Result<void> check_cluster(std::size_t host, std::uint64_t cluster);
    /// Refuses a primary of an older timeline than one seen before: it was replaced, and comes back as
    /// it was. 0: the server has none.
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
    void set_refusal(std::optional<Error> refusal);

    const std::string name_;
    const std::vector<std::string> each_;
    const HostUse use_;
    std::atomic<std::size_t> first_{0};  // To be dialled first.
    std::atomic<int> failed_rounds_{0};  // Since a host was found.
    std::atomic<SteadyTime::rep> next_round_{0};

    std::mutex mutex_;
    std::uint64_t cluster_{0};
    std::size_t of_cluster_{0};  // The host that has told it.
    std::uint64_t newest_{0};    // Timeline.
    std::optional<Error> refusal_{};
};

}  // namespace hotcount::sql
