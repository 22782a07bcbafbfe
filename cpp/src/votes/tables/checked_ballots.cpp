#include "checked_ballots.hpp"

#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/codec.hpp>
#include <limits>

namespace hotcount {
namespace {

constexpr std::size_t kUuidLength = 36;

bool is_uuid(std::string_view text) {
    if (text.size() != kUuidLength) return false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        const bool hex = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
        if (dash ? c != '-' : !hex) return false;
    }
    return true;
}

}  // namespace

Result<void> check_id(const sql::Id& id, IdType type, const char* what, std::size_t most) {
    const auto* const text = std::get_if<std::string>(&id);
    if ((text == nullptr) != (type == IdType::integer)) {
        return make_error(ErrorCode::config, std::string{what} +
                                                 (text == nullptr ? " is an integer" : " is text") +
                                                 ", and the tables have ids of another type");
    }
    if (text == nullptr) return {};
    const auto refuse = [&](const std::string& why) {
        return make_error(ErrorCode::config,
                          std::string{what} + " " + why + ": '" + printable(*text) + "'");
    };
    if (type == IdType::uuid) {
        if (is_uuid(*text)) return {};
        return refuse("is not a UUID in lower-case hexadecimal with dashes");
    }
    if (text->find('\0') != std::string::npos) return refuse("has a NUL byte");
    if (text->size() > most) {
        return refuse("has " + std::to_string(text->size()) + " bytes, and takes at most " +
                      std::to_string(most));
    }
    if (!is_utf8(*text)) return refuse("is not valid UTF-8");
    return {};
}

Result<void> check_item(const sql::Id& item, const VotesOptions& options) {
    return check_id(item, options.item_type, "item");
}

Result<void> check_user(const sql::Id& user, const VotesOptions& options) {
    return check_id(user, options.user_type, "user");
}

Result<void> check_ballot(const Ballot& ballot, const VotesOptions& options) {
    // So that no sum of four billion votes leaves 64 bits, and no one vote stops a fold of many.
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
    if (ballot.value > kMost || ballot.value < -kMost) {
        return bad_value("value", ballot.value, "it takes -2147483647 to 2147483647");
    }
    HOTCOUNT_TRY(check_item(ballot.item, options));
    constexpr std::size_t kMostOfOpId = std::size_t{4} * 255;  // Characters: Ballot::anonymous().
    return ballot.by_op_id ? check_id(ballot.user, IdType::text, "op_id", kMostOfOpId)
                           : check_id(ballot.user, options.user_type, "user");
}

CheckedBallots::CheckedBallots(std::span<const Ballot> ballots, const VotesOptions& options)
    : size_(ballots.size()) {
    for (std::size_t i = 0; i < ballots.size(); ++i) {
        auto checked = check_ballot(ballots[i], options);
        if (checked) {
            if (!refused_.empty()) good_.push_back(ballots[i]);
            continue;
        }
        if (refused_.empty()) {
            good_.assign(ballots.begin(), ballots.begin() + static_cast<std::ptrdiff_t>(i));
        }
        refused_.emplace_back(i, std::move(checked).error());
    }
}

std::vector<Result<Cast>> CheckedBallots::merge(std::vector<Result<Cast>> results) const {
    std::vector<Result<Cast>> merged;
    merged.reserve(size_);
    auto next = results.begin();
    auto refused = refused_.begin();
    for (std::size_t i = 0; i < size_; ++i) {
        if (refused != refused_.end() && refused->first == i) {
            merged.emplace_back((refused++)->second);
        } else {
            merged.push_back(std::move(*next++));
        }
    }
    return merged;
}

}  // namespace hotcount
