#include "stored_law.hpp"

#include <charconv>

#include "backends.hpp"

namespace hotcount {

Error too_much_stored(const LimiterOptions& options, std::int64_t most) {
    return make_error(ErrorCode::config, "over a database " +
                                             std::string{to_string(options.algorithm)} +
                                             " takes limits up to " + std::to_string(most) +
                                             ": it writes its whole log with each hit");
}

std::string text_of(std::span<const std::int64_t> numbers) {
    std::string text;
    std::array<char, 24> digits{};
    for (const std::int64_t number : numbers) {
        if (!text.empty()) text += ' ';
        const auto end = std::to_chars(digits.begin(), digits.end(), number).ptr;
        text.append(digits.begin(), end);
    }
    return text;
}

std::vector<std::int64_t> numbers_of(std::string_view text) {
    std::vector<std::int64_t> numbers;
    const char* at = text.data();
    const char* const end = at + text.size();
    while (true) {
        std::int64_t number = 0;
        const auto [behind, wrong] = std::from_chars(at, end, number);
        if (wrong != std::errc{} || number < 0 || number > kExact) return {};
        numbers.push_back(number);
        if (behind == end) return numbers;
        if (*behind != ' ') return {};
        at = behind + 1;
    }
}

}  // namespace hotcount
