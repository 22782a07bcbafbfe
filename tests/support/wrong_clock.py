"""A process whose wall clock is wrong, while that of the machine and its servers is right."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t id, struct timespec* now) {
    static int (*real)(clockid_t, struct timespec*);
    if (!real) real = (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
    const int done = real(id, now);
    const char* const wrong = getenv("CLOCK_IS_WRONG_BY");
    if (id == CLOCK_REALTIME && wrong) now->tv_sec += atol(wrong);
    return done;
}
"""


class WrongClock:
    """Compiled once, in that folder."""

    def __init__(self, folder: Path) -> None:
        (folder / "clock.c").write_text(SOURCE)
        self._library = folder / "clock.so"
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-O1", "-o", str(self._library), "clock.c", "-ldl"],
            cwd=folder,
            check=True,
        )

    def environment(self, seconds: int) -> dict[str, str]:
        """That of a process whose clock is so far ahead, or behind if it is below 0."""
        return {
            **os.environ,
            "LD_PRELOAD": str(self._library),
            "CLOCK_IS_WRONG_BY": str(seconds),
        }
