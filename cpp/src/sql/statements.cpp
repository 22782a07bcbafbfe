#include "statements.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <functional>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace hotcount::sql {
namespace {

constexpr std::string_view kName = "-- name: ";
// Before and after the body of a function or block.
constexpr std::string_view kBody = "$hotcount$";

// Delimits an --each block in a statement's text: mark, separator, mark, row, mark.
constexpr char kRowsMark = '\x1e';

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view kSpace = " \t\r\n";
    const std::size_t first = text.find_first_not_of(kSpace);
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

/// Removes the next line from `text` and returns it without surrounding space.
std::string_view take_line(std::string_view& text) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    return line;
}

[[noreturn]] void refuse(std::string_view statement, std::string_view why) {
    throw std::logic_error("SQL statement " + std::string{statement} + ": " + std::string{why});
}

/// The index of the first character of `text` from `at` on that is outside quotes and for which
/// `ends` is true, or the size.
template <typename Ends>
std::size_t unquoted(std::string_view text, std::size_t at, Ends ends) {
    char quote = '\0';
    for (; at < text.size(); ++at) {
        const char c = text[at];
        if (quote != '\0') {
            if (c == quote) quote = '\0';
        } else if (c == '\'' || c == '"') {
            quote = c;
        } else if (ends(c)) {
            break;
        }
    }
    return at;
}

struct RowPlaceholder {
    std::string_view before;  ///< The text since the previous placeholder.
    bool is_number;           ///< #1, not ?1
    std::size_t number;
};

/// Removes the next ?1 or #1 and the text before it from `row`, and returns both.
std::optional<RowPlaceholder> take_placeholder(std::string_view& row) {
    const std::size_t at = unquoted(row, 0, [](char c) { return c == '?' || c == '#'; });
    if (at == row.size()) return std::nullopt;
    RowPlaceholder found{row.substr(0, at), row[at] == '#', 0};
    const char* const end = row.data() + row.size();
    const auto read = std::from_chars(row.data() + at + 1, end, found.number);
    row = {read.ptr, end};
    return found;
}

/// The index of the bracket that closes the one at `open`, or the size.
std::size_t closing(std::string_view text, std::size_t open) {
    int depth = 0;
    return unquoted(text, open, [&](char c) {
        if (c == '{' || c == '(') ++depth;
        return (c == '}' || c == ')') && --depth == 0;
    });
}

std::vector<std::string_view> split_arguments(std::string_view text) {
    std::vector<std::string_view> arguments;
    for (std::size_t begin = 0; begin <= text.size();) {
        int depth = 0;
        const std::size_t end = unquoted(text, begin, [&](char c) {
            if (c == '{' || c == '(') ++depth;
            if (c == '}' || c == ')') --depth;
            return c == ',' && depth == 0;
        });
        arguments.push_back(trimmed(text.substr(begin, end - begin)));
        begin = end + 1;
    }
    return arguments;
}

/// Builds the text of one statement from its lines.
class Writer {
  public:
    /// Replaces the references of a line by their values.
    using Fill = std::function<std::string(std::string_view line)>;
    /// Whether a flag of an --if is set.
    using IsSet = std::function<bool(std::string_view name)>;

    Writer(std::string_view statement, Fill fill, IsSet is_set)
        : statement_(statement), fill_(std::move(fill)), is_set_(std::move(is_set)) {}

    void add(std::string_view line) {
        if (const auto condition = after(line, "--if ")) return begin(*condition);
        if (line == "--else") {
            if (blocks_.empty() || blocks_.back().is_each)
                refuse(statement_, "--else without --if");
            blocks_.back().is_kept = !blocks_.back().is_kept;
            return;
        }
        if (line == "--each") return begin_rows(" ");
        if (const auto separator = after(line, "--each ")) {
            const bool is_word = std::isalpha(static_cast<unsigned char>(separator->front())) != 0;
            return begin_rows((is_word ? " " : "") + std::string{*separator} + ' ');
        }
        if (line == "--end") return end();
        if (const auto comment = after(line, "-->"); comment && is_kept()) {
            if (!text_.empty() && text_.back() != '\n') text_ += '\n';
            text_ += "-- " + std::string{*comment} + '\n';
            joins_ = false;
            return;
        }
        if (line.starts_with("--") || line.empty() || !is_kept()) return;
        std::string filled = fill_(line);
        if (in_body_) filled = one_line(std::move(filled));
        const std::string_view part = trimmed(filled);
        if (part.empty()) return;
        const bool begins_closed =
            part.front() == ',' || part.front() == ')' || part.front() == ';';
        if (!begins_closed) join();
        text_ += part;
        for (std::size_t at = part.find(kBody); at != std::string_view::npos;
             at = part.find(kBody, at + kBody.size())) {
            in_body_ = !in_body_;
        }
        const bool ends_statement = part.ends_with(';') && !in_body_;
        joins_ = !ends_statement && !part.ends_with('\n');
        if (ends_statement) text_ += '\n';
    }

