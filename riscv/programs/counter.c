/* A counter that all cores share, moved on with LR and SC.
 *
 *   request: how often     answer: status · the counter behind the last of these steps */
#include "status.h"

static uint64_t counter;

/* One step; the value behind it. */
static uint64_t step(void) {
    uint64_t before = __atomic_load_n(&counter, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&counter, &before, before + 1, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return before + 1;
}

int nanopu_main(uint64_t core) {
    (void)core;
    nanopu_add_context(0, 0);
    for (;;) {
        nanopu_wait();
        uint64_t header = nanopu_read();
        int64_t words = nanopu_words(header);
        if (words != 1) {
            refuse(header, words, STATUS_MALFORMED);
        } else {
            uint64_t behind = __atomic_load_n(&counter, __ATOMIC_RELAXED);
            for (uint64_t left = nanopu_read(); left > 0; left--) behind = step();
            nanopu_write(nanopu_answer(header, 2));
            nanopu_write(STATUS_OK);
            nanopu_write(behind);
        }
        nanopu_done();
    }
}
