# Embeds text files (.lua, .sql) as string constants, so that scripts stay files
# that an editor highlights and a test can run, and the library stays one piece.
#
#   hotcount_embed_text(<target> HEADER counter/lua.hpp
#                       NAMESPACE hotcount::lua::counter
#                       FILES src/counter/lua/add_with_ttl.lua ...)
#
# gives <target> the private header "hotcount_embedded/counter/lua.hpp" with
#
#   namespace hotcount::lua::counter {
#   inline constexpr std::string_view kAddWithTtlLua = R"hotcount(...)hotcount";
#   }
#
# The header is written at build time and again when a file changes. The same
# file, run as a script (cmake -P), is what writes it.

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  set(text "// Written by EmbedText.cmake from the files named below; edit those.\n")
  string(APPEND text "#pragma once\n\n#include <string_view>\n\nnamespace ${NAMESPACE} {\n")
  # The list arrives with | between files: a ; would end at the command line.
  string(REPLACE "|" ";" files "${FILES}")
  foreach(file IN LISTS files)
    file(READ "${file}" content)
    # The one thing that a raw string cannot hold is its own end.
    string(FIND "${content}" ")hotcount\"" position)
    if(NOT position EQUAL -1)
      message(FATAL_ERROR "${file} contains )hotcount\", which would end the literal it is put in")
    endif()
    get_filename_component(name "${file}" NAME)
    # add_with_ttl.lua -> kAddWithTtlLua
    string(REGEX REPLACE "[^A-Za-z0-9]+" ";" words "${name}")
    set(constant k)
    foreach(word IN LISTS words)
      string(SUBSTRING "${word}" 0 1 first)
      string(SUBSTRING "${word}" 1 -1 rest)
      string(TOUPPER "${first}" first)
      string(APPEND constant "${first}${rest}")
    endforeach()
    string(APPEND text "\n/// ${name}\n"
           "inline constexpr std::string_view ${constant} = R\"hotcount(${content})hotcount\";\n")
  endforeach()
  string(APPEND text "\n}  // namespace ${NAMESPACE}\n")
  file(WRITE "${OUTPUT}" "${text}")
  return()
endif()

# Remembered here: inside a function CMAKE_CURRENT_LIST_FILE is the caller's.
set(HOTCOUNT_EMBED_TEXT_SCRIPT "${CMAKE_CURRENT_LIST_FILE}")

function(hotcount_embed_text target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "HEADER;NAMESPACE" "FILES")
  set(root "${CMAKE_CURRENT_BINARY_DIR}/embedded/${target}")
  set(output "${root}/hotcount_embedded/${arg_HEADER}")
  set(files ${arg_FILES})
  list(TRANSFORM files PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  list(JOIN files "|" joined)
  add_custom_command(
    OUTPUT "${output}"
    COMMAND "${CMAKE_COMMAND}" "-DOUTPUT=${output}" "-DNAMESPACE=${arg_NAMESPACE}"
            "-DFILES=${joined}" -P "${HOTCOUNT_EMBED_TEXT_SCRIPT}"
    DEPENDS ${files} "${HOTCOUNT_EMBED_TEXT_SCRIPT}"
    COMMENT "Embedding ${arg_HEADER}"
    VERBATIM)
  # A source of the target, so that it exists before the first file compiles.
  target_sources(${target} PRIVATE "${output}")
  target_include_directories(${target} PRIVATE "${root}")
endfunction()