    std::string text() && {
        if (!blocks_.empty()) refuse(statement_, "a block without --end");
        return std::move(text_);
    }

  private:
    struct Block {
        bool is_kept;
        bool is_each;
    };

    static std::optional<std::string_view> after(std::string_view line, std::string_view start) {
        if (!line.starts_with(start)) return std::nullopt;
        return trimmed(line.substr(start.size()));
    }

    bool is_kept() const {
        return std::all_of(blocks_.begin(), blocks_.end(), [](Block b) { return b.is_kept; });
    }

    void begin(std::string_view condition) {
        const bool negated = condition.starts_with('!');
        if (negated) condition.remove_prefix(1);
        blocks_.push_back({is_set_(condition) != negated, false});
    }

    void join() {
        if (joins_ && !text_.empty() && !text_.ends_with('(')) text_ += ' ';
    }

    void begin_rows(const std::string& separator) {
        blocks_.push_back({is_kept(), true});
        if (!is_kept()) return;
        join();
        text_ += kRowsMark + separator + kRowsMark;
        joins_ = false;
    }

    void end() {
        if (blocks_.empty()) refuse(statement_, "--end without a block");
        const bool is_each = blocks_.back().is_each;
        if (is_each && is_kept()) text_ += kRowsMark;
        blocks_.pop_back();
    }

    const std::string_view statement_;
    const Fill fill_;
    const IsSet is_set_;
    std::vector<Block> blocks_{};
    std::string text_{};
    bool joins_{true};
    bool in_body_{false};
};

}  // namespace

std::string one_line(std::string text) {
    const auto is_break = [&](char c) { return c == '\n'; };
    for (std::size_t at = unquoted(text, 0, is_break); at + 1 < text.size();
         at = unquoted(text, at, is_break)) {
        text[at] = ' ';
    }
    return text;
}

std::string repeat_rows(std::string_view text, std::size_t rows) {
    std::vector<std::string_view> pieces;  // A text; then a separator, a row and a text in turns.
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find(kRowsMark, begin), text.size());
        pieces.push_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    std::size_t first = 0;
    std::size_t last = 0;
    for (std::size_t i = 2; i < pieces.size(); i += 3) {
        for (std::string_view row = pieces[i]; const auto placeholder = take_placeholder(row);) {
            if (first == 0) first = placeholder->number;
            last = std::max(last, placeholder->number);
        }
    }
    std::string result{pieces.front()};
    for (std::size_t i = 2; i < pieces.size(); i += 3) {
        for (std::size_t number = 0; number < rows; ++number) {
            if (number > 0) result += pieces[i - 1];
            std::string_view row = pieces[i];
            while (const auto placeholder = take_placeholder(row)) {
                result += placeholder->before;
                const bool is_own = placeholder->number >= first;
                if (!placeholder->is_number) result += '?';
                result += std::to_string(placeholder->number +
                                         (is_own ? number * (last - first + 1) : 0));
            }
            result += row;
        }
        result += pieces[i + 1];
    }
    return result;
}

struct Statements::Scope {
    const Names& more;
    const std::vector<std::string>& arguments;
};

Statements::Statements(std::initializer_list<std::string_view> files, Names names)
    : names_(std::move(names)) {
    for (const std::string_view file : files) {
        std::size_t begin = file.find(kName);
        while (begin != std::string_view::npos) {
            std::string_view rest = file.substr(begin + kName.size());
            const std::size_t next = rest.find(kName);
            std::string_view text = rest.substr(0, next);
            const std::string_view name = take_line(text);
            parts_.emplace(name, text);
            begin = next == std::string_view::npos ? next : begin + kName.size() + next;
        }
    }
}

std::string Statements::operator[](std::string_view name) const { return with(name, {}); }

