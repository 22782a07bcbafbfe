#include "cluster_map.hpp"

#include <poll.h>

#include <algorithm>
#include <hotcount/detail/base/random.hpp>
#include <utility>

#include "commands.hpp"
#include "dialer.hpp"

namespace hotcount::redis {
namespace {

using namespace std::chrono_literals;

constexpr Duration kSilence = 1500ms;
// Time limit for the handshake with a node, and again for its answer, before the next node is
// asked.
constexpr Duration kPatience = 250ms;
constexpr Duration kMapAge = 30s;
// How long a lost node stays in doubt after the last report, with connect_timeout on top: longer than
// the dialer pauses between two dials, since each dial that fails is a report.
constexpr Duration kDoubt = 5s;
// Within this time a primary that is back learns from the other nodes that it was replaced: they tell it
// at its first ping, and it pings one of them each second.
constexpr Duration kHasHeard = 5s;
// Rate limit of requests for a map: one each 125 ms, in a burst of at most eight.
constexpr Duration kCost = 125ms;
constexpr Duration kCredit = 8 * kCost;

Error no_cluster(const Endpoint& endpoint, const std::string& reply) {
    return make_error(ErrorCode::config, "redis " + endpoint.str() +
                                             ": this server is no node of a cluster (" + reply +
                                             "): write redis://" + endpoint.str() +
                                             " for one server, redis+sentinel://" + endpoint.str() +
                                             "/SERVICE/0 for a Sentinel");
}

// All nodes ask for a login through one Logins: one call of the user's function at a time.
Options with_shared_logins(Options options) {
    if (options.credentials) {
        options.credentials = [logins = std::make_shared<Logins>(options.credentials, kLateLogin),
                               patience = options.connect_timeout] {
            return logins->ask(Deadline::after(patience));
        };
    }
    return options;
}

}  // namespace

ClusterMap::ClusterMap(const Options& options, std::shared_ptr<KnownScripts> scripts)
    : options_(with_shared_logins(options)),
      scripts_(std::move(scripts)),
      router_(options.address_map) {}

// The time that a node may be silent does not grow with the timeout of calls: it has to be shorter than
// the cluster needs to replace a node.
Options ClusterMap::options_of(const Endpoint& endpoint) const {
    Options options = options_;
    options.cluster = false;
    options.seeds.clear();
    options.host = endpoint.host;
    options.port = endpoint.port;
    if (options.silence_limit == Duration{0}) options.silence_limit = kSilence;
    return options;
}

const ClusterMap::Node& ClusterMap::node(std::uint16_t number) {
    const std::lock_guard lock(mutex_);
    auto& node = nodes_[number];
    if (node == nullptr) {
        const auto known = router_.node(number);
        node = std::make_unique<Node>();
        node->options = options_of(known ? known->endpoint : Endpoint{});
        node->dialer = std::make_shared<Dialer>(node->options, scripts_);
        node->heard = std::make_shared<NodeHeard>();
        // A call that was under way during close() may be redirected to a node that is new here.
        if (closed_) node->dialer->close();
    }
    return *node;
}

bool ClusterMap::is_closed() {
    const std::lock_guard lock(mutex_);
    return closed_;
}

// -- requests for a map ---------------------------------------------------------------------------

void ClusterMap::want() {
    const std::lock_guard lock(mutex_);
    schedule(std::chrono::steady_clock::now());
}

void ClusterMap::doubts(std::uint16_t node) {
    const std::lock_guard lock(mutex_);
    doubted_.try_emplace(node);
    schedule(std::chrono::steady_clock::now());
}

void ClusterMap::lost(std::uint16_t node) {
    const std::lock_guard lock(mutex_);
    doubted_[node] = std::chrono::steady_clock::now();
    schedule(std::chrono::steady_clock::now());
}

// Under the mutex.
void ClusterMap::schedule(SteadyTime not_before) {
    if (closed_) return;
    if (refreshing_) {
        again_ = true;
        return;
    }
    const SteadyTime at = std::max(not_before, paid_until_ - kCredit);
    if (at >= due_ || !pool_.start())
        return;  // Without a thread the next call of want() tries again.
    due_ = at;
    pool_.run_at(at, [weak = weak_from_this(), at] {
        if (const auto self = weak.lock()) self->refresh(at);
    });
}

// A task whose `due` differs from due_ does nothing: an earlier request was scheduled meanwhile.
void ClusterMap::refresh(SteadyTime due) {
    {
        const std::lock_guard lock(mutex_);
        if (closed_ || due != due_) return;
        due_ = SteadyTime::max();
        refreshing_ = true;
        again_ = false;
        const auto jitter = Duration{static_cast<Duration::rep>(
            thread_random().below(static_cast<std::uint64_t>(kCost.count()) / 8))};
        paid_until_ = std::max(paid_until_, std::chrono::steady_clock::now()) + kCost + jitter;
    }
    const SteadyTime began = std::chrono::steady_clock::now();
    std::optional<Error> why;
    bool found = false;
    AskedLogin login;
    const std::vector<Endpoint> all = candidates();
    // After a failure of the user's credentials function no further node is asked.
    for (std::size_t i = 0; i < all.size() && !found && !login.failed() && !is_closed(); ++i) {
        const SteadyTime asked_at = std::chrono::steady_clock::now();
        const bool is_last = i + 1 == all.size();
        auto map = ask(all[i], login, is_last ? options_.connect_timeout : kPatience);
        if (!map) {
            // A refusal is more specific than a timeout: keep it.
            if (!why || map.error().code != ErrorCode::deadline) why = std::move(map).error();
            const std::lock_guard lock(mutex_);
            last_refusal_ = why;
            continue;
        }
        found = true;
        router_.apply(*map, all[i]);
        Told told{asked_at, router_.node_at(all[i]), map->has_epochs, {}, {}, {}};
        const std::lock_guard lock(mutex_);
        for (const NodeInfo& info : map->nodes) {
            const std::uint16_t number = router_.node_at(router_.translate(info.endpoint));
            told.owners[number] = info.epoch;
            if (!told_) continue;
            const auto before = told_->owners.find(number);
            // The node may have been replaced and promoted again since.
            if (before != told_->owners.end() && before->second != info.epoch) {
                told.changed.insert(number);
            }
        }
        for (NodeInfo& info : map->without_slots) {
            info.endpoint = router_.translate(info.endpoint);
            told.without_slots.push_back({std::move(info), asked_at});
            if (!told_) continue;
            WithoutSlots& now = told.without_slots.back();
            for (const WithoutSlots& before : told_->without_slots) {
                const bool same = before.primary.id == now.primary.id &&
                                  before.primary.endpoint == now.primary.endpoint &&
                                  before.primary.epoch == now.primary.epoch;
                if (same) now.since = before.since;
            }
        }
        told_ = std::move(told);
        const SteadyTime now = std::chrono::steady_clock::now();
        for (const auto& [number, node] : nodes_) {
            if (owns(number) == false) node->heard->replaced(now);
        }
    }
    {
        const std::lock_guard lock(mutex_);
        refreshing_ = false;
        if (closed_) asked_.reset();
        if (found) {
            failure_.reset();
            last_refusal_.reset();
            settle_doubts(began);
        } else if (why) {
            failure_.emplace(began, *why);
        }
        if (again_) schedule(std::chrono::steady_clock::now());
        if (found) {
            schedule(std::chrono::steady_clock::now() + (doubted_.empty() ? kMapAge : kCost));
        }
    }
    tell();
}

// Under the mutex, with a new map in told_.
void ClusterMap::settle_doubts(SteadyTime asked_at) {
    std::erase_if(doubted_, [&](const auto& each) {
        const auto& [number, since] = each;
        const auto known = nodes_.find(number);
        const bool heard = known != nodes_.end() && known->second->heard->last() > since;
        return heard || !told_->owners.contains(number) ||
               since + kDoubt + options_.connect_timeout < asked_at;
    });
}

// The nodes to ask, in order: primaries without doubt, then the seeds, then primaries in doubt.
std::vector<Endpoint> ClusterMap::candidates() {
    std::map<std::uint16_t, SteadyTime> doubted;
    {
        const std::lock_guard lock(mutex_);
        doubted = doubted_;
    }
    std::vector<Endpoint> first;
    std::vector<Endpoint> last;
    for (const std::uint16_t number : router_.primaries()) {
        const auto node = router_.node(number);
        if (node) (doubted.contains(number) ? last : first).push_back(node->endpoint);
    }
    if (!first.empty()) {
        std::rotate(
            first.begin(),
            first.begin() + static_cast<std::ptrdiff_t>(thread_random().below(first.size())),
            first.end());
    }
    // An open connection saves a handshake, so its node comes first.
    if (asked_) {
        // Not of std::ranges, which clang 14 does not compile.
        std::stable_partition(first.begin(), first.end(), [&](const Endpoint& endpoint) {
            return endpoint == asked_->endpoint;
        });
    }
    const auto add = [&](const Endpoint& endpoint) {
        if (std::ranges::find(first, endpoint) == first.end()) first.push_back(endpoint);
    };
    for (const Endpoint& seed : options_.seeds) {
        if (std::ranges::find(last, seed) == last.end()) add(seed);
    }
    for (const Endpoint& endpoint : last) add(endpoint);
    return first;
}

Result<Login> ClusterMap::login() {
    if (!options_.credentials) return Login{options_.user, options_.password};
    auto login = options_.credentials();
    if (login) return login;
    return make_error(login.error().code, options_.address() + ": " + login.error().message);
}

// Resolves in a thread of its own: a lookup that hangs delays the next node only until `deadline`.
Result<std::vector<Address>> ClusterMap::addresses_of(const Endpoint& endpoint, Deadline deadline) {
    auto& name = names_[endpoint.str()];
    if (name == nullptr) {
        name = std::make_shared<Names>([endpoint] { return resolve(endpoint); },
                                       "the name did not resolve in time");
    }
    auto found = name->ask(deadline);
    if (found) return found;
    return make_error(found.error().code, "redis " + endpoint.str() + ": " + found.error().message);
}

Result<Topology> ClusterMap::ask(const Endpoint& endpoint, AskedLogin& login, Duration patience) {
    if (asked_ && (asked_->endpoint != endpoint || asked_->connection->stale())) asked_.reset();
    if (!asked_) {
        if (!login.answer) login.answer.emplace(this->login());
        if (login.failed()) return login.answer->error();
        Asked made{endpoint, std::make_unique<const Options>(options_of(endpoint)), nullptr};
        HOTCOUNT_TRY_ASSIGN(const TlsContext tls, make_tls_context(*made.options));
        const Deadline first = Deadline::after(patience);
        HOTCOUNT_TRY_ASSIGN(const auto addresses, addresses_of(endpoint, first));
        Deadline until = first;
        const auto open = [&] {
            return open_any(*made.options, tls, **login.answer, addresses, until);
        };
        const auto renew = [&]() -> Result<bool> {
            login.answer.emplace(this->login());
            if (login.failed()) return login.answer->error();
            until = Deadline::after(patience);
            return true;
        };
        auto opened = options_.credentials ? open_in_rotation(open, renew, login.again) : open();
        if (!opened) return std::move(opened).error();
        made.connection = std::move(*opened);
        asked_.emplace(std::move(made));
    }
    auto map = ask_over(*asked_->connection, endpoint, Deadline::after(patience));
    if (!map) asked_.reset();
    return map;
}

Result<Topology> ClusterMap::ask_over(Connection& connection, const Endpoint& endpoint,
                                      Deadline deadline) {
    const std::string_view slots[] = {"CLUSTER", "SLOTS"};
    const std::string_view nodes[] = {"CLUSTER", "NODES"};
    std::string bytes;
    encode_command(bytes, slots);
    encode_command(bytes, nodes);
    HOTCOUNT_TRY_ASSIGN(const std::size_t taken, connection.write_some(bytes));
    if (taken != bytes.size()) {
        return make_error(ErrorCode::unavailable, "redis " + endpoint.str() + " takes no bytes");
    }
    std::vector<Reply> replies;
    while (replies.size() < 2) {
        HOTCOUNT_TRY_ASSIGN(auto reply, connection.next_reply());
        if (reply) {
            replies.push_back(std::move(*reply));
            continue;
        }
        HOTCOUNT_TRY_ASSIGN(const bool more, connection.read_some());
        if (!more && !connection.wait_for(POLLIN, deadline)) {
            return make_error(ErrorCode::deadline,
                              "redis " + endpoint.str() + " did not answer CLUSTER SLOTS in time");
        }
    }
    if (const auto* const error = std::get_if<ReplyError>(&replies[0].value)) {
        const bool none = error->message.find("cluster support disabled") != std::string::npos ||
                          error->message.find("unknown command") != std::string::npos;
        if (none) return no_cluster(endpoint, error->message);
        return error_from_reply(error->message, "redis " + endpoint.str() + ": CLUSTER SLOTS");
    }
    return read_topology(replies[0], &replies[1], endpoint);
}

// -- results for lanes and listeners --------------------------------------------------------------

std::optional<Error> ClusterMap::failure_since(SteadyTime time) {
    const std::lock_guard lock(mutex_);
    if (!failure_ || failure_->first < time) return {};
    return failure_->second;
}

Error ClusterMap::why_none() {
    const std::lock_guard lock(mutex_);
    if (last_refusal_) return *last_refusal_;
    return make_error(ErrorCode::deadline,
                      options_.address() + ": no node of the cluster has answered CLUSTER SLOTS");
}

std::optional<ClusterMap::Confirmation> ClusterMap::confirmation(std::uint16_t node) {
    const std::lock_guard lock(mutex_);
    if (!told_) return {};
    // If one primary has all slots, no other primary exists that could elect a successor.
    const bool alone = told_->owners.size() == 1 && told_->owners.contains(node);
    if (told_->by == node && !alone) return {};
    const auto owns = this->owns(node);
    if (!owns) return {};
    return Confirmation{*owns, told_->asked_at};
}

// Under the mutex, with a map in told_.
std::optional<bool> ClusterMap::owns(std::uint16_t node) const {
    if (told_->owners.contains(node)) return !told_->changed.contains(node);
    if (told_->has_epochs && router_.owns(node)) return {};
    return imports_its_first_slot(node);
}

// Without slots it has no successor. A primary that lost all slots to its successor while it was away was
// failing in the map before, and is a replica soon after it is back. So a node that has had slots must
// have been without for kHasHeard; calls that were sent before are unknown (NodeHeard::replaced()).
bool ClusterMap::imports_its_first_slot(std::uint16_t node) const {
    if (told_->without_slots.empty()) return false;
    const auto known = router_.node(node);
    if (!known) return false;
    const Duration least = known->id.empty() ? Duration{1} : kHasHeard;
    return std::ranges::any_of(told_->without_slots, [&](const WithoutSlots& each) {
        return each.primary.endpoint == known->endpoint && told_->asked_at - each.since >= least;
    });
}

void ClusterMap::listen(std::weak_ptr<void> alive, std::function<void()> listener) {
    const std::lock_guard lock(mutex_);
    std::erase_if(listeners_, [](const Listener& each) { return each.alive.expired(); });
    listeners_.push_back({std::move(alive), std::move(listener)});
}

void ClusterMap::tell() {
    std::vector<Listener> all;
    {
        const std::lock_guard lock(mutex_);
        all = listeners_;
    }
    for (const Listener& each : all) {
        if (const auto held = each.alive.lock()) each.call();
    }
}

void ClusterMap::run_at(SteadyTime time, std::function<void()> task) {
    if (pool_.start()) pool_.run_at(time, std::move(task));
}

void ClusterMap::close() {
    std::vector<std::shared_ptr<Dialer>> dialers;
    {
        const std::lock_guard lock(mutex_);
        closed_ = true;
        if (!refreshing_) asked_.reset();  // Otherwise refresh() does it.
        for (const auto& [number, node] : nodes_) dialers.push_back(node->dialer);
    }
    for (const auto& dialer : dialers) dialer->close();
}

}  // namespace hotcount::redis
