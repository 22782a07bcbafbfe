#include <dlfcn.h>
#include <link.h>
#include <sqlite3.h>

#include <atomic>
#include <cstring>
#include <hotcount/detail/sql/settings.hpp>
#include <mutex>
#include <string_view>

namespace hotcount::sql {
namespace {

std::atomic<Result<void> (*)()> loader{nullptr};

// Data of the library. The address of a function may be that of a stub in another object.
const void* our_sqlite() { return sqlite3_libversion(); }

// A message that only SQLite contains: in two parts, so that this library does not contain it.
const std::string& a_message_of_sqlite() {
    static const auto* const text = new std::string{
        std::string{"unable to open a temporary database file "} + "for storing temporary tables"};
    return *text;
}

struct LoadedLibraries {
    unsigned long long loaded{0};
    std::vector<std::string> libraries{};
};

int look_at(dl_phdr_info* object, std::size_t, void* out) {
    auto& found = *static_cast<LoadedLibraries*>(out);
    found.loaded = object->dlpi_adds;
    const auto ours = reinterpret_cast<ElfW(Addr)>(our_sqlite());
    bool is_sqlite = false;
    for (int i = 0; i < object->dlpi_phnum; ++i) {
        const ElfW(Phdr)& part = object->dlpi_phdr[i];
        if (part.p_type != PT_LOAD || (part.p_flags & PF_R) == 0) continue;
        const ElfW(Addr) begin = object->dlpi_addr + part.p_vaddr;
        if (ours >= begin && ours < begin + part.p_memsz) return 0;
        if ((part.p_flags & PF_W) != 0) continue;
        const std::string_view bytes{reinterpret_cast<const char*>(begin), part.p_filesz};
        is_sqlite = is_sqlite || memmem(bytes.data(), bytes.size(), a_message_of_sqlite().data(),
                                        a_message_of_sqlite().size()) != nullptr;
    }
    if (is_sqlite) found.libraries.emplace_back(object->dlpi_name);
    return 0;
}

}  // namespace

void set_sqlite_loader(Result<void> (*given)()) { loader.store(given); }

Result<void> load_sqlite() {
    const auto load = loader.load();
    return load == nullptr ? Result<void>{} : load();
}

std::vector<std::string> other_sqlite_libraries() {
    static auto* const mutex = new std::mutex;
    static auto* const known = new LoadedLibraries;
    const auto loaded = [](dl_phdr_info* object, std::size_t, void* out) {
        *static_cast<unsigned long long*>(out) = object->dlpi_adds;
        return 1;
    };
    unsigned long long now = 0;
    dl_iterate_phdr(loaded, &now);
    const std::lock_guard lock(*mutex);
    if (known->loaded != now) {
        LoadedLibraries found;
        dl_iterate_phdr(&look_at, &found);
        *known = std::move(found);
    }
    return known->libraries;
}

bool calls_our_sqlite(const void* address) {
    Dl_info driver{};
    Dl_info own{};
    if (dladdr(address, &driver) == 0 || dladdr(our_sqlite(), &own) == 0) return false;
    if (driver.dli_fbase == own.dli_fbase) return true;
    void* const object = dlopen(driver.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (object == nullptr) return false;
    // In the object itself, then in the libraries that it was linked with.
    const auto version =
        reinterpret_cast<decltype(&sqlite3_libversion)>(dlsym(object, "sqlite3_libversion"));
    dlclose(object);
    return version != nullptr && version() == our_sqlite();
}

}  // namespace hotcount::sql
