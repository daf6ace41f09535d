/* What one-sided RDMA does, done by a program: reads, writes and atomic operations on a table of 3.2 MB.
 *
 *   request: operation · address [· operand [· operand]]          answer: status [· word]
 *   READ                → the word            INDIRECT            → the word at the address that is there
 *   WRITE value                               FETCH_ADD addend    → the word as it was
 *   CAS expected, new   → the word as it was
 *
 * Addresses count bytes from the table's beginning and are multiples of eight. One core serves the table, so what it does for a message is
 * atomic. At the beginning word i holds the address of word 154321 i, modulo the table. */
#include "status.h"

#define WORDS 400000UL

enum operation { READ = 1, WRITE = 2, CAS = 3, FETCH_ADD = 4, INDIRECT = 5, OPERATIONS };

static const uint8_t request_words[OPERATIONS] = {[0] = 255, [READ] = 2, [WRITE] = 3, [CAS] = 4, [FETCH_ADD] = 3, [INDIRECT] = 2};
static uint64_t table[WORDS] __attribute__((aligned(64)));

static inline void answer(uint64_t header, uint64_t word) {
    nanopu_write(nanopu_answer(header, 2));
    nanopu_write(STATUS_OK);
    nanopu_write(word);
}

/* The word at an address, or null. */
static inline uint64_t *at(uint64_t address) {
    uint64_t index = address >> 3 | address << 61;
    return index < WORDS ? &table[index] : 0;
}

static inline void serve(uint64_t header) {
    int64_t words = nanopu_words(header);
    uint64_t operation = words > 0 ? nanopu_read() : 0;
    if (operation >= OPERATIONS || words != request_words[operation]) return refuse(header, words - 1, STATUS_MALFORMED);
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
    for (uint64_t i = 1; i < WORDS; i++) {
        uint64_t next = table[i - 1] + 154321 * 8;
        table[i] = next < WORDS * 8 ? next : next - WORDS * 8;
    }
    nanopu_add_context(0, 0);
    for (;;) {
        nanopu_wait();
        serve(nanopu_read());
        nanopu_done();
    }
}
