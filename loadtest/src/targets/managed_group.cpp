#include "managed_group.hpp"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <hotcount/sql.hpp>
#include <numeric>
#include <thread>
#include <utility>

namespace hotcount::loadtest {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kForm = seconds{30};
constexpr Duration kFormLook = milliseconds{10};
constexpr Duration kCopy = seconds{5};
constexpr Duration kCopyLook = milliseconds{1};
constexpr Duration kAnswer = seconds{10};

std::uint64_t offset_in(const std::string& text) {
    return std::strtoull(text.c_str(), nullptr, 10);
}

}  // namespace

Result<std::unique_ptr<Managed>> start_group(ServerKind kind, bool durable,
                                             const std::atomic<bool>& interrupt) {
    switch (kind) {
        case ServerKind::redis_cluster:
            return start_cluster(durable, interrupt);
        case ServerKind::postgres_pair:
            return start_postgres_pair(interrupt);
        case ServerKind::galera:
            return start_galera(interrupt);
        default:
            return start_sentinel(durable, interrupt);
    }
}

Result<std::vector<std::uint16_t>> free_ports(std::size_t count) {
    std::vector<std::uint16_t> ports;
    std::vector<int> held;  // Until all are found, so that they differ.
    while (ports.size() < count) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof(address);
        const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0) held.push_back(fd);
        auto* const plain = reinterpret_cast<sockaddr*>(&address);
        if (fd < 0 || bind(fd, plain, size) != 0 || getsockname(fd, plain, &size) != 0) break;
        ports.push_back(ntohs(address.sin_port));
    }
    for (const int fd : held) close(fd);
    if (ports.size() == count) return ports;
    return make_error(ErrorCode::unavailable,
                      fmt::format("127.0.0.1 has no free port: {}", std::strerror(errno)));
}

Result<void> wait_until(std::string_view what, const std::atomic<bool>& interrupt,
                        const std::function<bool()>& holds) {
    const auto until = std::chrono::steady_clock::now() + kForm;
    while (!holds()) {
        if (interrupt) return make_error(ErrorCode::unavailable, "it was interrupted");
        if (std::chrono::steady_clock::now() > until) {
            return make_error(ErrorCode::unavailable,
                              fmt::format("after 30 s it still is not so that {}", what));
        }
        std::this_thread::sleep_for(kFormLook);
    }
    return {};
}

std::vector<pid_t> ServerGroup::pids() const {
    std::vector<pid_t> pids;
    for (const auto& node : nodes_) pids.push_back(node->pid());
    return pids;
}

std::uint64_t ServerGroup::starts() const {
    return std::accumulate(
        nodes_.begin(), nodes_.end(), std::uint64_t{0},
        [](std::uint64_t sum, const auto& node) { return sum + node->starts(); });
}

Result<std::int64_t> ask_number(const ManagedServer& server, const std::string& statement) {
    sql::DatabaseOptions options;
    options.timeout = kAnswer;
    HOTCOUNT_TRY_ASSIGN(const auto database, sql::open_database(server.url(), options));
    HOTCOUNT_TRY_ASSIGN(const sql::Lease lease, database->reader(Deadline::after(kAnswer)));
    std::int64_t found = 0;
    const sql::RowVisitor take = [&](const sql::Row& row) -> Result<void> {
        if (row.is_integer(0)) found = row.integer(0);
        return {};
    };
    HOTCOUNT_TRY(lease->query(sql::Statement(statement), {}, take));
    return found;
}

bool answers_with(const ManagedServer& server, const std::string& statement, std::int64_t number) {
    const auto found = ask_number(server, statement);
    return found && *found == number;
}

Result<void> RedisGroup::add_node(std::uint16_t port, bool durable, std::vector<std::string> more,
                                  const std::atomic<bool>& interrupt) {
    ManagedOptions options;
    options.port = port;
    options.durable = durable;
    options.more = std::move(more);
    // A replica is copied at once, and not after a wait for others.
    options.more.insert(options.more.end(), {"--repl-diskless-sync-delay", "0"});
    HOTCOUNT_TRY_ASSIGN(auto node, ManagedServer::start(ServerKind::redis, interrupt, options));
    wires_.push_back(std::make_unique<RedisWire>(node->socket()));
    nodes_.push_back(std::move(node));
    return {};
}

std::string RedisGroup::replication(std::size_t node, std::string_view name) {
    return wires_[node]->field({"INFO", "replication"}, name);
}

Result<SteadyTime> RedisGroup::await_copies() {
    const SteadyTime asked = std::chrono::steady_clock::now();
    // 0 until the first write.
    const std::string told = replication(struck_, "master_repl_offset");
    if (told.empty()) {
        return make_error(ErrorCode::unavailable,
                          "the primary does not answer: nothing was done to it");
    }
    const std::uint64_t written = offset_in(told);
    const auto has_all = [&](std::size_t heir) {
        return follows(heir) && offset_in(replication(heir, "slave_repl_offset")) >= written;
    };
    while (!std::all_of(heirs_.begin(), heirs_.end(), has_all)) {
        if (std::chrono::steady_clock::now() - asked > kCopy) {
            return make_error(ErrorCode::unavailable,
                              "no replica follows the primary: nothing was done to it");
        }
        std::this_thread::sleep_for(kCopyLook);
    }
    return asked;
}

Result<Managed::Strike> RedisGroup::strike(const Fault& fault) {
    HOTCOUNT_TRY_ASSIGN(struck_, next_struck());
    heirs_ = heirs_of(struck_);
    if (heirs_.empty()) {
        return make_error(ErrorCode::unavailable,
                          "the primary has no replica at present: nothing was done to it");
    }
    HOTCOUNT_TRY_ASSIGN(const SteadyTime copied, await_copies());
    const SteadyTime away = std::chrono::steady_clock::now();
    was_cut_ = fault.kind == FaultKind::redis_cut;
    switch (fault.kind) {
        case FaultKind::redis_failover:
            HOTCOUNT_TRY(fail_over());
            break;
        case FaultKind::redis_reshard:
            HOTCOUNT_TRY(reshard(fault.slots));
            break;
        case FaultKind::redis_cut:
            HOTCOUNT_TRY(cut_off());
            break;
        default:
            HOTCOUNT_TRY(nodes_[struck_]->strike(fault));
    }
    return Strike{away, copied};
}

Result<void> RedisGroup::mend(const Fault& fault) {
    if (fault.kind == FaultKind::redis_cut) return let_back();
    return lasts_by_itself(fault.kind) ? Result<void>{} : nodes_[struck_]->mend(fault);
}

bool RedisGroup::replaced() {
    return std::any_of(heirs_.begin(), heirs_.end(),
                       [this](std::size_t heir) { return serves(heir); });
}

Result<void> RedisGroup::reshard(std::uint32_t /*slots*/) {
    return make_error(ErrorCode::config, "slots are of a cluster");
}

Result<void> RedisGroup::cut_off() {
    return make_error(ErrorCode::config, "a majority is of a cluster");
}

Result<void> RedisGroup::let_back() { return {}; }

}  // namespace hotcount::loadtest
