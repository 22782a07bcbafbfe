#include "secrets.hpp"

#include <algorithm>
#include <deque>
#include <hotcount/detail/base/fork.hpp>
#include <mutex>

namespace hotcount {
namespace {

constexpr std::size_t kMostSecrets = 1000;
// In bytes. A shorter secret is hidden only where it is a whole word.
constexpr std::size_t kHiddenAnywhere = 4;

// A fork waits for the mutex, so that a child does not start with one that another thread held.
struct Secrets final : ForkAware {
    Secrets() { start_watching_forks_last(); }
    void before_fork() override { mutex.lock(); }
    void after_fork(bool) override { mutex.unlock(); }

    std::mutex mutex;
    std::deque<std::string> known;  // The longest first, because one may contain another.
    std::deque<std::string> by_age;
};

Secrets& secrets() {
    static auto* const made = new Secrets;  // Never destroyed: errors may be made during exit.
    return *made;
}

bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool stands_alone(std::string_view text, std::size_t at, std::size_t size) {
    return (at == 0 || !is_word(text[at - 1])) &&
           (at + size == text.size() || !is_word(text[at + size]));
}

}  // namespace

void remember_secret(std::string_view password) {
    if (password.empty()) return;
    Secrets& all = secrets();
    const std::lock_guard lock(all.mutex);
    const auto before = std::find(all.by_age.begin(), all.by_age.end(), password);
    if (before != all.by_age.end()) {
        std::rotate(before, before + 1, all.by_age.end());
        return;
    }
    if (all.by_age.size() == kMostSecrets) {
        std::erase(all.known, all.by_age.front());
        all.by_age.pop_front();
    }
    all.by_age.emplace_back(password);
    all.known.emplace_back(password);
    std::stable_sort(all.known.begin(), all.known.end(),
                     [](const auto& one, const auto& other) { return one.size() > other.size(); });
}

std::string hide_secrets(std::string_view text) {
    std::string shown{text};
    Secrets& all = secrets();
    const std::lock_guard lock(all.mutex);
    for (const std::string& secret : all.known) {
        std::size_t at = 0;
        while ((at = shown.find(secret, at)) != std::string::npos) {
            if (secret.size() < kHiddenAnywhere && !stands_alone(shown, at, secret.size())) {
                ++at;
                continue;
            }
            shown.replace(at, secret.size(), "***");
            at += 3;
        }
    }
    return shown;
}

}  // namespace hotcount
