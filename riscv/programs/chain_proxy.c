/* Asks a chain on behalf of clients that do not know it: writes at the head, reads at the tail.
 *
 *   request: WRITE · key, 2 words · value, 8 words    READ · key    CONFIGURE · head · tail
 *   answer: status [· version [· value: READ]]
 *
 * The client's header travels as the token, so the proxy remembers no request. */
#include "chain.h"

static uint64_t head, tail;

static void ask(uint64_t replica, uint64_t operation, uint64_t client, int64_t words) {
    nanopu_write(nanopu_header(replica, 0, 8 * (2 + words)));
    nanopu_write(operation);
    nanopu_write(client);
    for (; words >= 2; words -= 2) nanopu_copy_2();
}

/* A reply of a replica, without its operation: to the client whose header the token is. */
static void tell(int64_t words) {
    uint64_t client = nanopu_read();
    nanopu_write(nanopu_answer(client, words - 1));
    for (words--; words > 0; words--) nanopu_copy();
}

static inline void serve(uint64_t header) {
    int64_t words = nanopu_words(header);
    uint64_t operation = words > 0 ? nanopu_read() : 0;
    words--;
    int is_replica = nanopu_peer(header) == head || nanopu_peer(header) == tail;
    if (operation == REPLY && is_replica && words >= 2) return tell(words);
    if (operation == REPLY) return nanopu_skip(words);
    if (operation == WRITE && words == 2 + TABLE_VALUE_WORDS && head) return ask(head, WRITE, header, words);
    if (operation == READ && words == 2 && tail) return ask(tail, READ, header, words);
    if (operation != CONFIGURE || words != 2) return refuse(header, words, STATUS_MALFORMED);
    head = nanopu_read();
    tail = nanopu_read();
    answer_status(header, STATUS_OK);
}

int nanopu_main(uint64_t core) {
    if (core > 0) nanopu_park();
    nanopu_add_context(0, 0);
    for (;;) {
        nanopu_wait();
        serve(nanopu_read());
        nanopu_done();
    }
}
