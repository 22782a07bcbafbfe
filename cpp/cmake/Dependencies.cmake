# What the core links: Threads, SQLite, OpenSSL and hiredis.
#
# hiredis has a recipe of its own, because Debian 12 carries 0.14.1, which has
# neither TLS nor RESP3. In order:
#
#   1. HOTCOUNT_HIREDIS_SOURCE, a -D or an environment variable: a folder that
#      holds the sdist hiredis-3.5.0.tar.gz (its hash is checked) or an unpacked
#      tree. For builds without a network; asked for, so it goes first.
#   2. The system's hiredis and hiredis_ssl, when pkg-config says >= 1.2.
#   3. The sdist `hiredis` 3.5.0 of the Python package, which carries the C
#      sources of hiredis 1.5.0. pip fetches it, so that the user's index, proxy
#      and certificate settings hold; its hash is pinned.
#
# Defines the target hotcount_hiredis, whose users write <hiredis/hiredis.h>
# whichever way it came. Its compile definitions, for build_info():
# HOTCOUNT_HIREDIS_VERSION is a string like "1.5.0", HOTCOUNT_HIREDIS_TLS is 1.

set(HOTCOUNT_HIREDIS_MINIMUM 1.2)
set(HOTCOUNT_HIREDIS_SDIST_VERSION 3.5.0)
set(HOTCOUNT_HIREDIS_SDIST hiredis-${HOTCOUNT_HIREDIS_SDIST_VERSION}.tar.gz)
set(HOTCOUNT_HIREDIS_SHA256 c227592cc56b7df247abe4755c26723965be68972be2149fa441ac33d82131ba)

set(HOTCOUNT_HIREDIS_SOURCE
    "$ENV{HOTCOUNT_HIREDIS_SOURCE}"
    CACHE PATH "Folder with ${HOTCOUNT_HIREDIS_SDIST} or an unpacked hiredis; empty: system, then pip")

find_package(Threads REQUIRED)
# The shared library that Python's sqlite3 uses too: two copies of SQLite in one
# process break each other's POSIX locks, so it is never bundled.
find_package(SQLite3 REQUIRED)
find_package(OpenSSL REQUIRED)

