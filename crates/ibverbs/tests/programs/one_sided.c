/* One process, two queue pairs: WRITE, READ and SEND change the bytes that they name and no others. */
#include "rig.h"

int main(void)
{
    struct ibv_context *context = rig_open();
    struct end a, b;
    rig_end(&a, context, 65536);
    rig_end(&b, context, 65536);
    rig_queue_pair(&a, IBV_QPT_RC);
    rig_queue_pair(&b, IBV_QPT_RC);
    rig_connect(&a, &b);
    memset(a.bytes + 16, 'w', 5000);
    rig_post(&a, IBV_WR_RDMA_WRITE, 1, 16, 5000, &b, 300);
    struct ibv_wc wc = rig_next(a.send_cq);
    CHECK_EQUAL(wc.status, IBV_WC_SUCCESS);
    CHECK_EQUAL(wc.opcode, IBV_WC_RDMA_WRITE);
    for (size_t i = 0; i < b.length; i++)
        CHECK_EQUAL(b.bytes[i], i >= 300 && i < 5300 ? 'w' : 0);
    memset(b.bytes + 9000, 'r', 77);
    rig_post(&a, IBV_WR_RDMA_READ, 2, 20000, 77, &b, 9000);
    wc = rig_next(a.send_cq);
    CHECK_EQUAL(wc.status, IBV_WC_SUCCESS);
    CHECK_EQUAL(memcmp(a.bytes + 20000, b.bytes + 9000, 77), 0);
    CHECK_EQUAL(a.bytes[20077], 0);
    rig_receive(&b, 3, 40000, 64);
    rig_post(&a, IBV_WR_SEND, 4, 16, 40, NULL, 0);
    wc = rig_next(b.recv_cq);
    CHECK_EQUAL(wc.status, IBV_WC_SUCCESS);
    CHECK_EQUAL(wc.byte_len, 40);
    CHECK_EQUAL(b.bytes[40039], 'w');
    CHECK_EQUAL(b.bytes[40040], 0);
    return 0;
}
