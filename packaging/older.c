/* Functions that the product calls and the oldest C library that it runs on lacks. They are linked into each file of the product, and seen by
 * nothing else. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))

/* Since glibc 2.30. */
HIDDEN pid_t gettid(void);
pid_t gettid(void)
{
    return (pid_t)syscall(SYS_gettid);
}
