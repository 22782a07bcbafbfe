#include "session_statement.hpp"

namespace hotcount::sql {
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
            // A doubled quote is one of the name's; one of `mark` is doubled in turn.
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
