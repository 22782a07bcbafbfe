#include <hotcount/detail/zset/sorted_set.hpp>
#include <iterator>

namespace hotcount {

void SortedSet::put(std::string_view member, double score) {
    if (index_ == nullptr) index_ = std::make_unique<Index>();
    const auto [item, fresh] = index_->scores.try_emplace(std::string{member}, score);
    if (!fresh) {
        index_->order.erase({item->second, item->first});
        item->second = score;
    }
    index_->order.emplace(score, item->first);
}

bool SortedSet::erase(std::string_view member) {
    if (index_ == nullptr) return false;
    const auto item = index_->scores.find(member);
    if (item == index_->scores.end()) return false;
    index_->order.erase({item->second, item->first});
    index_->scores.erase(item);
    return true;
}

std::optional<double> SortedSet::score(std::string_view member) const {
    if (index_ == nullptr) return std::nullopt;
    const auto item = index_->scores.find(member);
    if (item == index_->scores.end()) return std::nullopt;
    return item->second;
}

std::vector<SortedSet::Item> SortedSet::highest(std::size_t first, std::size_t last) const {
    std::vector<Item> items;
    if (first >= size()) return items;
    auto place = std::next(index_->order.rbegin(), static_cast<std::ptrdiff_t>(first));
    for (std::size_t i = first; i <= last && place != index_->order.rend(); ++i, ++place) {
        items.push_back({place->second, place->first});
    }
    return items;
}

std::optional<std::size_t> SortedSet::rank(std::string_view member) const {
    if (index_ == nullptr) return std::nullopt;
    const auto item = index_->scores.find(member);
    if (item == index_->scores.end()) return std::nullopt;
    const auto place = index_->order.find({item->second, item->first});
    return static_cast<std::size_t>(std::distance(place, index_->order.end())) - 1;
}

std::optional<std::int64_t> Versions::find(std::string_view member) const {
    if (versions_ == nullptr) return std::nullopt;
    const auto found = versions_->find(member);
    if (found == versions_->end()) return std::nullopt;
    return found->second;
}

std::atomic<int> SetBuild::count_{0};

SetBuild::SetBuild(std::string builder, SteadyTime ends)
    : token(std::move(builder)), lease_ends(ends) {
    count_.fetch_add(1);
}
SetBuild::~SetBuild() { count_.fetch_sub(1); }

void SetBuild::add(std::string_view member, double score, std::optional<std::int64_t> version,
                   const SortedSet* live, std::optional<std::int64_t> known) {
    const auto found = notes_.find(member);
    const Note note = found == notes_.end() ? Note{} : found->second;
    if (!version) {
        if (note.written == Written::before) set.put(member, score);
        return;
    }
    if (note.written == Written::without_version || (note.version && *note.version > *version) ||
        (note.written == Written::with_version && note.version == version)) {
        return;
    }
    std::optional<double> kept = score;
    if (known && *known > *version) {
        // The builder's source is older than the version that the set had before.
        version = known;
        kept = live == nullptr ? std::nullopt : live->score(member);
    }
    notes_[std::string{member}] = {version, note.written};
    if (kept) set.put(member, *kept);
}

void SetBuild::write(std::string_view member, std::optional<double> score,
                     std::optional<std::int64_t> version, std::optional<std::int64_t> known) {
    Note& note = notes_[std::string{member}];
    if (version) {
        if ((note.version && *note.version >= *version) || (known && *known >= *version)) return;
        note = {version, Written::with_version};
    } else {
        note.written = Written::without_version;
    }
    if (score) {
        set.put(member, *score);
    } else {
        set.erase(member);
    }
}

SetBuild* Versions::build(SteadyTime now) {
    if (build_ != nullptr && build_->lease_ends <= now) build_.reset();
    return build_.get();
}

void Versions::put(std::string_view member, std::int64_t version) {
    if (versions_ == nullptr) {
        versions_ = std::make_unique<Map>();
    }
    versions_->insert_or_assign(std::string{member}, version);
}

}  // namespace hotcount
