/* Two cards in one process: messages go over the first, and over the second from where the first failed. Every byte arrives once.
 * scenario: two-nics-one-dies survives
 * scenario: two-nics-both-die ends
 * scenario: one-of-two-ports-down apart
 * scenario: one-direction lossy
 * scenario: receiver-port-down unheard
 */
#include "rig.h"

enum { MESSAGES = 20, BYTES = 1000 };

struct rail {
    struct ibv_context *context;
    struct end from, to;
};

static struct rail rails[2];

static void open_rails(int crossed)
{
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    CHECK_EQUAL(count, 2);
    for (int i = 0; i < 2; i++)
        CHECK((rails[i].context = ibv_open_device(list[i])) != NULL);
    ibv_free_device_list(list);
    for (int i = 0; i < 2; i++) {
        rig_end(&rails[i].from, rails[i].context, 65536);
        rig_end(&rails[i].to, rails[crossed ? !i : i].context, 65536);
        rig_queue_pair(&rails[i].from, IBV_QPT_RC);
        rig_queue_pair(&rails[i].to, IBV_QPT_RC);
        rig_connect(&rails[i].from, &rails[i].to);
    }
}

/* Sends message `number` over a rail; its status. */
static enum ibv_wc_status send_over(struct rail *rail, int number)
{
    memset(rail->from.bytes, number, BYTES);
    struct ibv_sge sge = {(uintptr_t)rail->from.bytes, BYTES, rail->from.mr->lkey};
    struct ibv_send_wr request = {.wr_id = number, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {(uintptr_t)rail->to.bytes + number * BYTES, rail->to.mr->rkey}}, *bad;
    CHECK_EQUAL(ibv_post_send(rail->from.qp, &request, &bad), 0);
    struct ibv_wc wc = rig_next(rail->from.send_cq);
    CHECK_EQUAL(wc.wr_id, number);
    return wc.status;
}

static void check_message(struct rail *rail, int number)
{
    for (int i = 0; i < BYTES; i++)
        CHECK_EQUAL(rail->to.bytes[number * BYTES + i], (char)number);
}

static void survives(void)
{
    int now = 0, switched_at = 0;
    for (int number = 1; number <= MESSAGES; number++) {
        if (send_over(&rails[now], number) != IBV_WC_SUCCESS) {
            CHECK_EQUAL(now, 0);
            now = 1;
            switched_at = number;
            CHECK_EQUAL(send_over(&rails[now], number), IBV_WC_SUCCESS);
        }
    }
    CHECK_EQUAL(switched_at, 5);
    for (int number = 1; number <= MESSAGES; number++)
        check_message(&rails[number >= switched_at], number);
    struct ibv_async_event event = rig_event(rails[0].context);
    CHECK_EQUAL(event.event_type, IBV_EVENT_QP_FATAL);
    CHECK(event.element.qp == rails[0].from.qp);
    CHECK_EQUAL(ibv_destroy_qp(rails[0].from.qp), 0);
}

static void ends(void)
{
    for (int number = 1; number <= 4; number++)
        CHECK_EQUAL(send_over(&rails[0], number), IBV_WC_SUCCESS);
    CHECK_EQUAL(send_over(&rails[0], 5), IBV_WC_RETRY_EXC_ERR);
    CHECK_EQUAL(send_over(&rails[1], 5), IBV_WC_RETRY_EXC_ERR);
}

static void apart(void)
{
    CHECK_EQUAL(send_over(&rails[0], 1), IBV_WC_SUCCESS);
    for (int number = 2; number <= MESSAGES; number++)
        CHECK_EQUAL(send_over(&rails[0], number), IBV_WC_SUCCESS);
    struct ibv_port_attr port;
    CHECK_EQUAL(ibv_query_port(rails[0].context, 1, &port), 0);
    CHECK_EQUAL(port.state, IBV_PORT_ACTIVE);
    CHECK_EQUAL(ibv_query_port(rails[1].context, 1, &port), 0);
    CHECK_EQUAL(port.state, IBV_PORT_DOWN);
    CHECK_EQUAL(rig_event(rails[1].context).event_type, IBV_EVENT_PORT_ERR);
}

static void lossy(void)
{
    for (int number = 1; number <= MESSAGES; number++)
        for (int i = 0; i < 2; i++)
            CHECK_EQUAL(send_over(&rails[i], number), IBV_WC_SUCCESS);
    for (int number = 1; number <= MESSAGES; number++)
        for (int i = 0; i < 2; i++)
            check_message(&rails[i], number);
}

/* From the first card to the second, whose port is down: nothing lands, although the sender's port is active. */
static void unheard(void)
{
    CHECK_EQUAL(send_over(&rails[0], 1), IBV_WC_RETRY_EXC_ERR);
    for (int i = 0; i < BYTES; i++)
        CHECK_EQUAL(rails[0].to.bytes[BYTES + i], 0);
    struct ibv_port_attr port;
    CHECK_EQUAL(ibv_query_port(rails[0].context, 1, &port), 0);
    CHECK_EQUAL(port.state, IBV_PORT_ACTIVE);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    open_rails(!strcmp(argv[1], "lossy") || !strcmp(argv[1], "unheard"));
    if (!strcmp(argv[1], "survives"))
        survives();
    else if (!strcmp(argv[1], "ends"))
        ends();
    else if (!strcmp(argv[1], "apart"))
        apart();
    else if (!strcmp(argv[1], "unheard"))
        unheard();
    else
        lossy();
    return 0;
}
