// What a server says before it has authenticated a client, in whatever parts it comes.
#include "dialects/postgres/authentication.hpp"

#include <gtest/gtest.h>

#include <string>

namespace hotcount::sql {
namespace {

using Finding = AuthenticationReader::Finding;

std::string message(char kind, const std::string& body) {
    const std::size_t length = body.size() + 4;
    std::string made(1, kind);
    for (const unsigned shift : {24U, 16U, 8U, 0U}) {
        made += static_cast<char>(length >> shift & 0xFFU);
    }
    return made + body;
}

std::string asks_for(char method) { return message('R', std::string("\0\0\0", 3) + method); }

TEST(AuthenticationReader, FindsTheRequestForTheClearTextWhereverItIsCut) {
    const std::string stream = message('N', "a notice") + asks_for(5) + asks_for(3) + "more";
    for (std::size_t cut = 0; cut <= stream.size(); ++cut) {
        AuthenticationReader reader;
        Finding finding = reader.see(stream.substr(0, cut));
        if (finding == Finding::harmless) finding = reader.see(stream.substr(cut));
        EXPECT_EQ(finding, Finding::clear_text) << cut;
    }
}

TEST(AuthenticationReader, FindsItByteByByteAndNoEarlierThanItIsThere) {
    const std::string stream = asks_for(10) + asks_for(3);
    AuthenticationReader reader;
    for (std::size_t i = 0; i < stream.size(); ++i) {
        const bool last = i + 1 == stream.size();
        EXPECT_EQ(reader.see(stream.substr(i, 1)), last ? Finding::clear_text : Finding::harmless);
    }
}

TEST(AuthenticationReader, LeavesOtherMethodsAndMessagesAlone) {
    AuthenticationReader reader;
    for (const int method : {0, 5, 7, 8, 9, 10, 11, 12}) {
        EXPECT_EQ(reader.see(asks_for(static_cast<char>(method))), Finding::harmless);
    }
    // The number 3 where it is not a request.
    EXPECT_EQ(reader.see(message('S', std::string("\0\0\0\3", 4))), Finding::harmless);
}

TEST(AuthenticationReader, ReadsNoMoreThanItsLimit) {
    AuthenticationReader reader;
    const std::string notice = message('N', std::string(100, 'x'));
    std::size_t said = 0;
    while (said + notice.size() <= AuthenticationReader::kMost) {
        EXPECT_EQ(reader.see(notice), Finding::harmless);
        said += notice.size();
    }
    EXPECT_EQ(reader.see(notice), Finding::excessive);
    AuthenticationReader other;
    EXPECT_EQ(other.see(std::string("R\x7f\xff\xff\xff", 5)), Finding::excessive);
}

}  // namespace
}  // namespace hotcount::sql