# The folder in `root` that holds hiredis.h: an sdist keeps it two levels down.
function(hotcount_find_hiredis_tree root result)
  set(${result} "" PARENT_SCOPE)
  foreach(candidate
          "${root}" "${root}/vendor/hiredis"
          "${root}/hiredis-${HOTCOUNT_HIREDIS_SDIST_VERSION}/vendor/hiredis")
    if(EXISTS "${candidate}/hiredis.h" AND EXISTS "${candidate}/ssl.c")
      set(${result} "${candidate}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

# Checks the tarball and unpacks it below the build tree; the folder's name is
# the hash, so that a new pin never meets an old tree.
function(hotcount_unpack_hiredis tarball result)
  file(SHA256 "${tarball}" actual)
  if(NOT actual STREQUAL HOTCOUNT_HIREDIS_SHA256)
    message(
      FATAL_ERROR
        "hotcount: ${tarball} is not the hiredis that this version was built for.\n"
        "  sha256 expected ${HOTCOUNT_HIREDIS_SHA256}\n"
        "  sha256 found    ${actual}\n"
        "Do not use this file: fetch ${HOTCOUNT_HIREDIS_SDIST} again from a source you trust.")
  endif()
  string(SUBSTRING "${actual}" 0 12 short)
  set(folder "${PROJECT_BINARY_DIR}/_deps/hiredis-${short}")
  hotcount_find_hiredis_tree("${folder}" tree)
  if(NOT tree)
    file(ARCHIVE_EXTRACT INPUT "${tarball}" DESTINATION "${folder}")
    hotcount_find_hiredis_tree("${folder}" tree)
  endif()
  set(${result} "${tree}" PARENT_SCOPE)
endfunction()

# Fetches the sdist into the build tree, once.
function(hotcount_download_hiredis result)
  set(folder "${PROJECT_BINARY_DIR}/_deps/download")
  set(tarball "${folder}/${HOTCOUNT_HIREDIS_SDIST}")
  set(${result} "${tarball}" PARENT_SCOPE)
  if(EXISTS "${tarball}")
    return() # Its hash is checked by whoever unpacks it.
  endif()

  # The project's own .venv has a setuptools that is new enough; a bare system
  # Python often has not, or has no pip at all.
  if(NOT Python_EXECUTABLE AND NOT WIN32 AND EXISTS "${PROJECT_SOURCE_DIR}/.venv/bin/python")
    set(Python_EXECUTABLE "${PROJECT_SOURCE_DIR}/.venv/bin/python")
  endif()
  find_package(Python 3.9 COMPONENTS Interpreter)
  set(advice
      "Run scripts/setup, whose .venv is used here, or install hiredis >= "
      "${HOTCOUNT_HIREDIS_MINIMUM} with its hiredis_ssl, or put "
      "${HOTCOUNT_HIREDIS_SDIST} into a folder and configure with "
      "-DHOTCOUNT_HIREDIS_SOURCE=<folder>.")
  string(CONCAT advice ${advice})
  if(NOT Python_Interpreter_FOUND)
    message(FATAL_ERROR "hotcount: no Python to fetch hiredis with.\n${advice}")
  endif()

  # pip runs the sdist's metadata step. In this environment that needs
  # setuptools >= 70.1 (older ones fail without `wheel`) and touches no network;
  # with an older one pip may build in an environment of its own, which only
  # costs time.
  execute_process(
    COMMAND
      "${Python_EXECUTABLE}" -c
      "import setuptools, sys; sys.exit([int(n) for n in setuptools.__version__.split('.')[:2]] < [70, 1])"
    RESULT_VARIABLE setuptools_is_old
    OUTPUT_QUIET ERROR_QUIET)
  if(setuptools_is_old)
    set(isolation "")
  else()
    set(isolation --no-build-isolation)
  endif()

  set(requirements "${folder}/requirements.txt")
  file(WRITE "${requirements}"
       "hiredis==${HOTCOUNT_HIREDIS_SDIST_VERSION} --hash=sha256:${HOTCOUNT_HIREDIS_SHA256}\n")
  message(STATUS "hotcount: fetching ${HOTCOUNT_HIREDIS_SDIST} with pip")
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -m pip download --no-deps ${isolation} --no-binary=:all:
            --require-hashes -r "${requirements}" -d "${folder}"
    RESULT_VARIABLE failed
    OUTPUT_VARIABLE output
    ERROR_VARIABLE output)
  if(failed OR NOT EXISTS "${tarball}")
    if(output MATCHES "DO NOT MATCH THE HASHES")
      message(
        FATAL_ERROR "${output}\nhotcount: what pip was given as ${HOTCOUNT_HIREDIS_SDIST} has another "
                    "sha256 than the pinned one (above). Do not use it.\n${advice}")
    endif()
    message(FATAL_ERROR "${output}\nhotcount: pip could not fetch ${HOTCOUNT_HIREDIS_SDIST} "
                        "(its answer is above).\n${advice}")
  endif()
endfunction()

