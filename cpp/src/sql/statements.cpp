#include "statements.hpp"

#include <algorithm>
#include <cctype>
#include <functional>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace hotcount::sql {
namespace {

constexpr std::string_view kName = "-- name: ";

std::string_view trimmed(std::string_view text) {
    const std::size_t first = text.find_first_not_of(" \t\r");
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

/// The next line of `text`, which loses it.
std::string_view take_line(std::string_view& text) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    return line;
}

[[noreturn]] void refuse(std::string_view statement, std::string_view why) {
    throw std::logic_error("SQL statement " + std::string{statement} + ": " + std::string{why});
}

/// The lines of one statement with its names put in.
class Writer {
  public:
    using Value = std::function<std::string(std::string_view name)>;

    Writer(std::string_view statement, Value value)
        : statement_(statement), value_(std::move(value)) {}

    void add(std::string_view line) {
        if (const auto condition = after(line, "--if ")) return begin(*condition);
        if (line == "--else") {
            if (blocks_.empty() || blocks_.back().is_each)
                refuse(statement_, "--else without --if");
            blocks_.back().is_kept = !blocks_.back().is_kept;
            return;
        }
        if (const auto separator = after(line, "--each ")) {
            blocks_.push_back({is_kept(), true});
            if (!is_kept()) return;
            const bool is_word = std::isalpha(static_cast<unsigned char>(separator->front())) != 0;
            text_ += std::string{' ', kRowsMark} + (is_word ? " " : "") + std::string{*separator} +
                     ' ' + kRowsMark;
            joins_ = false;
            return;
        }
        if (line == "--end") return end();
        if (line.starts_with("--") || line.empty() || !is_kept()) return;
        if (joins_ && !text_.empty() && text_.back() != '\n') {
            text_ += text_.back() == ';' ? '\n' : ' ';
        }
        joins_ = true;
        put_in(line);
    }

    std::string text() && {
        if (!blocks_.empty()) refuse(statement_, "a block without --end");
        if (text_.ends_with(';')) text_ += '\n';
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
        blocks_.push_back({value_(condition).empty() == negated, false});
    }

    void end() {
        if (blocks_.empty()) refuse(statement_, "--end without a block");
        const bool is_each = blocks_.back().is_each;
        if (is_each && is_kept()) text_ += kRowsMark;
        blocks_.pop_back();
    }

    void put_in(std::string_view line) {
        char quote = '\0';
        for (std::size_t i = 0; i < line.size(); ++i) {
            const char c = line[i];
            if (quote != '\0') {
                if (c == quote) quote = '\0';
            } else if (c == '\'' || c == '"') {
                quote = c;
            } else if (c == '{') {
                const std::size_t close = line.find('}', i);
                if (close == std::string_view::npos) refuse(statement_, "{ without }");
                text_ += value_(line.substr(i + 1, close - i - 1));
                i = close;
                continue;
            } else if (c == ' ' && text_.ends_with(' ')) {
                continue;
            }
            text_ += c;
        }
    }

    const std::string_view statement_;
    const Value value_;
    std::vector<Block> blocks_{};
    std::string text_{};
    bool joins_{true};
};

}  // namespace

Statements::Statements(std::string_view file, Names names) : names_(std::move(names)) {
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

std::string Statements::operator[](std::string_view name) const { return with(name, {}); }

std::string Statements::with(std::string_view name, const Names& more) const {
    const auto part = parts_.find(name);
    if (part == parts_.end()) refuse(name, "the file has none of this name");
    Writer writer{name, [&](std::string_view of) -> std::string {
                      if (const auto found = more.find(of); found != more.end()) {
                          return found->second;
                      }
                      if (const auto found = names_.find(of); found != names_.end()) {
                          return found->second;
                      }
                      if (parts_.contains(of)) return with(of, more);
                      refuse(name, "nothing is given for {" + std::string{of} + "}");
                  }};
    for (std::string_view text = part->second; !text.empty();) writer.add(take_line(text));
    return std::move(writer).text();
}

}  // namespace hotcount::sql
