#include <charconv>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/limiter.hpp>
#include <optional>

namespace hotcount {
namespace {

using std::chrono::microseconds;

struct Unit {
    std::string_view name;  // str() prints the last name of each length.
    microseconds length;
};

constexpr Unit kUnits[]{
    {"us", microseconds{1}},
    {"ms", std::chrono::milliseconds{1}},
    {"s", std::chrono::seconds{1}},
    {"sec", std::chrono::seconds{1}},
    {"m", std::chrono::minutes{1}},
    {"min", std::chrono::minutes{1}},
    {"h", std::chrono::hours{1}},
    {"hr", std::chrono::hours{1}},
    {"d", std::chrono::hours{24}},
    {"microsecond", microseconds{1}},
    {"millisecond", std::chrono::milliseconds{1}},
    {"second", std::chrono::seconds{1}},
    {"minute", std::chrono::minutes{1}},
    {"hour", std::chrono::hours{1}},
    {"day", std::chrono::hours{24}},
};

bool is_space(char c) { return c == ' ' || c == '\t'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Takes pieces off the front of a text.
class Reader {
  public:
    explicit Reader(std::string_view text) : rest_(text) { skip_spaces(); }

    bool at_end() const { return rest_.empty(); }
    bool at_digit() const { return !at_end() && is_digit(rest_.front()); }

    bool take(char c) {
        if (at_end() || rest_.front() != c) return false;
        rest_.remove_prefix(1);
        skip_spaces();
        return true;
    }
    std::optional<std::int64_t> take_number() {
        std::int64_t number = 0;
        if (!at_digit()) return std::nullopt;  // from_chars would take a sign.
        const auto [end, error] =
            std::from_chars(rest_.data(), rest_.data() + rest_.size(), number);
        if (error != std::errc{}) return std::nullopt;
        rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
        skip_spaces();
        return number;
    }
    std::string take_word() {
        std::string word;
        while (!at_end() && is_letter(rest_.front())) {
            word += static_cast<char>(rest_.front() | 0x20);  // Lower case.
            rest_.remove_prefix(1);
        }
        skip_spaces();
        return word;
    }

  private:
    void skip_spaces() {
        while (!at_end() && is_space(rest_.front())) rest_.remove_prefix(1);
    }
    std::string_view rest_;
};

std::optional<microseconds> find_unit(std::string_view word) {
    // "ms" is not the plural of "m", and "mss" is no unit.
    if (word.size() > 2 && word.back() == 's' && word != "mss") word.remove_suffix(1);
    for (const Unit& unit : kUnits) {
        if (unit.name == word) return unit.length;
    }
    return std::nullopt;
}

std::optional<Rate> read_rate(std::string_view text) {
    Reader reader{text};
    Rate rate;
    const auto limit = reader.take_number();
    if (!limit || (!reader.take('/') && reader.take_word() != "per")) return std::nullopt;
    const auto count = reader.at_digit() ? reader.take_number() : std::int64_t{1};
    const auto unit = find_unit(reader.take_word());
    if (!count || !unit) return std::nullopt;
    rate.limit = *limit;
    // A product that leaves 64 bits is above every bound of a period.
    rate.period = *count > microseconds::max() / *unit ? microseconds::max() : *count * *unit;
    rate.burst = rate.limit;
    if (!reader.at_end()) {
        if (reader.take_word() != "burst") return std::nullopt;
        const auto burst = reader.take_number();
        if (!burst) return std::nullopt;
        rate.burst = *burst;
    }
    if (!reader.at_end()) return std::nullopt;
    return rate;
}

Result<void> check_range(const char* what, std::int64_t value, std::int64_t least,
                         std::int64_t most) {
    if (value >= least && value <= most) return {};
    return bad_value(what, value,
                     "it takes " + std::to_string(least) + " to " + std::to_string(most));
}

}  // namespace

Result<void> check_rate(const Rate& rate) {
    HOTCOUNT_TRY(check_range("the rate's limit", rate.limit, 1, Rate::kMaxLimit));
    HOTCOUNT_TRY(check_range("the rate's burst", rate.burst, 1, Rate::kMaxLimit));
    return check_range("the rate's period in microseconds", rate.period.count(), 1000,
                       Rate::kMaxPeriod.count());
}

Result<Rate> Rate::parse(std::string_view text) {
    const auto rate = read_rate(text);
    if (!rate) {
        return make_error(ErrorCode::config,
                          "'" + printable(text) +
                              "' is no rate; it takes forms such as '100/minute', '10/2 hours' "
                              "and '100/minute burst 20', in seconds, minutes, hours or days")
            .about(&ErrorFacts::option, "rate")
            .about(&ErrorFacts::value, text);
    }
    if (const auto checked = check_rate(*rate); !checked) {
        return make_error(ErrorCode::config,
                          "'" + printable(text) + "': " + checked.error().message)
            .about(&ErrorFacts::option, "rate")
            .about(&ErrorFacts::value, text);
    }
    return *rate;
}

Result<std::vector<Rate>> Rate::parse_many(std::string_view text) {
    std::vector<Rate> rates;
    for (;;) {
        const std::size_t end = text.find_first_of(";,|");
        HOTCOUNT_TRY_ASSIGN(const Rate rate, parse(text.substr(0, end)));
        rates.push_back(rate);
        if (end == std::string_view::npos) return rates;
        text.remove_prefix(end + 1);
    }
}

std::string Rate::str() const {
    Unit largest = kUnits[0];
    for (const Unit& unit : kUnits) {
        if (period % unit.length == microseconds{0} && unit.length >= largest.length) {
            largest = unit;
        }
    }
    const std::int64_t count = period / largest.length;
    std::string text = std::to_string(limit) + "/";
    if (count != 1) text += std::to_string(count) + " ";
    text += largest.name;
    if (count != 1) text += "s";
    if (burst != limit) text += " burst " + std::to_string(burst);
    return text;
}

}  // namespace hotcount
