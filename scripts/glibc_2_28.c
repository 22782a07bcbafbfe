// The functions of glibc that a newer version moved or added, as glibc 2.28 has them.
//
// scripts/wheel links this file into the extension and into hotcount-load. A program that is linked on
// Debian 12 asks for dlopen@GLIBC_2.34, because that version moved dlopen from libdl to libc; the function
// is the same as dlopen@GLIBC_2.2.5, which every later glibc has too. A hidden function defined here
// takes the place of the newer symbol for all objects of the link, libstdc++'s among them, and calls
// the older one. auditwheel reads the symbols and allows the wheel its tag: manylinux_2_28.
//
// x86_64 alone: other processors have other symbol versions. The compiler is told of no header of glibc,
// which would rename functions or declare them otherwise.

#ifndef __x86_64__
#error "the symbol versions below are those of x86_64"
#endif

#define HIDDEN __attribute__((visibility("hidden")))
#define OLD(returns, name, symbol, takes) \
    returns old_##name takes;             \
    __asm__(".symver old_" #name "," symbol);
#define AS_BEFORE(returns, name, symbol, takes, gives) \
    OLD(returns, name, symbol, takes)                  \
    HIDDEN returns name takes { return old_##name gives; }

// In libdl and libpthread until 2.34; the wheel names both libraries.
AS_BEFORE(void*, dlopen, "dlopen@GLIBC_2.2.5", (const char* a, int b), (a, b))
AS_BEFORE(void*, dlsym, "dlsym@GLIBC_2.2.5", (void* a, const char* b), (a, b))
AS_BEFORE(int, dlclose, "dlclose@GLIBC_2.2.5", (void* a), (a))
AS_BEFORE(char*, dlerror, "dlerror@GLIBC_2.2.5", (void), ())
AS_BEFORE(int, dladdr, "dladdr@GLIBC_2.2.5", (const void* a, void* b), (a, b))
AS_BEFORE(int, pthread_create, "pthread_create@GLIBC_2.2.5",
          (void* a, const void* b, void* (*c)(void*), void* d), (a, b, c, d))
AS_BEFORE(int, pthread_join, "pthread_join@GLIBC_2.2.5", (unsigned long a, void** b), (a, b))
AS_BEFORE(int, pthread_detach, "pthread_detach@GLIBC_2.2.5", (unsigned long a), (a))
AS_BEFORE(int, pthread_key_create, "pthread_key_create@GLIBC_2.2.5",
          (unsigned* a, void (*b)(void*)), (a, b))
AS_BEFORE(int, pthread_key_delete, "pthread_key_delete@GLIBC_2.2.5", (unsigned a), (a))
AS_BEFORE(void*, pthread_getspecific, "pthread_getspecific@GLIBC_2.2.5", (unsigned a), (a))
AS_BEFORE(int, pthread_setspecific, "pthread_setspecific@GLIBC_2.2.5", (unsigned a, const void* b),
          (a, b))
AS_BEFORE(int, pthread_mutexattr_init, "pthread_mutexattr_init@GLIBC_2.2.5", (void* a), (a))
AS_BEFORE(int, pthread_mutexattr_destroy, "pthread_mutexattr_destroy@GLIBC_2.2.5", (void* a), (a))
AS_BEFORE(int, pthread_mutexattr_settype, "pthread_mutexattr_settype@GLIBC_2.2.5", (void* a, int b),
          (a, b))
AS_BEFORE(int, pthread_rwlock_rdlock, "pthread_rwlock_rdlock@GLIBC_2.2.5", (void* a), (a))
AS_BEFORE(int, pthread_rwlock_wrlock, "pthread_rwlock_wrlock@GLIBC_2.2.5", (void* a), (a))
AS_BEFORE(int, pthread_rwlock_unlock, "pthread_rwlock_unlock@GLIBC_2.2.5", (void* a), (a))
AS_BEFORE(int, pthread_once, "pthread_once@GLIBC_2.2.5", (int* a, void (*b)(void)), (a, b))
AS_BEFORE(int, pthread_mutex_trylock, "pthread_mutex_trylock@GLIBC_2.2.5", (void* a), (a))
AS_BEFORE(int, pthread_sigmask, "pthread_sigmask@GLIBC_2.2.5", (int a, const void* b, void* c),
          (a, b, c))

// Faster ones came with 2.29.
AS_BEFORE(double, exp, "exp@GLIBC_2.2.5", (double a), (a))
AS_BEFORE(double, log, "log@GLIBC_2.2.5", (double a), (a))
AS_BEFORE(double, pow, "pow@GLIBC_2.2.5", (double a, double b), (a, b))

// Until 2.33, stat() was an inline function around this one. 1: the version of struct stat.
OLD(int, xstat, "__xstat@GLIBC_2.2.5", (int version, const char* path, void* found))
OLD(int, lxstat, "__lxstat@GLIBC_2.2.5", (int version, const char* path, void* found))
OLD(int, fxstat, "__fxstat@GLIBC_2.2.5", (int version, int file, void* found))
HIDDEN int stat(const char* path, void* found) { return old_xstat(1, path, found); }
HIDDEN int stat64(const char* path, void* found) { return old_xstat(1, path, found); }
HIDDEN int lstat(const char* path, void* found) { return old_lxstat(1, path, found); }
HIDDEN int lstat64(const char* path, void* found) { return old_lxstat(1, path, found); }
HIDDEN int fstat(int file, void* found) { return old_fxstat(1, file, found); }
HIDDEN int fstat64(int file, void* found) { return old_fxstat(1, file, found); }

// New in 2.32. libstdc++ counts owners of a shared_ptr without atomic operations while it is set.
HIDDEN char __libc_single_threaded = 0;

// New in 2.30: waits until a time of the monotonic clock. Where they are missing, the deadline is
// turned into one of the realtime clock, so a clock that is set meanwhile lengthens or shortens the
// wait, as in libstdc++ before GCC 10.
struct timespec {
    long tv_sec;
    long tv_nsec;
};
int clock_gettime(int clock, struct timespec* now);
int pthread_cond_timedwait(void* condition, void* mutex, const struct timespec* end);
OLD(int, timedlock, "pthread_mutex_timedlock@GLIBC_2.2.5", (void* a, const struct timespec* b))

static struct timespec on_realtime_clock(int clock, const struct timespec* end) {
    enum { realtime = 0, second = 1000000000 };
    struct timespec there, here;
    clock_gettime(clock, &there);
    clock_gettime(realtime, &here);
    here.tv_sec += end->tv_sec - there.tv_sec;
    here.tv_nsec += end->tv_nsec - there.tv_nsec;
    if (here.tv_nsec < 0) {
        here.tv_nsec += second;
        here.tv_sec -= 1;
    } else if (here.tv_nsec >= second) {
        here.tv_nsec -= second;
        here.tv_sec += 1;
    }
    return here;
}

// Looked up when the object is loaded, before a thread of ours exists.
static int (*clockwait)(void*, void*, int, const struct timespec*);
static int (*clocklock)(void*, int, const struct timespec*);

__attribute__((constructor(101))) static void look_up(void) {
    *(void**)&clockwait = old_dlsym((void*)0, "pthread_cond_clockwait");
    *(void**)&clocklock = old_dlsym((void*)0, "pthread_mutex_clocklock");
}

HIDDEN int pthread_cond_clockwait(void* condition, void* mutex, int clock,
                                  const struct timespec* end) {
    if (clockwait) return clockwait(condition, mutex, clock, end);
    const struct timespec realtime = on_realtime_clock(clock, end);
    return pthread_cond_timedwait(condition, mutex, &realtime);
}

HIDDEN int pthread_mutex_clocklock(void* mutex, int clock, const struct timespec* end) {
    if (clocklock) return clocklock(mutex, clock, end);
    const struct timespec realtime = on_realtime_clock(clock, end);
    return old_timedlock(mutex, &realtime);
}

// Since 2.34 the start of a program leaves its constructors to glibc. An older one, and this function's
// older symbol in a newer one, expect a function that runs them.
typedef void constructor(int, char**, char**);
extern constructor* __init_array_start[] HIDDEN;
extern constructor* __init_array_end[] HIDDEN;

static void run_constructors(int argc, char** argv, char** environment) {
    for (constructor** each = __init_array_start; each != __init_array_end; ++each) {
        (*each)(argc, argv, environment);
    }
}

OLD(int, start_main, "__libc_start_main@GLIBC_2.2.5",
    (int (*)(int, char**, char**), int, char**, constructor*, void (*)(void), void (*)(void),
     void*))
HIDDEN int __libc_start_main(int (*main)(int, char**, char**), int argc, char** argv,
                             constructor* init, void (*fini)(void), void (*rtld_fini)(void),
                             void* stack_end) {
    (void)init;
    return old_start_main(main, argc, argv, run_constructors, fini, rtld_fini, stack_end);
}