std::string Statements::with(std::string_view name, const Names& more) const {
    return call(name, {}, more);
}

std::string Statements::call(std::string_view name, const std::vector<std::string>& arguments,
                             const Names& more) const {
    return text_of(name, {more, arguments});
}

std::string Statements::text_of(std::string_view name, const Scope& scope) const {
    const auto part = parts_.find(name);
    if (part == parts_.end()) refuse(name, "the file has none of this name");
    Writer writer{name, [&](std::string_view line) { return filled(line, name, scope); },
                  [&](std::string_view flag) { return !value_of(flag, name, scope).empty(); }};
    for (std::string_view text = part->second; !text.empty();) writer.add(take_line(text));
    return std::move(writer).text();
}

// `text`, with each reference in braces outside quotes replaced by its value.
std::string Statements::filled(std::string_view text, std::string_view within,
                               const Scope& scope) const {
    std::string result;
    const auto copy = [&](std::string_view literal) {
        bool is_quoted = false;
        char quote = '\0';
        for (const char c : literal) {
            if (is_quoted ? c == quote : c == '\'' || c == '"') {
                is_quoted = !is_quoted;
                quote = c;
            }
            if (!is_quoted && c == ' ' && result.ends_with(' ')) continue;
            result += c;
        }
    };
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t open = unquoted(text, at, [](char c) { return c == '{'; });
        copy(text.substr(at, open - at));
        if (open == text.size()) break;
        const std::size_t close = closing(text, open);
        if (close == text.size()) refuse(within, "{ without }");
        result += value_of(text.substr(open + 1, close - open - 1), within, scope);
        at = close + 1;
    }
    return result;
}

// The value of the reference in the braces: a name, or a name and arguments.
std::string Statements::value_of(std::string_view reference, std::string_view within,
                                 const Scope& scope) const {
    const std::size_t open = reference.find('(');
    const std::string_view name = reference.substr(0, open);
    std::vector<std::string> arguments;
    if (open != std::string_view::npos) {
        if (!reference.ends_with(')')) refuse(within, "( without ) after {" + std::string{name});
        const auto given = reference.substr(open + 1, reference.size() - open - 2);
        for (const std::string_view argument : split_arguments(given)) {
            arguments.emplace_back(trimmed(filled(argument, within, scope)));
        }
    }
    if (name == "*") {
        std::string all;
        for (const std::string& argument : scope.arguments) {
            all += (all.empty() ? "" : ", ") + argument;
        }
        return all;
    }
    for (std::size_t i = 0; i < scope.arguments.size(); ++i) {
        if (name == std::to_string(i + 1)) return scope.arguments[i];
    }
    if (const auto found = scope.more.find(name); found != scope.more.end()) return found->second;
    if (const auto found = names_.find(name); found != names_.end()) return found->second;
    if (parts_.contains(name)) return text_of(name, {scope.more, arguments});
    refuse(within, "nothing is given for {" + std::string{name} + "}");
}

namespace {

std::string requoted(const Grammar& grammar, std::string_view text,
                     std::initializer_list<std::string_view> names, bool escapes_colons) {
    const char mark = grammar.session_quote();
    std::string made;
    made.reserve(text.size() + 32);
    char quote = '\0';
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (quote == '"') {
            // A doubled quote is a quote in the name. A `mark` in the name is doubled.
            if (c == '"' && i + 1 < text.size() && text[i + 1] == '"') {
                made += mark == '"' ? "\"\"" : "\"";
                ++i;
            } else if (c == '"') {
                made += mark;
                quote = '\0';
            } else {
                if (c == ':' && escapes_colons) made += '\\';
                if (c == mark) made += mark;
                made += c;
            }
        } else if (quote == '\'') {
            made += c;
            if (c == '\'') quote = '\0';
        } else if (c == '"' || c == '\'') {
            quote = c;
            made += c == '"' ? mark : c;
        } else if (c == '?') {
            // At most nine parameters.
            made += ':';
            made += *(names.begin() + (text[++i] - '1'));
        } else {
            made += c;
        }
    }
    return made;
}

}  // namespace

std::string session_statement(const Grammar& grammar, std::string_view text,
                              std::initializer_list<std::string_view> names) {
    return requoted(grammar, text, names, true);
}

std::string client_script(const Grammar& grammar, std::string_view text) {
    return requoted(grammar, text, {}, false);
}

}  // namespace hotcount::sql
