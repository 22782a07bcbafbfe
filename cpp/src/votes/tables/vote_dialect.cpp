#include "vote_dialect.hpp"

#include "count_reader.hpp"
#include "hotcount_embedded/votes/sql.hpp"
#include "sync_pages.hpp"

namespace hotcount {

std::string VoteDialect::fold_lagging(const VoteNames& n) const {
    return vote_statements(vote_sql::kCountsSql, n, grammar())["fold_lagging"];
}

BulkStatement VoteDialect::read_counts(const VotesOptions& options, const VoteNames& n) const {
    return BulkStatement{select_counts(n, grammar(), count_place(options, grammar().dialect()))};
}

std::optional<sql::Statement> VoteDialect::read_counts_of_array(const VotesOptions&,
                                                                const VoteNames&) const {
    return {};
}

std::optional<sql::Statement> VoteDialect::select_for_array(const VotesOptions&,
                                                            const NumberedReads::Select&) const {
    return {};
}

std::optional<sql::Statement> VoteDialect::get_of_array(const VotesOptions&,
                                                        const VoteNames&) const {
    return {};
}

std::optional<sql::Statement> VoteDialect::create_items(const VotesOptions&,
                                                        const VoteNames&) const {
    return {};
}

std::string VoteDialect::id_array(std::span<const sql::Id>) const { return {}; }

Result<std::string> VoteDialect::item_type(sql::Connection&, const VotesOptions&) const {
    return std::string{};
}

std::unique_ptr<SyncPages> VoteDialect::sync_pages(const VotesOptions&, const VoteNames&) const {
    return nullptr;
}

}  // namespace hotcount
