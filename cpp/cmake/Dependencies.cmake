# What the core needs: Threads and SQLite, the headers of OpenSSL, and the sources of hiredis that it
# compiles.
#
# hiredis 1.5 is compiled in and not linked: reply_reader.cpp looks at the state of its reader, and the
# readers of older versions know neither attributes nor a bound of depth. Its sources are
#
#   1. in HOTCOUNT_HIREDIS_SOURCE, a -D or an environment variable: a folder that holds the sdist
#      hiredis-3.5.0.tar.gz or an unpacked tree. For builds without a network.
#   2. else in the sdist `hiredis` 3.5.0 of the Python package. pip fetches it, so that the user's
#      index, proxy and certificate settings hold.
#
# The hash of the sdist is pinned. Sets HOTCOUNT_HIREDIS_TREE, the folder of the sources, and
# HOTCOUNT_HIREDIS_VERSION, a string like "1.5.0".

set(HOTCOUNT_HIREDIS_MINIMUM 1.5)
set(HOTCOUNT_HIREDIS_NAME hiredis-3.5.0)
set(HOTCOUNT_HIREDIS_SDIST ${HOTCOUNT_HIREDIS_NAME}.tar.gz)
set(HOTCOUNT_HIREDIS_SHA256 c227592cc56b7df247abe4755c26723965be68972be2149fa441ac33d82131ba)

set(HOTCOUNT_HIREDIS_SOURCE
    "$ENV{HOTCOUNT_HIREDIS_SOURCE}"
    CACHE PATH "Folder with ${HOTCOUNT_HIREDIS_SDIST} or an unpacked hiredis; empty: pip fetches it")

find_package(Threads REQUIRED)
# For programs. The Python extension links none: it uses the library of Python's sqlite3, because two
# copies of SQLite in one process break each other's POSIX locks.
find_package(SQLite3 REQUIRED)
find_package(OpenSSL REQUIRED)

