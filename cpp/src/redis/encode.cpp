#include "encode.hpp"

#include <charconv>

namespace hotcount::redis {
namespace {

void append_header(std::string& out, char type, std::size_t number) {
    char digits[24];
    const auto end = std::to_chars(digits, digits + sizeof(digits), number).ptr;
    out += type;
    out.append(digits, end);
    out += "\r\n";
}

}  // namespace

void encode_command(std::string& out, std::span<const std::string_view> command) {
    append_header(out, '*', command.size());
    for (const std::string_view argument : command) {
        append_header(out, '$', argument.size());
        out += argument;
        out += "\r\n";
    }
}

}  // namespace hotcount::redis
