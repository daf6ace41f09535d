/* The dot product as a program does it that wants its message in memory first. See dot.h. */
#include "dot.h"

static uint64_t message[DOT_WORDS_MAX];

static void serve(uint64_t header, int64_t words) {
    for (int64_t i = 0; i < words; i++) nanopu_store(&message[i]);
    uint64_t sum = 0;
    for (int64_t i = 0; i < words; i++) sum += message[i] * dot_weights[i];
    dot_answer(header, sum);
}

int nanopu_main(uint64_t core) {
    if (core > 0) nanopu_park();
    dot_serve(serve);
}
