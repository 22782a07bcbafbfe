// What WriteBehindCounter and SyncWorker share.
#pragma once

#include <hotcount/write_behind_counter.hpp>

#include "native/native.hpp"

namespace hotcount::python {

class BoundViews final : public Bound<WriteBehindCounter> {
  public:
    BoundViews(std::shared_ptr<WriteBehindCounter> counter, StoreReference database,
               StoreReference cache)
        : Bound(std::move(counter), std::move(database), &kTag<BoundViews>),
          cache_(std::move(cache)) {}

    BoundViews(const BoundViews&) = delete;
    BoundViews& operator=(const BoundViews&) = delete;
    ~BoundViews() override;

    std::string shown_options() const override;
    py::object to_batch(std::vector<Result<Count>> counts, const Refusals& refusals,
                        OnErrors on_errors) const;
    bool closed() const override { return store.closed() || cache_.closed(); }
    void close() override;
    void check_open() const {
        store.check_open();
        cache_.check_open();
    }
    /// The message says which of the two failed.
    void tell(Error&, Timeout) const {}
    Deadline deadline(Timeout timeout) const {
        return store.backend<sql::Database>()->deadline(timeout);
    }
    /// Adds travel over the loop's own connection to Redis; the other calls end in threads.
    std::shared_ptr<LoopBinding> loop_binding() const { return cache_.loop_binding(); }
    bool ends_elsewhere() const { return true; }

  private:
    /// The acknowledged adds that are lost with it.
    std::int64_t close_core();
    /// False: a filter has made an error of the warning.
    static bool warn_of(std::int64_t lost);

    StoreReference cache_;
};

template <>
struct BoundOf<WriteBehindCounter> {
    using type = BoundViews;
};

}  // namespace hotcount::python
