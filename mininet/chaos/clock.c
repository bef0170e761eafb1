/* Shows a program another time of day: CLOCK_REALTIME and the seconds in the file that HYROADS_CHAOS_CLOCK names, a
 * number of 64 bits that may change at any time. Put before a program by LD_PRELOAD. All other clocks are as they are. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

typedef int (*read_clock)(clockid_t, struct timespec *);

static const volatile int64_t none;
static const volatile int64_t *offset_s = &none;
static read_clock real;

__attribute__((constructor)) static void begin(void)
{
    const char *name = getenv("HYROADS_CHAOS_CLOCK");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;

    real = (read_clock)dlsym(RTLD_NEXT, "clock_gettime");
    if (file >= 0) {
        void *found = mmap(NULL, sizeof *offset_s, PROT_READ, MAP_SHARED, file, 0);
        if (found != MAP_FAILED)
            offset_s = found;
        close(file);
    }
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int status = real ? real(clock, now) : (int)syscall(SYS_clock_gettime, clock, now);

    if (!status && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += *offset_s;
    return status;
}

int gettimeofday(struct timeval *now, void *zone)
{
    struct timespec precise;

    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &precise))
        return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *also)
{
    struct timespec precise = {0};

    clock_gettime(CLOCK_REALTIME, &precise);
    if (also)
        *also = precise.tv_sec;
    return precise.tv_sec;
}
