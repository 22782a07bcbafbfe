// What a server's settings leave of a commit.
#include <hotcount/detail/base/codec.hpp>
#include <map>

#include "dialect.hpp"

namespace hotcount::sql {

bool is_off(std::string_view value) { return value == "off" || value == "OFF" || value == "0"; }

void Database::look_at_durability(const Statement& read, std::span<const WeakSetting> known) {
    std::map<std::string, std::string, std::less<>> settings;
    const RowVisitor see = [&](const Row& row) -> Result<void> {
        settings.emplace(row.text(0), row.text(1));
        return {};
    };
    const auto lease = writer(deadline({}));
    if (!lease || !(*lease)->query(read, {}, see)) return;
    const auto is_on = [&](std::string_view name) {
        const auto found = settings.find(name);
        return found != settings.end() && !is_off(found->second);
    };
    std::string weak;
    for (const WeakSetting& setting : known) {
        const auto found = settings.find(setting.name);
        if (found == settings.end() || !setting.is_weak(found->second)) continue;
        if (!setting.only_with.empty() && !is_on(setting.only_with)) continue;
        weak += (weak.empty() ? "" : "; ") + found->first + "=" + printable(found->second) + ": " +
                std::string{setting.cost};
    }
    if (weak.empty()) return;
    durability_warning_ =
        name() + " keeps commits less safely than hotcount's contracts say: " + weak;
}

}  // namespace hotcount::sql
