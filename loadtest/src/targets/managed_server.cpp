#include "managed_server.hpp"

#include <fmt/core.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <future>
#include <hotcount/redis.hpp>
#include <hotcount/sql.hpp>
#include <iterator>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "load/run_folder.hpp"

namespace hotcount::loadtest {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kStart = seconds{30};
constexpr Duration kStop = seconds{10};
constexpr Duration kLook = milliseconds{5};
constexpr const char* kDataName = "data";

std::string read_all(const fs::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// Whether a server that gives up being root can get there.
bool others_may_enter(fs::path folder) {
    for (; !folder.empty() && folder != folder.root_path(); folder = folder.parent_path()) {
        std::error_code failed;
        const fs::perms allowed = fs::status(folder, failed).permissions();
        if (failed || (allowed & fs::perms::others_exec) == fs::perms::none) return false;
    }
    return true;
}

bool is_program(const fs::path& path) {
    std::error_code ignored;
    return access(path.c_str(), X_OK) == 0 && fs::is_regular_file(path, ignored);
}

/// Where Debian keeps programs that are not for every user's PATH.
std::vector<fs::path> folders_of_programs() {
    std::vector<fs::path> folders;
    // The newest PostgreSQL of those side by side.
    std::error_code none;
    int newest = 0;
    for (const auto& version : fs::directory_iterator("/usr/lib/postgresql", none)) {
        newest = std::max(newest, std::atoi(version.path().filename().c_str()));
    }
    if (newest > 0) folders.push_back(fmt::format("/usr/lib/postgresql/{}/bin", newest));
    const char* const path = std::getenv("PATH");
    std::string_view rest = path == nullptr ? "" : path;
    while (!rest.empty()) {
        const std::size_t colon = rest.find(':');
        folders.emplace_back(rest.substr(0, colon));
        rest = colon == std::string_view::npos ? "" : rest.substr(colon + 1);
    }
    folders.emplace_back("/usr/sbin");
    return folders;
}

fs::path find_program(std::initializer_list<const char*> names) {
    for (const char* const name : names) {
        for (const fs::path& folder : folders_of_programs()) {
            if (is_program(folder / name)) return folder / name;
        }
    }
    return {};
}

/// Of the folder that HOTCOUNT_MYSQL names, else on PATH, where MariaDB has a mysqld as well.
fs::path find_mysql() {
    if (const char* const home = std::getenv("HOTCOUNT_MYSQL"); home != nullptr && *home != '\0') {
        const fs::path program = fs::path{home} / "bin" / "mysqld";
        return is_program(program) ? program : fs::path{};
    }
    const fs::path program = find_program({"mysqld"});
    std::error_code ignored;
    return fs::canonical(program, ignored).filename() == "mariadbd" ? fs::path{} : program;
}

using Words = std::vector<std::string>;

/// How to find, start and reach the servers of a kind.
struct KindOfServer {
    const char* name;
    const char* package;  ///< Debian's.
    fs::path (*find)();   ///< The program; empty if it is not installed.
    const char* socket;   ///< Its name in the server's folder.
    std::string (*url)(const fs::path& folder);
    Words (*start)(const fs::path& program, const fs::path& folder, const ManagedOptions& options);
    /// The command that makes the data folder, before the first start; empty for Redis.
    Words (*prepare)(const fs::path& program, const fs::path& folder);
};

constexpr const char* kRedisSocket = "redis.sock";
constexpr const char* kConfigName = "redis.conf";
constexpr const char* kMysqlSocket = "mysql.sock";
constexpr const char* kStarterName = "wsrep_sst_hotcount";  // Galera looks for it on PATH.

Words redis_words(const fs::path& program, const fs::path& folder, const ManagedOptions& options) {
    const fs::path& kept = options.keep.empty() ? folder : options.keep;
    Words words{program};
    if (!options.config.empty()) words.push_back(folder / kConfigName);
    for (const std::string& word :
         Words{"--port", std::to_string(options.port), "--bind", "127.0.0.1", "--unixsocket",
               folder / kRedisSocket, "--unixsocketperm", "700", "--logfile",
               folder / ManagedServer::kLogName, "--daemonize", "no", "--dir", kept, "--dbfilename",
               kRedisDump, "--pidfile", kept / kRedisPid,
               // With a rule, however rare, it saves when it is terminated.
               "--save", options.keep.empty() ? "" : "86400 1000000000", "--appendonly",
               options.durable ? "yes" : "no", "--appendfsync", "always"}) {
        words.push_back(word);
    }
    words.insert(words.end(), options.more.begin(), options.more.end());
    return words;
}

// Its durability is PostgreSQL's own default. More connections than its 100, for strategies with a
// transaction for each of many callers.
Words postgres_words(const fs::path& program, const fs::path& folder,
                     const ManagedOptions& options) {
    Words words{program,
                "-D",
                folder / kDataName,
                "-c",
                options.port == 0 ? "listen_addresses=" : "listen_addresses=127.0.0.1",
                "-c",
                "unix_socket_directories=" + folder.string(),
                "-c",
                "max_connections=300",
                "-c",
                "logging_collector=off"};
    if (options.port != 0) words.insert(words.end(), {"-p", std::to_string(options.port)});
    words.insert(words.end(), options.more.begin(), options.more.end());
    return words;
}

// --no-sync: of the empty folder only; the server flushes what it writes.
Words postgres_preparation(const fs::path& program, const fs::path& folder) {
    return {program.parent_path() / "initdb",
            "-D",
            folder / kDataName,
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-locale",
            "--no-sync"};
}

std::string mysql_url(const char* scheme, const fs::path& folder) {
    return fmt::format("{}://root@localhost/hotcount?unix_socket={}", scheme,
                       (folder / kMysqlSocket).string());
}

Words mysql_command(const fs::path& program, const fs::path& folder, const Words& own) {
    // A killed server leaves temporary tables, which go with the folder.
    Words words{program, "--no-defaults", "--datadir=" + (folder / kDataName).string()};
    words.push_back("--tmpdir=" + folder.string());
    words.insert(words.end(), own.begin(), own.end());
    // It refuses to run as root unless it is told to.
    if (geteuid() == 0) words.emplace_back("--user=root");
    return words;
}

Words mysql_words(const fs::path& program, const fs::path& folder, const ManagedOptions& options,
                  const Words& own) {
    Words words{"--socket=" + (folder / kMysqlSocket).string(),
                "--pid-file=" + (folder / "mysql.pid").string(),
                "--log-error=" + (folder / ManagedServer::kLogName).string(), "--skip-log-bin",
                "--innodb-flush-log-at-trx-commit=1", "--innodb-buffer-pool-size=256M",
                // For ServerMeter.
                "--innodb-monitor-enable=trx_rw_commits", "--max-connections=300"};
    words.insert(words.end(), own.begin(), own.end());
    const Words reached = options.port == 0 ? Words{"--skip-networking"}
                                            : Words{"--bind-address=127.0.0.1",
                                                    fmt::format("--port={}", options.port)};
    words.insert(words.end(), reached.begin(), reached.end());
    words.insert(words.end(), options.more.begin(), options.more.end());
    words = mysql_command(program, folder, words);
    if (!options.config.empty()) words.insert(words.begin(), {"/bin/sh", folder / kStarterName});
    return words;
}

/// In the order of ServerKind.
constexpr KindOfServer kKinds[] = {
    {"redis-server", "redis-server",
     [] {
         return find_program({"redis-server", "valkey-server"});
     },
     kRedisSocket,
     [](const fs::path& folder) { return "redis+unix://" + (folder / kRedisSocket).string(); },
     &redis_words, [](const fs::path&, const fs::path&) { return Words{}; }},
    {"PostgreSQL", "postgresql", [] { return find_program({"postgres"}); },
     // The server puts this name together itself.
     ".s.PGSQL.5432",
     [](const fs::path& folder) {
         return "postgresql://postgres@/postgres?host=" + folder.string();
     },
     &postgres_words, &postgres_preparation},
    {"MariaDB", "mariadb-server-core", [] { return find_program({"mariadbd"}); }, kMysqlSocket,
     [](const fs::path& folder) { return mysql_url("mariadb", folder); },
     [](const fs::path& program, const fs::path& folder, const ManagedOptions& options) {
         return mysql_words(program, folder, options, {"--innodb-log-file-size=256M"});
     },
     // As mariadb-install-db, which needs a program of a package that installs a service.
     [](const fs::path& program, const fs::path& folder) {
         return mysql_command(program, folder,
                              {"--bootstrap", "--log-warnings=0", "--net-buffer-length=16K"});
     }},
    {"MySQL", "", &find_mysql, kMysqlSocket,
     [](const fs::path& folder) { return mysql_url("mysql", folder); },
     // Before 8.0.30 it has files of another size instead. The folder that Debian's and Ubuntu's
     // builds keep for LOAD DATA belongs to the service.
     [](const fs::path& program, const fs::path& folder, const ManagedOptions& options) {
         return mysql_words(
             program, folder, options,
             {"--loose-innodb-redo-log-capacity=256M", "--mysqlx=OFF", "--secure-file-priv=NULL"});
     },
     [](const fs::path& program, const fs::path& folder) {
         return mysql_command(program, folder,
                              {"--initialize-insecure",
                               "--init-file=" + (folder / ManagedServer::kBootstrapName).string()});
     }},
};

const KindOfServer& kind_of(ServerKind kind) { return kKinds[static_cast<std::size_t>(kind)]; }

std::string url_of(ServerKind kind, const fs::path& folder, const ManagedOptions& options) {
    if (options.port == 0 || kind == ServerKind::mariadb) return kind_of(kind).url(folder);
    return fmt::format("{}127.0.0.1:{}/{}",
                       kind == ServerKind::postgres ? "postgresql://postgres@" : "redis://",
                       options.port, kind == ServerKind::postgres ? "postgres" : "0");
}

/// A unix socket's path has 108 bytes: what TMPDIR names may be longer.
Result<OwnedFolder> make_folder(ServerKind kind) {
    const std::string prefix = fmt::format("hotcount-{}-", to_string(kind));
    std::string why = "their paths are too long for a socket, or its user may not enter them";
    for (const fs::path& parent : {temporary_parent(), fs::path{"/tmp"}}) {
        const fs::path longest = parent / (prefix + "XXXXXX");
        if ((longest / kind_of(kind).socket).string().size() >= sizeof(sockaddr_un::sun_path))
            continue;
        if (kind == ServerKind::postgres && geteuid() == 0 && !others_may_enter(parent)) continue;
        auto folder = OwnedFolder::make(parent, prefix);
        if (folder) return folder;
        why = folder.error().message;
    }
    return make_error(ErrorCode::config,
                      fmt::format("no temporary folder for a private server in {} or /tmp: {}",
                                  temporary_parent().string(), why));
}

}  // namespace

Result<fs::path> ManagedServer::find(ServerKind kind) {
    const KindOfServer& row = kind_of(kind);
    const fs::path program = row.find();
    if (!program.empty()) return program;
    return make_error(
        ErrorCode::config,
        kind == ServerKind::mysql
            ? "MySQL is not installed: no mysqld of its own is on PATH, nor in the "
              "folder bin of what HOTCOUNT_MYSQL names"
            : fmt::format("{} is not installed (Debian's package: {})", row.name, row.package));
}

ManagedServer::ManagedServer(ServerKind kind, OwnedFolder folder, ManagedOptions options)
    : Managed(url_of(kind, folder.path(), options)),
      kind_(kind),
      own_(std::move(folder)),
      folder_(own_.path()),
      options_(std::move(options)) {}

ManagedServer::~ManagedServer() {
    paused_.reset();
    // The data for a later audit is saved already, so the server need not save it again.
    if (!options_.keep.empty()) kill9();
    end();
    std::error_code ignored;
    if (!options_.keep.empty()) fs::remove_all(options_.keep, ignored);
}

fs::path ManagedServer::socket() const { return folder_ / kind_of(kind_).socket; }

void ManagedServer::end() {
    if (pid_ <= 0) return;
    // After SIGTERM, PostgreSQL waits until all clients have disconnected; SIGINT ends it at once.
    kill(pid_, kind_ == ServerKind::postgres ? SIGINT : SIGTERM);
    const auto until = std::chrono::steady_clock::now() + kStop;
    while (!ended()) {
        if (std::chrono::steady_clock::now() > until) return kill9();
        std::this_thread::sleep_for(kLook);
    }
}

Result<Managed::Strike> ManagedServer::strike(const Fault& fault) {
    const SteadyTime now = std::chrono::steady_clock::now();
    if (is_kill(fault.kind)) {
        kill9();
    } else {
        paused_.emplace(pid_);
    }
    return Strike{now, now};
}

Result<void> ManagedServer::mend(const Fault& fault) {
    if (is_kill(fault.kind)) return restart();
    paused_.reset();
    return {};
}

void ManagedServer::kill9() {
    if (pid_ <= 0) return;
    paused_.reset();
    kill_with_children(pid_);
    while (waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
    }
    pid_ = 0;
}

Result<void> ManagedServer::restart() {
    std::promise<Result<void>> launched;
    auto result = launched.get_future();
    starters_.emplace_back([&](const std::stop_token& ended) {
        launched.set_value(launch(words_));
        std::mutex mutex;
        std::condition_variable_any wake;
        std::unique_lock lock(mutex);
        wake.wait(lock, ended, [] { return false; });
    });
    HOTCOUNT_TRY(result.get());
    // A load that is interrupted is audited nevertheless, so that is no reason to give up.
    const std::atomic<bool> never{false};
    return wait_until_ready(never);
}

bool ManagedServer::ended() {
    const pid_t reaped = waitpid(pid_, &status_, WNOHANG);
    if (reaped == 0 || (reaped < 0 && errno == EINTR)) return false;
    pid_ = 0;
    return true;
}

std::string ManagedServer::said() const {
    const std::string log = read_all(folder_ / ManagedServer::kLogName);
    return log.empty() ? "nothing" : log;
}

/// PostgreSQL refuses to run as root: it becomes its own user, or nobody.
Result<void> ManagedServer::own_folder() {
    if (kind_ != ServerKind::postgres || geteuid() != 0) return {};
    const passwd* user = getpwnam("postgres");
    if (user == nullptr) user = getpwnam("nobody");
    if (user == nullptr || user->pw_uid == 0) {
        return make_error(ErrorCode::config,
                          "PostgreSQL does not run as root, and this machine has neither a user "
                          "postgres nor nobody");
    }
    user_ = user->pw_uid;
    group_ = user->pw_gid;
    if (chown(folder_.c_str(), user_, group_) == 0) return {};
    return make_error(ErrorCode::config,
                      fmt::format("chown {}: {}", folder_.string(), std::strerror(errno)));
}

/// The database, and before it MariaDB's system tables from its own scripts.
Result<void> ManagedServer::write_bootstrap() const {
    if (kind_ == ServerKind::postgres) return {};
    std::ofstream script(folder_ / ManagedServer::kBootstrapName);
    if (kind_ == ServerKind::mariadb) {
        std::error_code failed;
        fs::create_directories(folder_ / kDataName / "mysql", failed);
        script << "USE mysql;\nSET @auth_root_socket = NULL;\n";
        const fs::path scripts = "/usr/share/mysql";
        for (const char* const name : {"mysql_system_tables.sql", "mysql_performance_tables.sql",
                                       "mysql_system_tables_data.sql"}) {
            script << read_all(scripts / name);
        }
    }
    script << "CREATE DATABASE hotcount;\n";
    if (script.flush()) return {};
    return make_error(
        ErrorCode::config,
        fmt::format("{} cannot be written", (folder_ / ManagedServer::kBootstrapName).string()));
}

Result<void> ManagedServer::prepare(const fs::path& program, const std::atomic<bool>& interrupt) {
    if (!options_.config.empty()) {
        const fs::path path = folder_ / (kind_ == ServerKind::redis ? kConfigName : kStarterName);
        std::ofstream config(path);
        if (!(config << options_.config).flush() || chmod(path.c_str(), S_IRWXU) != 0) {
            return make_error(ErrorCode::config,
                              fmt::format("{} cannot be written", path.string()));
        }
    }
    const std::vector<std::string> words = options_.prepare
                                               ? options_.prepare(folder_ / kDataName)
                                               : kind_of(kind_).prepare(program, folder_);
    if (words.empty()) return {};
    HOTCOUNT_TRY(write_bootstrap());
    HOTCOUNT_TRY(launch(words));
    const auto until = std::chrono::steady_clock::now() + kStart;
    while (!ended()) {
        if (interrupt || std::chrono::steady_clock::now() > until) {
            return make_error(ErrorCode::unavailable,
                              interrupt ? "it was interrupted" : words[0] + " takes too long");
        }
        std::this_thread::sleep_for(kLook);
    }
    if (WIFEXITED(status_) && WEXITSTATUS(status_) == 0) return {};
    return make_error(ErrorCode::unavailable, fmt::format("{} failed: {}", words[0], said()));
}

bool ManagedServer::answers() const {
    if (kind_ != ServerKind::redis) {
        sql::DatabaseOptions options;
        options.timeout = seconds{1};
        return sql::open_database(url_, options).ok();
    }
    // Not the client's own ping(), which a replica and a Sentinel refuse.
    return RedisWire(socket()).ask({"PING"}).ok();
}

Result<void> ManagedServer::wait_until_ready(const std::atomic<bool>& interrupt) {
    const auto until = std::chrono::steady_clock::now() + kStart;
    while (!answers()) {
        if (interrupt) return make_error(ErrorCode::unavailable, "it was interrupted");
        if (ended() || std::chrono::steady_clock::now() > until) {
            return make_error(ErrorCode::unavailable,
                              fmt::format("the private server did not start; it said: {}", said()));
        }
        std::this_thread::sleep_for(kLook);
    }
    if (!options_.keep.empty()) save_when_terminated();
    return {};
}

/// Otherwise a Redis that cannot save, on a full disk, would outlive this program. Before 7.0 it does.
void ManagedServer::save_when_terminated() const {
    auto options = redis::parse_options(url_);
    if (!options) return;
    const auto client = redis::Client::make(std::move(*options));
    constexpr std::string_view kSet[] = {"CONFIG", "SET", "shutdown-on-sigterm", "save force"};
    if (client) (void)(*client)->execute(kSet);
}

Result<std::unique_ptr<ManagedServer>> ManagedServer::start(ServerKind kind,
                                                            const std::atomic<bool>& interrupt,
                                                            const ManagedOptions& options) {
    HOTCOUNT_TRY_ASSIGN(const fs::path program, find(kind));
    HOTCOUNT_TRY_ASSIGN(OwnedFolder folder, make_folder(kind));
    std::unique_ptr<ManagedServer> server(new ManagedServer(kind, std::move(folder), options));
    HOTCOUNT_TRY(server->own_folder());
    if (!options.dump.empty()) {
        std::error_code failed;
        fs::copy_file(options.dump, server->data_folder() / kRedisDump, failed);
        if (failed) {
            return make_error(
                ErrorCode::config,
                fmt::format("{} cannot be read: {}", options.dump.string(), failed.message()));
        }
    }
    HOTCOUNT_TRY(server->prepare(program, interrupt));
    server->words_ = kind_of(kind).start(program, server->folder_, options);
    HOTCOUNT_TRY(server->launch(server->words_));
    HOTCOUNT_TRY(server->wait_until_ready(interrupt));
    return server;
}

}  // namespace hotcount::loadtest
