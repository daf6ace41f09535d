/* A node of a ring, as examples/nanopu/ring.toml connects four of them.
 *
 *   NEXT · address                   where this node sends tokens; answered with the address
 *   TOKEN · left [· client · hops]   goes on to the next node while hops are left; the last node answers the client with the hops that
 *                                    it made, and with how many tokens this node has seen
 *
 * All messages are whole words. */
#include "nanopu.h"

enum { NEXT = 1, TOKEN = 2 };

int nanopu_main(uint64_t core) {
    (void)core;
    uint32_t next = 0;
    uint64_t visits = 0;
    nanopu_add_context(0, 0);
    for (;;) {
        nanopu_wait();
        uint64_t header = nanopu_read();
        int64_t words = nanopu_words(header);
        uint64_t operation = words > 0 ? nanopu_read() : 0;
        uint64_t value = words > 1 ? nanopu_read() : 0;
        if (operation == NEXT && words == 2) {
            next = (uint32_t)value;
            nanopu_write(nanopu_answer(header, 1));
            nanopu_write(value);
        } else if (operation == TOKEN && words >= 2) {
            /* A token that comes from its client has neither. */
            uint64_t client = words > 2 ? nanopu_read() : header;
            uint64_t hops = words > 3 ? nanopu_read() : 0;
            nanopu_skip(words - 4);
            visits++;
            if (value > 0 && next != 0) {
                nanopu_write(nanopu_header(next, 0, 32));
                nanopu_write(TOKEN);
                nanopu_write(value - 1);
                nanopu_write(client);
                nanopu_write(hops + 1);
            } else {
                nanopu_write(nanopu_answer(client, 2));
                nanopu_write(hops);
                nanopu_write(visits);
            }
        } else {
            nanopu_skip(words - 2);
        }
        nanopu_done();
    }
}
