#include <future>
#include <hotcount/slotted_counter.hpp>
#include <thread>

#include "support/callers.hpp"
#include "support/result_matchers.hpp"
#include "support/temporary_database.hpp"

namespace hotcount {
namespace {

using namespace std::chrono_literals;
using testing::failed_with;
using testing::in_threads;
using testing::query_integer;
using testing::succeeded;

class SlottedCounterTest : public ::testing::Test {
  protected:
    std::shared_ptr<SlottedCounter> make(SlottedCounterOptions options = {}) {
        auto counter = *SlottedCounter::make(database_, std::move(options));
        EXPECT_TRUE(succeeded(counter->create_table()));
        return counter;
    }
    void run_script(const std::string& text) {
        const auto connection = database_->writer(database_->deadline({}));
        ASSERT_TRUE(succeeded((*connection)->run_script(text)));
    }
    testing::TemporaryDatabase file_;
    std::shared_ptr<sql::Database> database_ = file_.open();
};

TEST_F(SlottedCounterTest, TheSumIsWhatWasAdded) {
    const auto counter = make();
    in_threads(16, [&](int) {
        for (int i = 1; i <= 20; ++i) EXPECT_TRUE(succeeded(counter->add("home", i)));
    });
    EXPECT_EQ(*counter->get("home"), 16 * 210);
    EXPECT_EQ(query_integer(*database_, "SELECT COUNT(*) FROM hotcount_slot"), 1)
        << "SQLite's one writer needs one slot";
}

TEST_F(SlottedCounterTest, RandomSlotsSpreadOverAllOfThem) {
    SlottedCounterOptions options;
    options.slots = 4;
    options.slot_choice = SlotChoice::random;
    const auto counter = make(options);
    for (int i = 0; i < 200; ++i) ASSERT_TRUE(succeeded(counter->add("home")));
    EXPECT_EQ(query_integer(*database_, "SELECT COUNT(*) FROM hotcount_slot"), 4);
    EXPECT_EQ(*counter->get("home"), 200);
}

TEST_F(SlottedCounterTest, ResizeAndCompactKeepTheSum) {
    SlottedCounterOptions options;
    options.slots = 50;
    options.slot_choice = SlotChoice::random;
    const auto counter = make(options);
    std::atomic<bool> stop{false};
    std::atomic<std::int64_t> added{0};
    std::vector<std::thread> writers;
    for (int t = 0; t < 4; ++t) {
        writers.emplace_back([&] {
            while (!stop) {
                if (counter->add("k").ok()) ++added;
            }
        });
    }
    for (int i = 0; i < 20; ++i) {
        EXPECT_TRUE(succeeded(counter->resize(i % 2 == 0 ? 3 : 80)));
        EXPECT_TRUE(succeeded(counter->compact("k")));
    }
    while (added == 0) std::this_thread::yield();  // The writers may not have had a turn yet.
    stop = true;
    for (auto& writer : writers) writer.join();
    EXPECT_EQ(*counter->get("k"), added);
    EXPECT_EQ(*counter->compact("k"), added);
    EXPECT_EQ(query_integer(*database_, "SELECT COUNT(*) FROM hotcount_slot"), 1);
}

TEST_F(SlottedCounterTest, CompactGoesByTheWholeSumAndNotByItsParts) {
    SlottedCounterOptions options;
    options.slots = 1;
    const auto counter = make(options);
    run_script(
        "INSERT INTO hotcount_slot VALUES ('k', 0, -9223372036854775808), ('k', 1, "
        "9223372036854775807), ('k', 2, 9223372036854775807)");
    EXPECT_EQ(*counter->compact("k"), INT64_MAX - 1);
    EXPECT_EQ(*counter->get("k"), INT64_MAX - 1);
    run_script("INSERT INTO hotcount_slot VALUES ('k', 1, 2)");
    EXPECT_TRUE(failed_with(counter->compact("k"), ErrorCode::overflow, "k"));
    EXPECT_TRUE(failed_with(counter->reset("k"), ErrorCode::overflow, "k"));
    EXPECT_EQ(query_integer(*database_, "SELECT COUNT(*) FROM hotcount_slot"), 2);
    ASSERT_TRUE(succeeded(counter->add("zero", 5)));
    ASSERT_TRUE(succeeded(counter->add("zero", -5)));
    EXPECT_EQ(*counter->compact("zero"), 0);
    EXPECT_EQ(query_integer(*database_, "SELECT COUNT(*) FROM hotcount_slot WHERE key = 'zero'"),
              0);
}

TEST_F(SlottedCounterTest, AdaptiveSlotsStayOneWhereOneWriterIsTheRule) {
    SlottedCounterOptions options;
    options.adaptive = true;
    const auto counter = make(options);
    EXPECT_EQ(counter->slots(), 1);
    in_threads(8, [&](int) {
        for (int i = 0; i < 10; ++i) EXPECT_TRUE(succeeded(counter->add("k")));
    });
    EXPECT_EQ(counter->slots(), 1);
    EXPECT_EQ(*counter->get("k"), 80);
    ASSERT_TRUE(succeeded(counter->resize(8)));
    EXPECT_EQ(counter->slots(), 8);
}

TEST_F(SlottedCounterTest, AnOpIdCountsOnceAndSurvivesReopening) {
    ASSERT_TRUE(succeeded(make()->add("k", 5, "op-1")));
    ASSERT_TRUE(succeeded(make()->add("k", 5, "op-1")));
    ASSERT_TRUE(succeeded(make()->add("k", 5, "op-2")));
    EXPECT_EQ(*make()->get("k"), 10);
}

TEST_F(SlottedCounterTest, ForgottenOpIdsAreRemoved) {
    SlottedCounterOptions options;
    options.op_keep = 60s;
    const auto clock = std::make_shared<ManualClock>();
    options.clock = clock;
    const auto counter = make(options);
    for (int i = 0; i < 10; ++i) {
        ASSERT_TRUE(succeeded(counter->add("k", 1, "old" + std::to_string(i))));
    }
    clock->advance(120s);
    for (int i = 0; i < 10; ++i) {
        ASSERT_TRUE(succeeded(counter->add("k", 1, "new" + std::to_string(i))));
    }
    EXPECT_EQ(query_integer(*database_, "SELECT COUNT(*) FROM hotcount_slot_op"), 10);
    ASSERT_TRUE(succeeded(counter->add("k", 1, "old0")));
    EXPECT_EQ(*counter->get("k"), 21) << "after op_keep it counts again, as documented";
}

TEST_F(SlottedCounterTest, AnOverflowFailsAloneAndNamesTheKey) {
    SlottedCounterOptions options;
    options.slots = 1;
    const auto counter = make(options);
    const std::pair<std::string_view, std::int64_t> amounts[] = {
        {"k", INT64_MAX}, {"k", 1}, {"other", 7}, {"k", -1}};
    const auto results = counter->add_many(amounts);
    EXPECT_TRUE(succeeded(results[0]));
    EXPECT_TRUE(failed_with(results[1], ErrorCode::overflow, "k"));
    EXPECT_TRUE(succeeded(results[2]));
    EXPECT_TRUE(succeeded(results[3]));
    EXPECT_EQ(*counter->get("k"), INT64_MAX - 1);
    EXPECT_EQ(*counter->get("other"), 7);
}

// The outcome of a call that does not wait.
template <class T, class Start>
Result<T> outcome(const Start& start) {
    std::promise<Result<T>> told;
    start([&](Result<T> result) { told.set_value(std::move(result)); });
    return told.get_future().get();
}

TEST_F(SlottedCounterTest, CallsThatDoNotWaitAnswerAsThoseThatDo) {
    const auto counter = *SlottedCounter::make(database_);
    EXPECT_TRUE(succeeded(outcome<void>([&](auto done) { counter->create_table_async(done); })));
    std::vector<std::future<bool>> adds;
    for (int i = 1; i <= 100; ++i) {
        const auto told = std::make_shared<std::promise<bool>>();
        adds.push_back(told->get_future());
        counter->add_async("home", i, {}, {},
                           [told](const Result<void>& done) { told->set_value(done.ok()); });
    }
    for (auto& add : adds) EXPECT_TRUE(add.get());
    EXPECT_EQ(*outcome<std::int64_t>([&](auto done) { counter->get_async("home", done); }), 5050);
    EXPECT_EQ(*outcome<std::int64_t>([&](auto done) { counter->compact_async("home", done); }),
              5050);

    const std::vector<std::pair<std::string_view, std::int64_t>> amounts{
        {"home", 1}, {"", 1}, {"away", 2}};
    using All = std::vector<Result<void>>;
    const auto added = outcome<All>([&](auto done) { counter->add_many_async(amounts, done); });
    ASSERT_EQ(added->size(), 3U);
    EXPECT_TRUE(succeeded((*added)[0]));
    EXPECT_TRUE(failed_with((*added)[1], ErrorCode::config));
    EXPECT_TRUE(succeeded((*added)[2]));

    const std::vector<std::string_view> keys{"home", "", "away"};
    using Counts = std::vector<Result<std::int64_t>>;
    const auto counts = outcome<Counts>([&](auto done) { counter->get_many_async(keys, done); });
    EXPECT_EQ(*(*counts)[0], 5051);
    EXPECT_TRUE(failed_with((*counts)[1], ErrorCode::config));
    EXPECT_EQ(*(*counts)[2], 2);
    EXPECT_EQ(*outcome<std::int64_t>([&](auto done) { counter->reset_async("home", done); }), 5051);
    EXPECT_EQ(*counter->get("home"), 0);
    EXPECT_TRUE(failed_with(outcome<std::int64_t>([&](auto done) { counter->get_async("", done); }),
                            ErrorCode::config));
}

TEST_F(SlottedCounterTest, ACounterThatIsLetGoOfEndsWhatWaits) {
    auto counter = make();
    std::promise<Result<std::int64_t>> told;
    counter->get_async("home", [&](Result<std::int64_t> sum) { told.set_value(std::move(sum)); });
    counter.reset();
    EXPECT_EQ(*told.get_future().get(), 0);
}

TEST_F(SlottedCounterTest, BadKeysAndOptionsAreRefusedByName) {
    const auto counter = make();
    EXPECT_TRUE(failed_with(counter->add(std::string_view("a\0b", 3)), ErrorCode::config, "NUL"));
    EXPECT_TRUE(failed_with(counter->add(""), ErrorCode::config, "empty"));
    EXPECT_TRUE(failed_with(counter->resize(0), ErrorCode::config, "slots"));
    SlottedCounterOptions options;
    options.slots = 10'001;
    EXPECT_TRUE(failed_with(SlottedCounter::make(database_, options), ErrorCode::config, "slots"));
    options = {};
    options.key_column = std::string(64, 'x');
    EXPECT_TRUE(
        failed_with(SlottedCounter::make(database_, options), ErrorCode::config, "key_column"));
    options = {};
    options.table = "missing";
    const auto missing = *SlottedCounter::make(database_, options);
    EXPECT_TRUE(failed_with(missing->add("k"), ErrorCode::database, "missing"));
}

}  // namespace
}  // namespace hotcount
