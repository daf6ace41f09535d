/* Asks a node that runs onesided.c, one operation at a time, and measures how long each takes.
 *
 *   request: the server's address · operation · how often, 1 to 200 · seed
 *   answer: status · cycles of each, from before the first word is written to x31 to behind the status read from x30
 *
 * Orders come in context 0, the server's answers in context 1. Addresses are random words of the table. An answer that is not OK counts as no
 * time at all; without an answer the order ends, and its status is NOT_FOUND. */
#include "onesided.h"

#define ORDERS 0
#define ANSWERS 1
#define COUNT_MAX 200
/* Of a loop that asks for a word; six cycles or so each. */
#define PATIENCE_TURNS 200000
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
    int64_t words = onesided_request_words[operation];
    /* Whatever is written is an address, so that INDIRECT always finds one. */
    uint64_t operand = operation == FETCH_ADD ? 0 : address;
    uint64_t begin = nanopu_cycle();
    nanopu_write(nanopu_header(server, 0, 8 * words));
    nanopu_write(operation);
    nanopu_write(address);
    for (int64_t i = 2; i < words; i++) nanopu_write(operand);
    for (int64_t turns = 0; nanopu_csr_read(NANOPU_MESSAGES_READY) == 0; turns++) {
        if (turns == PATIENCE_TURNS) return SILENCE;
    }
    uint64_t header = nanopu_read();
    uint64_t status = nanopu_words(header) > 0 ? nanopu_read() : STATUS_MALFORMED;
    uint64_t end = nanopu_cycle();
    nanopu_skip(nanopu_words(header) - 1);
    nanopu_done();
    return status == STATUS_OK ? end - begin : 0;
}

/* Whether the server has answered each time. */
static int measure(uint64_t server, uint64_t operation, uint64_t count, uint64_t seed) {
    drain();
    for (uint64_t i = 0; i < count; i++) {
        cycles[i] = ask(server, operation, random_word(&seed) % ONESIDED_WORDS * 8);
        if (cycles[i] == SILENCE) return 0;
    }
    return 1;
}

static void serve(uint64_t header) {
    int64_t words = nanopu_words(header);
    if (words != 4) return refuse(header, words, STATUS_MALFORMED);
    uint64_t server = nanopu_read(), operation = nanopu_read(), count = nanopu_read(), seed = nanopu_read();
    if (operation < READ || operation >= OPERATIONS || count < 1 || count > COUNT_MAX) {
        return answer_status(header, STATUS_MALFORMED);
    }
    nanopu_csr_write(NANOPU_CURRENT_CONTEXT, ANSWERS);
    int is_answered = measure(server, operation, count, seed | 1);
    nanopu_csr_write(NANOPU_CURRENT_CONTEXT, ORDERS);
    if (!is_answered) return answer_status(header, STATUS_NOT_FOUND);
    nanopu_write(nanopu_answer(header, 1 + count));
    nanopu_write(STATUS_OK);
    nanopu_give(cycles, (int64_t)count);
}

int nanopu_main(uint64_t core) {
    if (core > 0) nanopu_park();
    nanopu_add_context(ANSWERS, 0);
    nanopu_add_context(ORDERS, 0);
    for (;;) {
        nanopu_wait();
        serve(nanopu_read());
        nanopu_done();
    }
}
