/* Serves a table as an RNIC serves memory. One core does it, so what it does for a message is atomic. Messages: onesided.h. */
#include "onesided.h"

static uint64_t table[ONESIDED_WORDS] __attribute__((aligned(64)));

static void fill(void) {
    for (uint64_t i = 1; i < ONESIDED_WORDS; i++) {
        uint64_t next = table[i - 1] + 154321 * 8;
        table[i] = next < ONESIDED_WORDS * 8 ? next : next - ONESIDED_WORDS * 8;
    }
}

/* The word at an address, or null. */
static inline uint64_t *at(uint64_t address) {
    uint64_t index = address >> 3 | address << 61;
    return index < ONESIDED_WORDS ? &table[index] : 0;
}

static inline void answer(uint64_t header, uint64_t word) {
    nanopu_write(nanopu_answer(header, 2));
    nanopu_write(STATUS_OK);
    nanopu_write(word);
}

static inline void serve(uint64_t header) {
    int64_t words = nanopu_words(header);
    uint64_t operation = words > 0 ? nanopu_read() : 0;
    if (operation >= OPERATIONS || words != onesided_request_words[operation]) {
        return refuse(header, words - 1, STATUS_MALFORMED);
    }
    uint64_t *word = at(nanopu_read());
    if (!word) return refuse(header, words - 2, STATUS_BAD_ADDRESS);
    switch (operation) {
    case READ: return answer(header, *word);
    case WRITE: nanopu_store(word); return answer_status(header, STATUS_OK);
    case INDIRECT:
        word = at(*word);
        return word ? answer(header, *word) : answer_status(header, STATUS_BAD_ADDRESS);
    case FETCH_ADD: {
        uint64_t before = *word;
        *word = before + nanopu_read();
        return answer(header, before);
    }
    default: {
        uint64_t before = *word, expected = nanopu_read(), wanted = nanopu_read();
        if (before == expected) *word = wanted;
        return answer(header, before);
    }
    }
}

int nanopu_main(uint64_t core) {
    if (core > 0) nanopu_park();
    fill();
    nanopu_add_context(0, 0);
    for (;;) {
        nanopu_wait();
        serve(nanopu_read());
        nanopu_done();
    }
}
