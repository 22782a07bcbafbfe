#include "hosts.hpp"

#include <algorithm>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/base/interrupt.hpp>

#include "pool.hpp"

namespace hotcount::sql {
namespace {

// A host's share of the time in the first round; it doubles from round to round, for hosts that are
// busy. Shorter: a host that is slow to accept is passed over.
constexpr Duration kFirstShare = std::chrono::seconds{1};
constexpr int kMostDoublings = 6;
// Time for the dial of each other host while a caller waits for its own host, and between two such
// looks of a process. Shorter: a busy standby that was just promoted does not answer in time.
constexpr Duration kLook = std::chrono::milliseconds{250};
// How soon a caller that waits for another's round looks for what it found.
constexpr Duration kLooksEvery = std::chrono::milliseconds{10};

// Half of what is left for each host, so that the last one is left with some.
Deadline share_of(Deadline deadline, std::size_t left, int round) {
    const Duration most = kFirstShare * (1 << std::min(round, kMostDoublings));
    const Duration half = deadline.remaining() / static_cast<Duration::rep>(left == 1 ? 1 : 2);
    return Deadline::at(std::chrono::steady_clock::now() + std::min(most, half));
}

bool is_unreachable(const Error& error) {
    return error.code == ErrorCode::unavailable || error.code == ErrorCode::deadline;
}

void cut(std::string& text, std::string_view end) {
    if (text.ends_with(end)) text.resize(text.size() - end.size());
}

}  // namespace

Result<HostUse> check_hosts(const Url& url, std::uint16_t port) {
    for (std::size_t i = 0; i < url.hosts.size(); ++i) {
        for (std::size_t k = 0; k < i; ++k) {
            const UrlHost& a = url.hosts[k];
            const UrlHost& b = url.hosts[i];
            if (a.host != b.host || a.port.value_or(port) != b.port.value_or(port)) continue;
            return make_error(ErrorCode::config, "URL: host " + std::to_string(i + 1) + ", " +
                                                     host_name(b) + ", is host " +
                                                     std::to_string(k + 1) + " again");
        }
    }
    const auto found = url.query.find("target_session_attrs");
    const std::string word = found == url.query.end() ? "read-write" : found->second;
    if (word == "read-write" || word == "primary") return HostUse::writes;
    if (word == "read-only" || word == "standby") return HostUse::reads;
    if (word == "any") return HostUse::any;
    Error error = make_error(ErrorCode::config,
                             "URL: option target_session_attrs of several hosts is none of "
                             "read-write, primary, read-only, standby, any");
    error.about(&ErrorFacts::option, "target_session_attrs");
    return error;
}

std::string host_name(const UrlHost& host) {
    const bool is_ipv6 = host.host.find(':') != std::string::npos;
    return (is_ipv6 ? "[" + host.host + "]" : printable(host.host)) +
           (host.port ? ":" + std::to_string(*host.port) : "");
}

std::string host_names(const Url& url) {
    std::string names;
    for (const UrlHost& each : url.hosts) names += (names.empty() ? "" : ",") + host_name(each);
    return names;
}

Hosts::Hosts(std::string name, std::vector<std::string> each, HostUse use)
    : name_(std::move(name)), each_(std::move(each)), use_(use), gone_(each_.size()) {}

Result<void> Hosts::find(Deadline deadline, bool waits_for_room, const Dial& dial) {
    std::vector<std::optional<Error>> refusals(each_.size());
    while (await_round(deadline) == Turn::dial) {
        const std::size_t first = first_.load(std::memory_order_relaxed);
        const int round = failed_rounds_.load(std::memory_order_relaxed);
        for (std::size_t i = 0; i < each_.size() && !deadline.passed(); ++i) {
            const std::size_t host = (first + i) % each_.size();
            auto dialled = dial(host, share_of(deadline, each_.size() - i, round));
            if (dialled) {
                found(host);
                return {};
            }
            if (dialled.error().code == ErrorCode::config) return dialled;
            // A host that had next to no time keeps its last refusal.
            if (!refusals[host] || !deadline.passed()) refusals[host] = std::move(dialled).error();
        }
        // Once for all callers whose rounds ran side by side.
        int failed = round;
        failed_rounds_.compare_exchange_strong(failed, round + 1, std::memory_order_acq_rel);
        set_refusal(none(refusals));
        if (auto stands = end_round(refusals, waits_for_room)) return *std::move(stands);
    }
    return none(refusals);
}

// The error that ends the search after a round. None while a host is worth another attempt.
std::optional<Error> Hosts::end_round(const std::vector<std::optional<Error>>& refusals,
                                      bool waits_for_room) const {
    std::optional<Error> stands;
    for (const auto& refusal : refusals) {
        if (!refusal) return {};
        if (is_out_of_room(*refusal) && !waits_for_room) return refusal;
        if (!is_unreachable(*refusal) && !stands) stands = refusal;
    }
    const bool all = std::none_of(refusals.begin(), refusals.end(),
                                  [](const auto& refusal) { return is_unreachable(*refusal); });
    return all ? stands : std::nullopt;
}

// After a failed round one caller at a time begins another, when its time has come; the others wait
// for what that one finds.
Hosts::Turn Hosts::await_round(Deadline deadline) {
    while (!deadline.passed()) {
        const int failed = failed_rounds_.load(std::memory_order_acquire);
        if (failed == 0) return Turn::dial;
        const SteadyTime now = std::chrono::steady_clock::now();
        SteadyTime::rep next = next_round_.load(std::memory_order_acquire);
        if (now.time_since_epoch().count() >= next) {
            const SteadyTime after = now + kServerBackoff.draw(static_cast<unsigned>(failed));
            if (next_round_.compare_exchange_strong(next, after.time_since_epoch().count())) {
                return Turn::dial;
            }
            continue;
        }
        const Duration pause = SteadyTime{SteadyTime::duration{next}} - now;
        sleep_or_interrupt(std::min({pause, kLooksEvery, deadline.remaining()}));
    }
    return Turn::late;
}

void Hosts::found(std::size_t host) {
    first_.store(host, std::memory_order_relaxed);
    set_found(host);
    if (failed_rounds_.exchange(0, std::memory_order_acq_rel) > 0) set_refusal({});
}

// Many callers may wait for the same silent host: one of them asks for all.
std::optional<bool> Hosts::any_other(std::size_t host, SteadyTime until, const Dial& dial,
                                     std::optional<SteadyTime> dialled) {
    if (dialled ? gone_since(host, *dialled) : replaced(host)) return true;
    const SteadyTime began = std::chrono::steady_clock::now();
    SteadyTime::rep next = next_look_.load(std::memory_order_acquire);
    const bool asks =
        began.time_since_epoch().count() >= next &&
        next_look_.compare_exchange_strong(next, (began + kLook).time_since_epoch().count());
    if (!asks) return std::nullopt;
    for (std::size_t other = 0; other < each_.size(); ++other) {
        const SteadyTime now = std::chrono::steady_clock::now();
        if (other == host || now >= until) continue;
        if (!dial(other, Deadline::at(std::min(until, now + kLook)))) continue;
        set_found(other);
        const std::lock_guard lock(mutex_);
        gone_[host] = std::chrono::steady_clock::now();
        return true;
    }
    return false;
}

bool Hosts::gone_since(std::size_t host, SteadyTime dialled) {
    const std::lock_guard lock(mutex_);
    return gone_[host] > dialled;
}

void Hosts::set_found(std::size_t host) {
    found_at_.store(std::chrono::steady_clock::now().time_since_epoch().count(),
                    std::memory_order_relaxed);
    found_.store(host, std::memory_order_release);
}

bool Hosts::replaced(std::size_t host) const {
    const std::size_t found = found_.load(std::memory_order_acquire);
    return wants_writes() && found != kNone && found != host;
}

void Hosts::leave(std::size_t host) {
    first_.compare_exchange_strong(host, (host + 1) % each_.size(), std::memory_order_relaxed);
}

Result<void> Hosts::takes(std::size_t host, bool reads_only, SteadyTime dialled) const {
    if (replaced(host) &&
        found_at_.load(std::memory_order_relaxed) > dialled.time_since_epoch().count()) {
        return make_error(ErrorCode::unavailable,
                          name_ + ": " + each_[host] + " was replaced while it was dialled", {},
                          SqlCondition::read_only);
    }
    if (use_ == HostUse::any || reads_only == (use_ == HostUse::reads)) return {};
    return make_error(
        ErrorCode::unavailable,
        name_ + ": " + each_[host] + (reads_only ? " is a standby or read-only" : " takes writes"),
        {}, SqlCondition::read_only);
}

Result<void> Hosts::check_cluster(std::size_t host, std::uint64_t cluster) {
    const std::lock_guard lock(mutex_);
    if (cluster_ == 0) {
        cluster_ = cluster;
        of_cluster_ = host;
    }
    if (cluster == 0 || cluster == cluster_) return {};
    return make_error(ErrorCode::config, name_ + ": " + each_[host] +
                                             " is of another cluster than " + each_[of_cluster_] +
                                             "; a URL names the hosts of one; nothing was applied");
}

Result<void> Hosts::check_timeline(std::size_t host, std::uint64_t timeline) {
    const std::lock_guard lock(mutex_);
    newest_ = std::max(newest_, timeline);
    if (timeline == 0 || timeline == newest_) return {};
    return make_error(ErrorCode::unavailable,
                      name_ + ": " + each_[host] + " was replaced: its timeline is " +
                          std::to_string(timeline) + ", that of the primary " +
                          std::to_string(newest_),
                      {}, SqlCondition::read_only);
}

std::optional<Error> Hosts::refusal() {
    const std::lock_guard lock(mutex_);
    return refusal_;
}

void Hosts::set_refusal(std::optional<Error> refusal) {
    const std::lock_guard lock(mutex_);
    refusal_ = std::move(refusal);
}

Error Hosts::none(const std::vector<std::optional<Error>>& refusals) const {
    std::string text = name_ + (use_ == HostUse::writes  ? ": no host takes writes"
                                : use_ == HostUse::reads ? ": no host is a standby"
                                                         : ": no host answers");
    std::string code;
    for (std::size_t host = 0; host < each_.size(); ++host) {
        std::string why = "not dialled before the deadline";
        if (const auto& refusal = refusals[host]) {
            why = refusal->code == ErrorCode::deadline ? "no answer" : refusal->message;
            if (why.starts_with(name_ + ": ")) why.erase(0, name_.size() + 2);
            if (why.starts_with(each_[host] + " ")) why.erase(0, each_[host].size() + 1);
            cut(why, "; nothing was applied");
            if (!refusal->server_code.empty()) code = refusal->server_code;
        }
        text += (host == 0 ? ": " : "; ") + each_[host] + ": " + why;
    }
    return make_error(ErrorCode::unavailable, text + "; nothing was applied", code,
                      SqlCondition::read_only);
}

}  // namespace hotcount::sql
