// The versions of compiler and libraries of this build, for bug reports.
#pragma once

#include <map>
#include <string>

namespace hotcount {

inline constexpr const char* kVersion = "0.1.0";

/// version, compiler, build_type, hiredis, tls, sqlite (the version loaded at run time), and the
/// client libraries of database servers, by their version or "not found": libpq, libmariadb.
std::map<std::string, std::string> build_info();

}  // namespace hotcount