# Builds hotcount_hiredis from the sources in `tree`.
function(hotcount_add_hiredis tree)
  file(STRINGS "${tree}/hiredis.h" lines REGEX "^#define HIREDIS_(MAJOR|MINOR|PATCH) [0-9]+$")
  string(REGEX REPLACE "[^0-9;]" "" version "${lines}")
  list(JOIN version "." version)
  if(NOT version VERSION_GREATER_EQUAL HOTCOUNT_HIREDIS_MINIMUM)
    message(FATAL_ERROR "hotcount: ${tree} holds hiredis '${version}', which is older than "
                        "${HOTCOUNT_HIREDIS_MINIMUM}.")
  endif()

  # The tree keeps its headers beside its sources, but they are included as
  # <hiredis/...>, as an installed hiredis has them.
  set(include "${PROJECT_BINARY_DIR}/_deps/hiredis-include")
  foreach(header alloc.h async.h hiredis.h hiredis_ssl.h read.h sds.h)
    configure_file("${tree}/${header}" "${include}/hiredis/${header}" COPYONLY)
  endforeach()

  # Not listed: dict.c, which async.c includes.
  add_library(
    hotcount_hiredis STATIC
    "${tree}/alloc.c" "${tree}/async.c" "${tree}/hiredis.c" "${tree}/net.c" "${tree}/read.c"
    "${tree}/sds.c" "${tree}/sockcompat.c" "${tree}/ssl.c")
  set_target_properties(
    hotcount_hiredis
    PROPERTIES C_STANDARD 99
               # Hidden, for hiredis exports sds*, which other extensions carry too.
               C_VISIBILITY_PRESET hidden
               POSITION_INDEPENDENT_CODE ON)
  # It reads what servers send.
  hotcount_harden(hotcount_hiredis)
  # SYSTEM: its warnings are not ours to fix.
  target_include_directories(hotcount_hiredis SYSTEM INTERFACE "$<BUILD_INTERFACE:${include}>")
  target_link_libraries(hotcount_hiredis PRIVATE OpenSSL::SSL OpenSSL::Crypto Threads::Threads)
  # INTERFACE and only in this build: an installed hotcount does not show hiredis.
  target_compile_definitions(
    hotcount_hiredis INTERFACE "$<BUILD_INTERFACE:HOTCOUNT_HIREDIS_VERSION=\"${version}\">"
                               "$<BUILD_INTERFACE:HOTCOUNT_HIREDIS_TLS=1>")

  install(TARGETS hotcount_hiredis EXPORT hotcountTargets COMPONENT cpp
          ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  set(HOTCOUNT_HIREDIS_LICENSE "${tree}/COPYING" PARENT_SCOPE)
  set(HOTCOUNT_HIREDIS_BUNDLED ON PARENT_SCOPE)
  message(STATUS "hotcount: hiredis ${version} from source")
endfunction()

function(hotcount_provide_hiredis)
  set(HOTCOUNT_HIREDIS_BUNDLED OFF PARENT_SCOPE)
  set(tree "")
  if(HOTCOUNT_HIREDIS_SOURCE)
    hotcount_find_hiredis_tree("${HOTCOUNT_HIREDIS_SOURCE}" tree)
    if(NOT tree)
      set(tarball "${HOTCOUNT_HIREDIS_SOURCE}/${HOTCOUNT_HIREDIS_SDIST}")
      if(NOT EXISTS "${tarball}")
        message(FATAL_ERROR "hotcount: HOTCOUNT_HIREDIS_SOURCE is ${HOTCOUNT_HIREDIS_SOURCE}, which holds "
                            "neither ${HOTCOUNT_HIREDIS_SDIST} nor an unpacked hiredis.")
      endif()
      hotcount_unpack_hiredis("${tarball}" tree)
    endif()
  else()
    find_package(PkgConfig)
    if(PKG_CONFIG_FOUND)
      pkg_check_modules(HOTCOUNT_SYSTEM_HIREDIS QUIET IMPORTED_TARGET
                        "hiredis>=${HOTCOUNT_HIREDIS_MINIMUM}"
                        "hiredis_ssl>=${HOTCOUNT_HIREDIS_MINIMUM}")
    endif()
    if(HOTCOUNT_SYSTEM_HIREDIS_FOUND)
      add_library(hotcount_hiredis INTERFACE)
      target_link_libraries(hotcount_hiredis INTERFACE PkgConfig::HOTCOUNT_SYSTEM_HIREDIS)
      target_compile_definitions(
        hotcount_hiredis
        INTERFACE
          "$<BUILD_INTERFACE:HOTCOUNT_HIREDIS_VERSION=\"${HOTCOUNT_SYSTEM_HIREDIS_hiredis_VERSION}\">"
          "$<BUILD_INTERFACE:HOTCOUNT_HIREDIS_TLS=1>")
      # Its Libs and Cflags are looked up again by hotcountConfig.cmake.
      install(TARGETS hotcount_hiredis EXPORT hotcountTargets COMPONENT cpp)
      message(STATUS "hotcount: hiredis ${HOTCOUNT_SYSTEM_HIREDIS_hiredis_VERSION} of the system")
      return()
    endif()
    hotcount_download_hiredis(tarball)
    hotcount_unpack_hiredis("${tarball}" tree)
  endif()
  if(NOT tree)
    message(FATAL_ERROR "hotcount: ${HOTCOUNT_HIREDIS_SDIST} holds no hiredis sources.")
  endif()
  hotcount_add_hiredis("${tree}")
  set(HOTCOUNT_HIREDIS_LICENSE "${HOTCOUNT_HIREDIS_LICENSE}" PARENT_SCOPE)
  set(HOTCOUNT_HIREDIS_BUNDLED ON PARENT_SCOPE)
endfunction()

hotcount_provide_hiredis()
