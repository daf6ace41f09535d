/* Asks a node that runs onesided.c, one operation at a time, and measures how long each takes.
 *
 *   request: the server's address · operation · how often, 1 to 200 · seed
 *   answer: status · cycles of each, from the first word written to x31 to the status read from x30
 *
 * Orders come in context 0, the server's answers in context 1. Addresses are random words of the table. An answer that is not OK is counted as
 * no time at all. */
#include "status.h"

#define ORDERS 0
#define ANSWERS 1
#define TABLE_WORDS 400000UL
#define COUNT_MAX 200
#define OPERATION_MAX 5
#define FETCH_ADD 4

static uint64_t cycles[COUNT_MAX];

static uint64_t random_word(uint64_t *state) {
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return *state = x;
}

/* Cycles of one operation. */
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
    nanopu_wait();
    uint64_t header = nanopu_read();
    uint64_t status = nanopu_read();
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
        for (uint64_t i = 0; i < count; i++) cycles[i] = ask(server, operation, random_word(&seed) % TABLE_WORDS * 8);
        nanopu_csr_write(NANOPU_CURRENT_CONTEXT, ORDERS);
        nanopu_write(nanopu_answer(header, 1 + count));
        nanopu_write(STATUS_OK);
        nanopu_give(cycles, (int64_t)count);
        nanopu_done();
    }
}
