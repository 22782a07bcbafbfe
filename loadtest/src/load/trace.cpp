#include "workload.hpp"

#include <fmt/core.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "settings.hpp"

namespace hotcount::loadtest {
namespace {

constexpr std::string_view kHead = "time,item,user,value";
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr std::size_t kLongestLine = 250;  // Far above four numbers.
constexpr double kLongest_s = 30.0 * 24 * 3600;

std::optional<std::array<std::string_view, 4>> fields_of(std::string_view line) {
    std::array<std::string_view, 4> fields;
    for (std::size_t i = 0; i < fields.size(); ++i) {
        const std::size_t comma = line.find(',');
        if ((comma == std::string_view::npos) != (i + 1 == fields.size())) return std::nullopt;
        fields[i] = line.substr(0, comma);
        if (comma != std::string_view::npos) line.remove_prefix(comma + 1);
    }
    return fields;
}

template <class T>
std::optional<T> number(std::string_view text) {
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return value;
}

}  // namespace

Duration Trace::length() const { return Duration{lines_.empty() ? 0 : lines_.back().at_ns + 1}; }

Result<std::shared_ptr<const Trace>> Trace::read(const std::filesystem::path& path,
                                                 std::uint64_t most) {
    std::error_code unknown;
    if (std::filesystem::is_directory(path, unknown)) {
        return make_error(ErrorCode::config, fmt::format("{} is a folder", path.string()));
    }
    std::ifstream file(path);
    if (!file) {
        return make_error(ErrorCode::config, fmt::format("{} cannot be read: {}", path.string(),
                                                         std::strerror(errno)));
    }
    auto trace = std::make_shared<Trace>();
    trace->path_ = path;
    std::unordered_map<std::int64_t, std::int64_t> items;
    std::uint64_t at = 0;
    const auto refuse = [&](const std::string& why) {
        return make_error(ErrorCode::config,
                          fmt::format("{}, line {}: {}", path.string(), at, why));
    };
    double first_s = 0;
    double last_s = 0;
    std::array<char, kLongestLine + 2> room;
    for (;;) {
        file.getline(room.data(), room.size());
        const auto got = static_cast<std::size_t>(file.gcount());
        if (got == 0 && !file.bad()) break;
        ++at;
        if (file.bad()) return refuse(fmt::format("it cannot be read: {}", std::strerror(errno)));
        if (file.fail()) {
            return refuse(fmt::format("more than {} characters: that is no trace", kLongestLine));
        }
        // The end of the line is counted and not stored; the last line may have none.
        std::string_view line(room.data(), file.eof() ? got : got - 1);
        // The byte order mark that editors and spreadsheets put before UTF-8.
        if (at == 1 && line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (at == 1 && line == kHead) continue;
        if (trace->lines_.size() == most) {
            return refuse(fmt::format("more than --max-ops {} operations", most));
        }
        const auto fields = fields_of(line);
        if (!fields) return refuse(fmt::format("it has not the four fields {}", kHead));
        const auto& [time, item, user, value] = *fields;
        const auto time_s = number<double>(time);
        if (!time_s || !std::isfinite(*time_s)) {
            return refuse(fmt::format("'{}' is no time in seconds", time));
        }
        if (trace->lines_.empty()) first_s = last_s = *time_s;
        if (*time_s < last_s) {
            return refuse(fmt::format("its time {} is before that of the line before", time));
        }
        last_s = *time_s;
        if (last_s - first_s > kLongest_s) return refuse("it is more than 30 days after the first");
        const auto named = number<std::int64_t>(item);
        if (!named) return refuse(fmt::format("'{}' is no item", item));
        const bool reads = value.empty();
        const auto voter = number<std::int64_t>(user);
        if (!reads && (!voter || *voter < 1)) {
            return refuse(fmt::format("'{}' is no user: ids begin with 1", user));
        }
        if (!reads && value != "0" && value != "1") {
            return refuse(fmt::format(
                "its value is '{}'; it takes 1 for a vote, 0 to take it back, nothing to read",
                value));
        }
        const auto numbered =
            items.try_emplace(*named, static_cast<std::int64_t>(items.size()) + 1).first->second;
        if (items.size() > kMostItems) {
            return refuse(fmt::format("more than {} items", kMostItems));
        }
        const OperationKind kind = reads          ? OperationKind::read
                                   : value == "1" ? OperationKind::vote
                                                  : OperationKind::unvote;
        double& count = reads          ? trace->mix_.read
                        : value == "1" ? trace->mix_.vote
                                       : trace->mix_.unvote;
        count += 1;
        trace->lines_.push_back(
            {std::llround((last_s - first_s) * 1e9), {numbered, reads ? 0 : *voter, kind, false}});
    }
    if (trace->lines_.empty()) {
        return make_error(ErrorCode::config, fmt::format("{} has no operations", path.string()));
    }
    trace->items_ = items.size();
    return std::shared_ptr<const Trace>(std::move(trace));
}

}  // namespace hotcount::loadtest
