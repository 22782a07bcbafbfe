// The keys of a batch, alone or with an amount for each, as Counter and SlottedCounter take them.
#pragma once

#include <memory>
#include <string_view>
#include <tuple>
#include <vector>

#include "table.hpp"
#include "values/convert.hpp"

namespace hotcount::python {

/// The keys of a batch. Apart, because the keys point into it and a batch is moved.
struct Keys {
    std::unique_ptr<KeyHolder> held;
    Refusals refusals;
    std::vector<std::string_view> keys;  // Without those that are refused.
};

/// Keys with an amount for each, from two Python parameters.
struct KeysAndAmounts : Keys {
    std::vector<std::int64_t> amounts;
};

/// Keys and amounts as pairs, for calls that settle each add and return its amount. From two Python
/// parameters, or from a mapping alone.
struct Pairs {
    std::unique_ptr<KeyHolder> held;
    Refusals refusals;
    std::vector<std::pair<std::string_view, std::int64_t>> pairs;

    std::vector<std::int64_t> amounts() const {
        std::vector<std::int64_t> all;
        for (const auto& pair : pairs) all.push_back(pair.second);
        return all;
    }
};
struct MappedPairs : Pairs {};

template <>
struct From<Keys> {
    static constexpr bool kIsBatch = true;

    static Keys read(const Argument& argument) {
        Keys batch{std::make_unique<KeyHolder>(), {}, {}};
        batch.keys = to_keys(argument.value, argument.name, *batch.held, batch.refusals);
        batch.keys = batch.refusals.strip(std::move(batch.keys));
        return batch;
    }
    static auto pass(const Keys& batch) {
        return std::tuple<const std::vector<std::string_view>&>(batch.keys);
    }
};

template <>
struct From<KeysAndAmounts> {
    static constexpr std::size_t kTakes = 2;
    static constexpr bool kIsBatch = true;

    static KeysAndAmounts read(const Argument* first) {
        const Argument& keys = first[0];
        const Argument& amounts = first[1];
        KeysAndAmounts batch{{std::make_unique<KeyHolder>(), {}, {}}, {}};
        const auto columns = to_keys_and_numbers(
            keys.value, keys.name, amounts.given ? py::handle(amounts.value) : py::handle(),
            amounts.name);
        batch.keys = to_keys(columns.keys, keys.name, *batch.held, batch.refusals);
        batch.amounts =
            to_amounts(columns.numbers, amounts.name, batch.keys.size(), 1, batch.refusals);
        batch.keys = batch.refusals.strip(std::move(batch.keys));
        batch.amounts = batch.refusals.strip(std::move(batch.amounts));
        return batch;
    }
    static auto pass(const KeysAndAmounts& batch) {
        return std::tuple<const std::vector<std::string_view>&, const std::vector<std::int64_t>&>(
            batch.keys, batch.amounts);
    }
};

template <>
struct From<Pairs> {
    static constexpr std::size_t kTakes = 2;
    static constexpr bool kIsBatch = true;

    static Pairs read(const Argument* first) {
        auto batch = From<KeysAndAmounts>::read(first);
        Pairs made{std::move(batch.held), std::move(batch.refusals), {}};
        made.pairs.reserve(batch.keys.size());
        for (std::size_t i = 0; i < batch.keys.size(); ++i) {
            made.pairs.emplace_back(batch.keys[i], batch.amounts[i]);
        }
        return made;
    }
    static auto pass(const Pairs& batch) { return std::tie(batch.pairs); }
};

template <>
struct From<MappedPairs> {
    static constexpr bool kIsBatch = true;

    static MappedPairs read(const Argument& argument) {
        if (!is_mapping(argument.value)) {
            raise_wrong_type(argument.name, "a mapping of keys to int", argument.value);
        }
        MappedPairs batch{{std::make_unique<KeyHolder>(), {}, {}}};
        const auto columns = to_keys_and_numbers(argument.value, argument.name, {}, "");
        const auto keys = to_keys(columns.keys, "mapping.keys()", *batch.held, batch.refusals);
        const auto amounts =
            to_amounts(columns.numbers, "mapping.values()", keys.size(), 1, batch.refusals);
        for (std::size_t i = 0; i < keys.size(); ++i) batch.pairs.emplace_back(keys[i], amounts[i]);
        batch.pairs = batch.refusals.strip(std::move(batch.pairs));
        return batch;
    }
    static auto pass(const MappedPairs& batch) { return std::tie(batch.pairs); }
};

}  // namespace hotcount::python
