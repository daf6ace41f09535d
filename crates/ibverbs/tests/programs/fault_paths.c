/* Packets that are lost by pattern or in bursts.
 * scenario: acknowledgements-lost deaf
 * scenario: bursts whole
 * scenario: last-packet-lost whole
 */
#include "rig.h"

enum { MESSAGES = 60, BYTES = 5000 };

static struct end a, b;

/* All is repaired, and every byte is right. */
static void whole(void)
{
    for (int number = 0; number < MESSAGES; number++) {
        memset(a.bytes, number + 1, BYTES);
        rig_post(&a, IBV_WR_RDMA_WRITE, number, 0, BYTES, &b, (size_t)number * BYTES);
        CHECK_EQUAL(rig_next(a.send_cq).status, IBV_WC_SUCCESS);
    }
    for (int number = 0; number < MESSAGES; number++)
        for (int i = 0; i < BYTES; i++)
            CHECK_EQUAL(b.bytes[number * BYTES + i], (char)(number + 1));
}

/* The receiver has the message, and the sender does not know. */
static void deaf(void)
{
    rig_receive(&b, 1, 0, 64);
    memcpy(a.bytes, "here", 5);
    rig_post(&a, IBV_WR_SEND, 2, 0, 64, NULL, 0);
    CHECK_EQUAL(rig_next(b.recv_cq).status, IBV_WC_SUCCESS);
    CHECK(!strcmp(b.bytes, "here"));
    CHECK_EQUAL(rig_next(a.send_cq).status, IBV_WC_RETRY_EXC_ERR);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    struct ibv_context *context = rig_open();
    rig_pair(&a, &b, context, MESSAGES * BYTES);
    if (!strcmp(argv[1], "deaf"))
        deaf();
    else
        whole();
    return 0;
}
