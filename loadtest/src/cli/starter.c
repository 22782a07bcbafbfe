// hotcount-load of a wheel: opens the extension of the Python beside it, which has core and load
// generator inside, and calls the program there. No interpreter runs: no_python.c has an address for
// each of Python's names, and the program calls none of them. The SQLite is the one linked in here.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// From the folder of this program, as pip lays them out: an environment, a system, and --target.
static const char* const places[] = {
    "/../lib*/python3*/*-packages/hotcount/" EXTENSION,
    "/../hotcount/" EXTENSION,
    "/../lib*/python3/*-packages/hotcount/" EXTENSION,
};

static int fail(const char* why) {
    fprintf(stderr, "hotcount-load: %s\n", why);
    return 3;
}

int main(int argc, char** argv) {
    char path[PATH_MAX + 1];
    const ssize_t length = readlink("/proc/self/exe", path, PATH_MAX);
    if (length <= 0) return fail("/proc/self/exe cannot be read");
    path[length] = '\0';
    *strrchr(path, '/') = '\0';
    char pattern[2 * PATH_MAX + 128];
    char* end = pattern;
    for (const char* each = path; *each != '\0'; ++each) {
        if (strchr("*?[\\", *each) != NULL) *end++ = '\\';
        *end++ = *each;
    }

    glob_t found = {0};
    for (size_t i = 0; i < sizeof places / sizeof *places && found.gl_pathc == 0; ++i) {
        strcpy(end, places[i]);
        (void)glob(pattern, 0, NULL, &found);
    }
    if (found.gl_pathc == 0) {
        return fail("the package hotcount is not beside this program: no hotcount/" EXTENSION
                    " in the Python that it was installed for; install hotcount again there");
    }
    void* const extension = dlopen(found.gl_pathv[0], RTLD_NOW | RTLD_LOCAL);
    if (extension == NULL) return fail(dlerror());
    globfree(&found);

    bool (*use_sqlite)(void) = NULL;
    int (*load)(int, char**) = NULL;
    *(void**)&use_sqlite = dlsym(extension, "hotcount_use_sqlite_of_program");
    *(void**)&load = dlsym(extension, "hotcount_load_main");
    if (use_sqlite == NULL || load == NULL) return fail(dlerror());
    if (!use_sqlite()) return fail("its SQLite is incomplete");
    return load(argc, argv);
}
