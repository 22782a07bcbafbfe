"""A disk that loses what was not synced, or fails: for a process that is started with it.

A library that is loaded before libc copies each file of a folder when it is synced: the copies are
what a machine that lost its power would find. It also fails writes and syncs of files with a given
suffix, with the errno that the test sets meanwhile.
"""

import os
import shutil
import struct
import subprocess
from pathlib import Path

from tests.support.fired import fired

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define REAL(name) ((typeof(&name))dlsym(RTLD_NEXT, #name))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int path_of(int file, char* path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    const ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length > 0 ? length : 0] = 0;
    return length > 0;
}

/* The errno that files of that suffix fail with now; the test is told that one has. */
static int failure_of(int file) {
    static volatile int* shared;
    const char* const name = getenv("DISK_FAILS_BY");
    const char* const suffix = getenv("DISK_FAILS_FOR");
    if (!name || !suffix) return 0;
    pthread_mutex_lock(&lock);
    if (!shared) {
        const int opened = open(name, O_RDWR | O_CLOEXEC);
        void* const mapped = mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0);
        if (mapped == MAP_FAILED) abort();
        shared = mapped;
    }
    pthread_mutex_unlock(&lock);
    char path[PATH_MAX];
    if (!shared[0] || !path_of(file, path)) return 0;
    const size_t length = strlen(path), end = strlen(suffix);
    if (length < end || strcmp(path + length - end, suffix) != 0) return 0;
    ++shared[1];
    return shared[0];
}

static void keep(int file) {
    const char* const folder = getenv("DISK_FOLDER");
    char path[PATH_MAX], copy[PATH_MAX + 16], part[PATH_MAX + 32], bytes[65536];
    struct stat status;
    if (!folder || !path_of(file, path) || strncmp(path, folder, strlen(folder)) != 0) return;
    if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) return;
    pthread_mutex_lock(&lock);
    snprintf(copy, sizeof copy, "%s.synced", path);
    snprintf(part, sizeof part, "%s.part", copy);
    const int from = open(path, O_RDONLY | O_CLOEXEC);
    const int to = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ssize_t size;
    while ((size = read(from, bytes, sizeof bytes)) > 0) {
        if (write(to, bytes, size) != size) abort();
    }
    close(from);
    close(to);
    if (rename(part, copy) != 0) abort();
    pthread_mutex_unlock(&lock);
}

#define SYNC(name)                                            \
    int name(int file) {                                      \
        const int failure = failure_of(file);                 \
        if (failure) return errno = failure, -1;              \
        const int done = REAL(name)(file);                    \
        if (done == 0) keep(file);                            \
        return done;                                          \
    }
SYNC(fsync)
SYNC(fdatasync)

#define WRITE(name, offset)                                                          \
    ssize_t name(int file, const void* bytes, size_t size, offset at) {              \
        const int failure = failure_of(file);                                        \
        if (failure) return errno = failure, -1;                                     \
        return REAL(name)(file, bytes, size, at);                                    \
    }
WRITE(pwrite, off_t)
WRITE(pwrite64, off64_t)
"""

SYNCED = ".synced"


class FailingDisk:
    """Compiled once, in that folder."""

    def __init__(self, folder: Path) -> None:
        self._library = folder / "disk.so"
        self._by = folder / "disk.fails"
        self._by.write_bytes(bytes(8))
        (folder / "disk.c").write_text(SOURCE)
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-O1", "-o", str(self._library), "disk.c", "-ldl"],
            cwd=folder,
            check=True,
        )

    def environment(self, folder: Path, suffix: str = "") -> dict[str, str]:
        """That of a process whose files in the folder are copied when they are synced, and whose
        files of that suffix fail when fail() says so."""
        fails = {"DISK_FAILS_BY": str(self._by), "DISK_FAILS_FOR": suffix} if suffix else {}
        return {**os.environ, "LD_PRELOAD": str(self._library), "DISK_FOLDER": str(folder), **fails}

    def fail(self, number: int) -> None:
        """From now on with that errno; 0 ends it."""
        with self._by.open("r+b") as file:
            file.write(struct.pack("i", number))

    def failed(self) -> int:
        """How many writes and syncs did; counted as the fault's proof."""
        times = int(struct.unpack("ii", self._by.read_bytes())[1])
        fired("disk error", times)
        return times


def take_as_synced(folder: Path) -> None:
    """Copies what the folder holds now: other processes wrote it, whose syncs the library missed.

    Without it an SQLite file that a reader checkpointed goes back to its state before that, below a
    log that continues it: no power failure leaves such a pair.
    """
    for copy in folder.glob("*" + SYNCED):
        copy.unlink()
    for file in list(folder.iterdir()):
        shutil.copy(file, file.with_name(file.name + SYNCED))


def lose_what_was_not_synced(folder: Path) -> int:
    """Puts every file of the folder back to what was synced; returns how many were other files."""
    lost = 0
    for file in folder.iterdir():
        copy = file.with_name(file.name + SYNCED)
        if file.name.endswith((SYNCED, ".part")):
            continue
        if file.name.endswith("-shm"):  # SQLite makes it anew.
            file.unlink()
        elif not copy.exists():
            file.unlink()
            lost += 1
        else:
            lost += file.read_bytes() != copy.read_bytes()
            shutil.copy(copy, file)
    for copy in folder.glob("*.part"):
        copy.unlink()
    if lost:
        fired("unsynced writes gone", lost)
    return lost
