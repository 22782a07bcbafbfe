// What a server's settings leave of a commit.
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/sql.hpp>
#include <map>

namespace hotcount::sql {
namespace {

using Settings = std::map<std::string, std::string, std::less<>>;

// What the weaker settings cost, each on its own.
constexpr std::string_view kLost = "the last commits may be lost in a crash";
constexpr std::string_view kCorrupt = "a crash of the machine may corrupt the database";
constexpr std::string_view kUnlogged =
    "the binary log may lack the last commits after a crash, and replicas with it";

const Statement& settings_statement(Dialect dialect) {
    // In pg_settings, and not SHOW's alone: what holds for this session.
    static const Statement postgres{
        "SELECT name, setting FROM pg_settings "
        "WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit')"};
    // A variable that the server does not have is no error here.
    static const Statement mysql{
        "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('innodb_flush_log_at_trx_commit', "
        "'innodb_doublewrite', 'log_bin', 'sync_binlog')"};
    return dialect == Dialect::postgres ? postgres : mysql;
}

bool is_off(std::string_view value) { return value == "off" || value == "OFF" || value == "0"; }

std::string weaknesses(Dialect dialect, const Settings& settings) {
    std::string text;
    const auto look = [&](std::string_view name, auto&& is_weak, std::string_view cost) {
        const auto found = settings.find(name);
        if (found == settings.end() || !is_weak(found->second)) return;
        text += (text.empty() ? "" : "; ") + found->first + "=" + printable(found->second) + ": " +
                std::string{cost};
    };
    const auto is_not_one = [](std::string_view value) { return value != "1"; };
    if (dialect == Dialect::postgres) {
        look("fsync", is_off, kCorrupt);
        look("full_page_writes", is_off, kCorrupt);
        look("synchronous_commit", is_off, kLost);
        return text;
    }
    look("innodb_flush_log_at_trx_commit", is_not_one, kLost);
    look("innodb_doublewrite", is_off, kCorrupt);
    const auto logged = settings.find("log_bin");
    if (logged != settings.end() && !is_off(logged->second)) {
        look("sync_binlog", is_not_one, kUnlogged);
    }
    return text;
}

}  // namespace

void Database::look_at_durability() {
    Settings settings;
    const RowVisitor see = [&](const Row& row) -> Result<void> {
        settings.emplace(row.text(0), row.text(1));
        return {};
    };
    const auto lease = writer(deadline({}));
    if (!lease || !(*lease)->query(settings_statement(dialect()), {}, see)) return;
    const std::string found = weaknesses(dialect(), settings);
    if (found.empty()) return;
    durability_warning_ =
        name() + " keeps commits less safely than hotcount's contracts say: " + found;
}

}  // namespace hotcount::sql
