# Writes a C file that defines every name of Python that an extension takes from its interpreter:
#
#   cmake -DNM=nm -DEXTENSION=_core.so -DOUTPUT=no_python.c -P NoPython.cmake
#
# All names refer to one data object, so a call of any of them ends in SIGSEGV.
execute_process(COMMAND "${NM}" -D --undefined-only "${EXTENSION}" OUTPUT_VARIABLE symbols
                COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "_*Py[A-Za-z0-9_]+" names "${symbols}")
set(text "static char no_python[64];\n")
foreach(name IN LISTS names)
  string(APPEND text "extern char ${name} __attribute__((alias(\"no_python\")));\n")
endforeach()
file(WRITE "${OUTPUT}" "${text}")
