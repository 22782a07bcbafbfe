"""A process whose wall clock is wrong, while those of other processes are right."""

import os
import struct
import subprocess
from pathlib import Path

from tests.support.fired import fired

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static long wrong_by(void) {
    static const volatile long* shared;
    if (!shared) {
        const char* const name = getenv("CLOCK_IS_WRONG_BY");
        if (!name) return 0;
        const int file = open(name, O_RDONLY | O_CLOEXEC);
        void* const mapped = mmap(NULL, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
        if (mapped == MAP_FAILED) abort();
        shared = mapped;
    }
    return *shared;
}

int clock_gettime(clockid_t id, struct timespec* now) {
    static int (*real)(clockid_t, struct timespec*);
    if (!real) real = (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
    const int done = real(id, now);
    if (id == CLOCK_REALTIME) now->tv_sec += wrong_by();
    return done;
}

int gettimeofday(struct timeval* now, void* zone) {
    static int (*real)(struct timeval*, void*);
    if (!real) real = (int (*)(struct timeval*, void*))dlsym(RTLD_NEXT, "gettimeofday");
    const int done = real(now, zone);
    now->tv_sec += wrong_by();
    return done;
}
"""


class WrongClock:
    """Compiled once, in that folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "clock.c").write_text(SOURCE)
        self._library = folder / "clock.so"
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-O1", "-o", str(self._library), "clock.c", "-ldl"],
            cwd=folder,
            check=True,
        )

    def environment(self, seconds: int, name: str = "") -> dict[str, str]:
        """That of processes whose clock is so far ahead, or behind if it is below 0."""
        if seconds:
            fired("clock")
        by = self._folder / f"by{name or seconds}"
        by.write_bytes(struct.pack("l", seconds))
        return {**os.environ, "LD_PRELOAD": str(self._library), "CLOCK_IS_WRONG_BY": str(by)}

    def step(self, name: str, seconds: int) -> None:
        """Changes it for the processes with the environment of that name, which run."""
        fired("clock")
        with (self._folder / f"by{name}").open("r+b") as file:
            file.write(struct.pack("l", seconds))