# The folder in `root` that holds the sources: an sdist keeps it two levels down.
function(hotcount_find_hiredis root)
  unset(HOTCOUNT_HIREDIS_TREE PARENT_SCOPE)
  foreach(candidate "${root}" "${root}/vendor/hiredis"
                    "${root}/${HOTCOUNT_HIREDIS_NAME}/vendor/hiredis")
    if(EXISTS "${candidate}/hiredis.h")
      set(HOTCOUNT_HIREDIS_TREE "${candidate}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

# Fetches the sdist into `folder`.
function(hotcount_download_hiredis folder)
  # The project's own .venv has a pip; a bare system Python may have none.
  if(NOT Python_EXECUTABLE AND NOT WIN32 AND EXISTS "${PROJECT_SOURCE_DIR}/.venv/bin/python")
    set(Python_EXECUTABLE "${PROJECT_SOURCE_DIR}/.venv/bin/python")
  endif()
  find_package(Python 3.9 COMPONENTS Interpreter)
  set(requirements "${folder}/requirements.txt")
  file(WRITE "${requirements}"
       "hiredis==3.5.0 --hash=sha256:${HOTCOUNT_HIREDIS_SHA256}\n")
  message(STATUS "hotcount: fetching ${HOTCOUNT_HIREDIS_SDIST} with pip")
  # pip runs the metadata step of the sdist. That needs no network where setuptools is new enough
  # (70.1); else pip makes an environment that has one.
  foreach(isolation "--no-build-isolation" "")
    execute_process(
      COMMAND "${Python_EXECUTABLE}" -m pip download --no-deps ${isolation} --no-binary=:all:
              --require-hashes -r "${requirements}" -d "${folder}"
      RESULT_VARIABLE failed
      OUTPUT_VARIABLE output
      ERROR_VARIABLE output)
    if(NOT failed)
      return()
    endif()
  endforeach()
  message(
    FATAL_ERROR
      "${output}\nhotcount: pip could not fetch ${HOTCOUNT_HIREDIS_SDIST} (its answer is above). If it "
      "says that hashes DO NOT MATCH, do not use that file. Run scripts/setup, whose .venv is used "
      "here, or put ${HOTCOUNT_HIREDIS_SDIST} into a folder and configure with "
      "-DHOTCOUNT_HIREDIS_SOURCE=<folder>.")
endfunction()

if(HOTCOUNT_HIREDIS_SOURCE)
  hotcount_find_hiredis("${HOTCOUNT_HIREDIS_SOURCE}")
  set(tarball "${HOTCOUNT_HIREDIS_SOURCE}/${HOTCOUNT_HIREDIS_SDIST}")
  if(NOT HOTCOUNT_HIREDIS_TREE AND NOT EXISTS "${tarball}")
    message(FATAL_ERROR "hotcount: HOTCOUNT_HIREDIS_SOURCE is ${HOTCOUNT_HIREDIS_SOURCE}, which holds "
                        "neither ${HOTCOUNT_HIREDIS_SDIST} nor an unpacked hiredis.")
  endif()
else()
  unset(HOTCOUNT_HIREDIS_TREE)
  set(tarball "${PROJECT_BINARY_DIR}/_deps/download/${HOTCOUNT_HIREDIS_SDIST}")
  if(NOT EXISTS "${tarball}")
    hotcount_download_hiredis("${PROJECT_BINARY_DIR}/_deps/download")
  endif()
endif()

if(NOT HOTCOUNT_HIREDIS_TREE)
  file(SHA256 "${tarball}" actual)
  if(NOT actual STREQUAL HOTCOUNT_HIREDIS_SHA256)
    message(
      FATAL_ERROR
        "hotcount: ${tarball} is not the hiredis that this version was built for.\n"
        "  sha256 expected ${HOTCOUNT_HIREDIS_SHA256}\n"
        "  sha256 found    ${actual}\n"
        "Do not use this file: fetch ${HOTCOUNT_HIREDIS_SDIST} again from a source you trust.")
  endif()
  # The folder's name has the hash, so that a new pin never meets an old tree.
  string(SUBSTRING "${actual}" 0 12 short)
  set(folder "${PROJECT_BINARY_DIR}/_deps/hiredis-${short}")
  hotcount_find_hiredis("${folder}")
  if(NOT HOTCOUNT_HIREDIS_TREE)
    file(ARCHIVE_EXTRACT INPUT "${tarball}" DESTINATION "${folder}")
    hotcount_find_hiredis("${folder}")
  endif()
endif()

file(STRINGS "${HOTCOUNT_HIREDIS_TREE}/hiredis.h" lines
     REGEX "^#define HIREDIS_(MAJOR|MINOR|PATCH) [0-9]+$")
string(REGEX REPLACE "[^0-9;]" "" lines "${lines}")
list(JOIN lines "." HOTCOUNT_HIREDIS_VERSION)
if(NOT HOTCOUNT_HIREDIS_VERSION VERSION_GREATER_EQUAL HOTCOUNT_HIREDIS_MINIMUM)
  message(FATAL_ERROR "hotcount: ${HOTCOUNT_HIREDIS_TREE} holds hiredis '${HOTCOUNT_HIREDIS_VERSION}', "
                      "which is older than ${HOTCOUNT_HIREDIS_MINIMUM}.")
endif()
message(STATUS "hotcount: hiredis ${HOTCOUNT_HIREDIS_VERSION} from source")

# Compiles hiredis's reader into `target`, whose sources write <hiredis/read.h>.
function(hotcount_compile_hiredis target)
  # The tree keeps its headers beside its sources.
  set(include "${PROJECT_BINARY_DIR}/_deps/hiredis-include")
  configure_file("${HOTCOUNT_HIREDIS_TREE}/read.h" "${include}/hiredis/read.h" COPYONLY)
  set(sources "${HOTCOUNT_HIREDIS_TREE}/alloc.c" "${HOTCOUNT_HIREDIS_TREE}/read.c"
              "${HOTCOUNT_HIREDIS_TREE}/sds.c")
  # Its warnings are not ours to fix.
  set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS -w)
  target_sources(${target} PRIVATE ${sources})
  # Hidden, for hiredis exports sds*, which other extensions carry too.
  set_target_properties(${target} PROPERTIES C_STANDARD 99 C_VISIBILITY_PRESET hidden)
  target_include_directories(${target} SYSTEM PRIVATE "${include}")
endfunction()
