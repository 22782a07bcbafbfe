// Counts likes from lines "item user". A user's repeated likes of an item count once. Each user may
// send 5 lines a minute.
//
//   cmake --install build/release --prefix /tmp/hotcount --component cpp    # after `make build`
//   cmake -S examples/cpp -B build/example -DCMAKE_PREFIX_PATH=/tmp/hotcount
//   cmake --build build/example
//   printf '1 7\n1 8\n1 7\n2 7\n' | build/example/likes sqlite:///likes.db
//
// Several processes may use one database at once. PostgreSQL and MariaDB URLs work too.

#include <cstdint>
#include <cstdio>
#include <hotcount/hotcount.hpp>
#include <iostream>
#include <set>
#include <string>
#include <vector>

hotcount::Result<void> count_likes(const std::string& url) {
    using namespace hotcount;
    HOTCOUNT_TRY_ASSIGN(const auto database, sql::open_database(url));
    VotesOptions options;
    options.missing_item = MissingItem::create;
    HOTCOUNT_TRY_ASSIGN(const auto votes, Votes::make(database, options));
    HOTCOUNT_TRY(votes->create_tables());
    LimiterOptions limits;
    HOTCOUNT_TRY_ASSIGN(limits.rates, Rate::parse_many("5/minute"));
    HOTCOUNT_TRY_ASSIGN(const auto limiter, Limiter::make(database, limits));
    HOTCOUNT_TRY(limiter->create_table());

    std::vector<Ballot> ballots;
    std::set<std::int64_t> items;
    std::int64_t item = 0;
    std::int64_t user = 0;
    while (std::cin >> item >> user) {
        HOTCOUNT_TRY_ASSIGN(const Decision decision, limiter->hit(std::to_string(user)));
        if (!decision.allowed) {
            std::printf("user %lld: too many\n", static_cast<long long>(user));
            continue;
        }
        ballots.push_back({.item = item, .user = user});
        items.insert(item);
    }
    if (!std::cin.eof()) {
        return Error{ErrorCode::config, "a line is not \"item user\"; nothing was counted", ""};
    }
    // Many ballots share a transaction; each has a result of its own.
    for (const Result<Cast>& cast : votes->cast_many(ballots)) {
        if (!cast) std::fprintf(stderr, "%s\n", cast.error().message.c_str());
    }
    for (const std::int64_t each : items) {
        HOTCOUNT_TRY_ASSIGN(const Count count, votes->count(each));
        std::printf("item %lld: %lld\n", static_cast<long long>(each),
                    static_cast<long long>(count.value));
    }
    return {};
}

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: likes URL < LINES\n");
        return 2;
    }
    if (const auto done = count_likes(argv[1]); !done) {
        std::fprintf(stderr, "likes: %s\n", done.error().message.c_str());
        return 1;
    }
}
