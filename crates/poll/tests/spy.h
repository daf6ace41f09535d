/* What the C library was asked for. */
#include <stdint.h>

#define SEEN_MAX 256

struct seen {
    const char *name;
    /* Negative: for ever. */
    int64_t nanos;
    const void *mask;
};

extern __thread struct seen seen[SEEN_MAX];
extern __thread int seen_count;
