#include "redis/router.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "redis/cluster_client.hpp"
#include "support/result_matchers.hpp"

namespace hotcount::redis {
namespace {

using hotcount::testing::failed_with;
using hotcount::testing::succeeded;

const Endpoint kAsked{"seed.example", 7000};

Reply number(std::int64_t value) { return Reply{value}; }
Reply text(const std::string& value) { return Reply{value}; }
Reply array(std::vector<Reply> elements) { return Reply{ReplyArray{std::move(elements)}}; }
Reply node(Reply host, std::int64_t port, const std::string& id) {
    return array({std::move(host), number(port), text(id), array({})});
}
Reply range(std::int64_t first, std::int64_t last, Reply owner) {
    return array({number(first), number(last), std::move(owner),
                  node(text("replica.example"), 7009, "replica")});
}

// Three primaries; "b" has two ranges, and slots 15000 to 16383 have no owner.
Reply slots_of_three() {
    return array({range(0, 4999, node(text("a.example"), 7001, "a")),
                  range(5000, 9999, node(text("::1"), 7002, "b")),
                  range(10000, 10000, node(Reply{}, 7003, "c")),
                  range(10001, 14999, node(text("::1"), 7002, "b"))});
}
const std::string kNodes =
    "a 127.0.0.1:7001@17001,a.example master - 0 1700000000000 4 connected 0-4999\n"
    "b ::1:7002@17002 master - 0 1700000000000 18446744073709551615 connected 5000-9999\n"
    "replica 127.0.0.1:7009@17009 slave a 0 1700000000000 4 connected\n"
    "c 127.0.0.1:7003@17003 myself,master - 0 0 7 connected 10000 [93->-a]\n";

TEST(Topology, JoinsSlotsAndNodesById) {
    const Reply nodes = text(kNodes);
    const auto read = read_topology(slots_of_three(), &nodes, kAsked);
    ASSERT_TRUE(succeeded(read));
    ASSERT_EQ(read->nodes.size(), 3U);
    EXPECT_TRUE(read->has_epochs);
    EXPECT_EQ(read->nodes[0].epoch, 4U);
    EXPECT_EQ(read->nodes[1].epoch, 18446744073709551615U);
    EXPECT_EQ(read->nodes[2].epoch, 7U);
    EXPECT_EQ(read->nodes[1].endpoint, (Endpoint{"::1", 7002}));
    EXPECT_EQ(read->owner[0], 0);
    EXPECT_EQ(read->owner[4999], 0);
    EXPECT_EQ(read->owner[5000], 1);
    EXPECT_EQ(read->owner[10000], 2);
    EXPECT_EQ(read->owner[14999], 1);
    EXPECT_EQ(read->owner[15000], Topology::kNoNode);
    EXPECT_EQ(read->owner.size(), kSlots);
}

TEST(Topology, NamesPrimariesWithoutSlotsThatAreReached) {
    const Reply nodes =
        text(kNodes +
             "d 127.0.0.1:7004@17004,d.example master - 0 1700000000000 8 connected\n"
             "e 127.0.0.1:7005@17005 master,fail - 0 1700000000000 9 disconnected\n"
             "f 127.0.0.1:7006@17006 master,fail? - 0 1700000000000 9 connected\n"
             "g ::1:7007@17007 myself,master - 0 0 3 connected [93-<-a]\n"
             "h :0@0 master,noaddr - 0 0 3 disconnected\n"
             "i 127.0.0.1:7008@17008 master - 0 0 3 disconnected\n");
    const auto read = read_topology(slots_of_three(), &nodes, kAsked);
    ASSERT_TRUE(succeeded(read));
    std::vector<std::string> found;
    for (const NodeInfo& each : read->without_slots) {
        found.push_back(each.id + " " + each.endpoint.str() + " " + std::to_string(each.epoch));
    }
    EXPECT_EQ(found, (std::vector<std::string>{"d 127.0.0.1:7004 8", "d d.example:7004 8",
                                               "g [::1]:7007 3"}));
}

TEST(Topology, WithoutNodesHasNoEpochs) {
    const Reply denied{ReplyError{"NOPERM this user has no permissions"}};
    for (const Reply* nodes : {static_cast<const Reply*>(nullptr), &denied}) {
        const auto read = read_topology(slots_of_three(), nodes, kAsked);
        ASSERT_TRUE(succeeded(read));
        EXPECT_FALSE(read->has_epochs);
        EXPECT_EQ(read->nodes[0].epoch, 0U);
    }
    EXPECT_TRUE(read_topology(array({}), nullptr, kAsked)->nodes.empty());
}

TEST(Topology, AnEndpointWithoutHostIsOnTheHostOfTheAskedNode) {
    for (const Reply& host : {Reply{}, text("")}) {
        const auto read =
            read_topology(array({range(0, 1, node(host, 7001, "a"))}), nullptr, kAsked);
        ASSERT_TRUE(succeeded(read));
        EXPECT_EQ(read->nodes[0].endpoint, (Endpoint{"seed.example", 7001}));
    }
    EXPECT_TRUE(failed_with(
        read_topology(array({range(0, 1, node(text("?"), 7001, "a"))}), nullptr, kAsked),
        ErrorCode::config, "cluster-announce-hostname"));
}

TEST(Topology, RefusesWhatContradictsItself) {
    const Reply a = node(text("a"), 7001, "a");
    const std::pair<Reply, std::string> cases[] = {
        {Reply{}, "no array"},
        {array({text("x")}), "without an owner"},
        {array({array({number(0), number(1)})}), "without an owner"},
        {array({range(5, 4, a)}), "0 to 16383"},
        {array({range(-1, 4, a)}), "0 to 16383"},
        {array({range(0, 16384, a)}), "0 to 16383"},
        {array({array({text("0"), number(1), a})}), "0 to 16383"},
        {array({range(0, 5, a), range(5, 9, a)}), "slot 5 has two owners"},
        {array({range(0, 1, array({text("a"), number(7001)}))}), "without an id"},
        {array({range(0, 1, node(text("a"), 7001, ""))}), "without an id"},
        {array({range(0, 1, node(text("a"), 0, "a"))}), "no port"},
        {array({range(0, 1, node(text("a"), 65536, "a"))}), "no port"},
        {array({range(0, 1, node(number(5), 7001, "a"))}), "no endpoint"},
        {array({range(0, 1, a), range(2, 3, node(text("b"), 7001, "a"))}), "two endpoints"},
    };
    for (const auto& [slots, says] : cases) {
        EXPECT_TRUE(failed_with(read_topology(slots, nullptr, kAsked), ErrorCode::reply, says));
    }
    const std::pair<Reply, std::string> wrong_nodes[] = {
        {number(5), "no text"},
        {text(""), "no primary"},
        {text("a 127.0.0.1:7001@17001 master - 0 0 x connected"), "without an epoch"},
        {text("a"), "without an epoch"},
        {text("\n"), "without an epoch"},
        {text("a h:1@2 slave b 0 0 1 connected\n"), "no primary"},
    };
    for (const auto& [nodes, says] : wrong_nodes) {
        EXPECT_TRUE(
            failed_with(read_topology(slots_of_three(), &nodes, kAsked), ErrorCode::reply, says));
    }
    EXPECT_TRUE(failed_with(
        read_topology(Reply{ReplyError{"ERR This instance has cluster support disabled"}}, nullptr,
                      kAsked),
        ErrorCode::reply, "cluster support disabled"));
}

// Replies of a server that sends anything: either a whole map or an error, and never a node that is
// not there.
TEST(Topology, DrawnRepliesGiveAWholeMapOrAnError) {
    std::minstd_rand random{7};
    const auto below = [&](unsigned bound) { return static_cast<unsigned>(random()) % bound; };
    const auto draw = [&](auto&& self, unsigned depth) -> Reply {
        switch (below(depth > 3 ? 4 : 7)) {
            case 0:
                return number(static_cast<std::int64_t>(below(20'000)) - 100);
            case 1:
                return text(below(2) == 0 ? "a" : kNodes.substr(below(200)));
            case 2:
                return Reply{};
            case 3:
                return Reply{ReplyError{"ERR x"}};
            default:
                ReplyArray elements;
                for (unsigned n = below(5); n > 0; --n) elements.push_back(self(self, depth + 1));
                return Reply{std::move(elements)};
        }
    };
    // Parts of a map that is right, each of which may be replaced.
    const auto maybe = [&](Reply right) {
        return below(20) == 0 ? draw(draw, 0) : std::move(right);
    };
    int whole = 0;
    for (int i = 0; i < 4'000; ++i) {
        ReplyArray ranges;
        for (std::int64_t first = 0; first < 3000; first += 1000) {
            const Reply owner =
                maybe(array({maybe(text("h")), maybe(number(7000 + first / 1000)),
                             maybe(text(std::string(1, static_cast<char>('a' + first / 1000))))}));
            ranges.push_back(
                maybe(array({maybe(number(first)), maybe(number(first + below(1200))), owner})));
        }
        const Reply nodes = maybe(text(kNodes));
        const auto read = read_topology(maybe(Reply{ranges}), &nodes, kAsked);
        if (!read) continue;
        ++whole;
        ASSERT_EQ(read->owner.size(), kSlots);
        ASSERT_TRUE(std::all_of(read->owner.begin(), read->owner.end(), [&](std::uint16_t owner) {
            return owner == Topology::kNoNode || owner < read->nodes.size();
        }));
        for (const NodeInfo& each : read->nodes) {
            ASSERT_FALSE(each.id.empty());
            ASSERT_FALSE(each.endpoint.host.empty());
            ASSERT_NE(each.endpoint.port, 0);
        }
    }
    EXPECT_GT(whole, 200);
    EXPECT_LT(whole, 3'800);
}

TEST(Redirects, AreReadFromErrorLines) {
    struct Case {
        std::string line;
        std::uint16_t slot;
        Endpoint endpoint;
        bool ask;
    };
    const Case cases[] = {
        {"MOVED 3999 127.0.0.1:6381", 3999, {"127.0.0.1", 6381}, false},
        {"ASK 0 h.example:1", 0, {"h.example", 1}, true},
        {"MOVED 16383 :7001", 16383, {"seed.example", 7001}, false},
        {"MOVED 1 ::1:7001", 1, {"::1", 7001}, false},
    };
    for (const Case& each : cases) {
        const auto read = read_redirect(each.line, kAsked);
        ASSERT_TRUE(read.has_value()) << each.line;
        EXPECT_EQ(read->slot, each.slot);
        EXPECT_EQ(read->endpoint, each.endpoint);
        EXPECT_EQ(read->ask, each.ask);
    }
    for (const char* line :
         {"", "MOVED", "MOVED 1", "MOVED x h:1", "MOVED 16384 h:1", "MOVED 1 h",
          "MOVED 1 h:", "MOVED 1 h:0", "MOVED 1 h:65536", "MOVED 1 h:1x", "MOVED 1 ?:7001",
          "MOVED -1 h:1", "MOVED 1 a b:1", "moved 1 h:1", "TRYAGAIN 1 h:1", "MOVED  1 h:1"}) {
        EXPECT_FALSE(read_redirect(line, kAsked)) << line;
    }
}

}  // namespace
}  // namespace hotcount::redis
