/* Asks a node that runs onesided.c, one operation at a time, and measures how long each takes.
 *
 *   request: the server's address · operation · how often, 1 to 200 · seed
 *   answer: status · cycles of each, from the first word written to x31 to the status read from x30
 *
 * Orders come in context 0, the server's answers in context 1. Addresses are random words of the table. An answer that is not OK counts as no
 * time at all; without an answer the order ends, and its status is NOT_FOUND. */
#include "status.h"

#define ORDERS 0
#define ANSWERS 1
#define TABLE_WORDS 400000UL
#define COUNT_MAX 200
#define OPERATION_MAX 5
#define FETCH_ADD 4
#define PATIENCE_CYCLES 1000000
#define SILENCE UINT64_MAX

static uint64_t cycles[COUNT_MAX];

static uint64_t random_word(uint64_t *state) {
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return *state = x;
}

/* Throws away what comes too late. */
static void drain(void) {
    while (nanopu_csr_read(NANOPU_MESSAGES_READY)) {
        nanopu_skip(nanopu_words(nanopu_read()));
        nanopu_done();
    }
}

/* Cycles of one operation, or SILENCE. */
static uint64_t ask(uint64_t server, uint64_t operation, uint64_t address) {
    static const uint8_t operands[OPERATION_MAX + 1] = {[2] = 1, [3] = 2, [4] = 1};
    uint64_t extra = operands[operation];
    /* Whatever is written is an address, so that INDIRECT always finds one. */
    uint64_t operand = operation == FETCH_ADD ? 0 : address;
    uint64_t begin = nanopu_cycle();
    nanopu_write(nanopu_header(server, 0, 8 * (2 + extra)));
    nanopu_write(operation);
    nanopu_write(address);
    for (uint64_t i = 0; i < extra; i++) nanopu_write(operand);
    while (nanopu_csr_read(NANOPU_MESSAGES_READY) == 0) {
        if (nanopu_cycle() - begin > PATIENCE_CYCLES) return SILENCE;
    }
    uint64_t header = nanopu_read();
    uint64_t status = nanopu_words(header) > 0 ? nanopu_read() : STATUS_MALFORMED;
    uint64_t end = nanopu_cycle();
    nanopu_skip(nanopu_words(header) - 1);
    nanopu_done();
    return status == STATUS_OK ? end - begin : 0;
}

int nanopu_main(uint64_t core) {
    if (core > 0) nanopu_park();
    nanopu_add_context(ANSWERS, 0);
    nanopu_add_context(ORDERS, 0);
    for (;;) {
        nanopu_wait();
        uint64_t header = nanopu_read();
        int64_t words = nanopu_words(header);
        if (words != 4) {
            refuse(header, words, STATUS_MALFORMED);
            nanopu_done();
            continue;
        }
        uint64_t server = nanopu_read(), operation = nanopu_read(), count = nanopu_read(), seed = nanopu_read();
        if (operation < 1 || operation > OPERATION_MAX || count < 1 || count > COUNT_MAX) {
            answer_status(header, STATUS_MALFORMED);
            nanopu_done();
            continue;
        }
        seed |= 1;
        nanopu_csr_write(NANOPU_CURRENT_CONTEXT, ANSWERS);
        drain();
        uint64_t asked = 0, last = 0;
        while (asked < count && last != SILENCE) {
            last = ask(server, operation, random_word(&seed) % TABLE_WORDS * 8);
            cycles[asked++] = last;
        }
        nanopu_csr_write(NANOPU_CURRENT_CONTEXT, ORDERS);
        if (last == SILENCE) {
            answer_status(header, STATUS_NOT_FOUND);
        } else {
            nanopu_write(nanopu_answer(header, 1 + count));
            nanopu_write(STATUS_OK);
            nanopu_give(cycles, (int64_t)count);
        }
        nanopu_done();
    }
}
