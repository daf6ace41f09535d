/* Completions that a scenario replaces, holds back or keeps, by both ways to poll.
 * scenario: completion-fails fails plain
 * scenario: completion-fails fails extended
 * scenario: completion-late late plain
 * scenario: completion-late late extended
 * scenario: completion-missing missing plain
 * scenario: completion-missing missing extended
 */
#include "rig.h"
#include <poll.h>

static struct ibv_cq_ex *extended;

/* What verbs promise of a completion, and its opcode; false if there is none now. */
static int poll_once(struct end *end, struct ibv_wc *wc)
{
    if (!extended)
        return ibv_poll_cq(end->send_cq, 1, wc);
    struct ibv_poll_cq_attr attr = {0};
    int result = ibv_start_poll(extended, &attr);
    if (result == ENOENT)
        return 0;
    CHECK_EQUAL(result, 0);
    wc->wr_id = extended->wr_id;
    wc->status = extended->status;
    wc->opcode = ibv_wc_read_opcode(extended);
    wc->qp_num = ibv_wc_read_qp_num(extended);
    wc->vendor_err = ibv_wc_read_vendor_err(extended);
    wc->byte_len = ibv_wc_read_byte_len(extended);
    ibv_end_poll(extended);
    return 1;
}

static struct ibv_wc next(struct end *end)
{
    struct ibv_wc wc;
    while (!poll_once(end, &wc))
        ;
    return wc;
}

static void write_to(struct end *a, struct end *b, int id) { rig_post(a, IBV_WR_RDMA_WRITE, id, 0, 8, b, 0); }

/* The third fails, its queue pair is in ERR as after a card's time-out, and what was posted behind it is flushed. */
static void fails(struct end *a, struct end *b)
{
    for (int id = 1; id <= 2; id++) {
        write_to(a, b, id);
        struct ibv_wc wc = next(a);
        CHECK_EQUAL(wc.status, IBV_WC_SUCCESS);
        CHECK_EQUAL(wc.opcode, IBV_WC_RDMA_WRITE);
    }
    CHECK_EQUAL(rig_state(a->qp), IBV_QPS_RTS);
    rig_receive(a, 77, 0, 8);
    write_to(a, b, 3);
    struct ibv_wc wc = next(a);
    CHECK_EQUAL(wc.wr_id, 3);
    CHECK_EQUAL(wc.status, IBV_WC_RETRY_EXC_ERR);
    CHECK_EQUAL(wc.qp_num, a->qp->qp_num);
    CHECK(wc.vendor_err != 0);
    /* Whoever reads these before the status finds no WRITE of eight bytes. */
    CHECK(wc.opcode != IBV_WC_RDMA_WRITE && wc.opcode != IBV_WC_SEND && wc.opcode != IBV_WC_RECV);
    CHECK(wc.byte_len != 8);
    CHECK_EQUAL(rig_state(a->qp), IBV_QPS_ERR);
    CHECK_EQUAL(rig_next(a->recv_cq).status, IBV_WC_WR_FLUSH_ERR);
    write_to(a, b, 4);
    wc = next(a);
    CHECK_EQUAL(wc.wr_id, 4);
    CHECK_EQUAL(wc.status, IBV_WC_WR_FLUSH_ERR);
    /* RESET makes it new, and the scenario is over. */
    rig_connect_again(a, b);
    write_to(a, b, 5);
    CHECK_EQUAL(next(a).status, IBV_WC_SUCCESS);
}

/* The first comes late, also for a program that sleeps; the second is not held up by it. */
static void late(struct end *a, struct end *b, struct ibv_comp_channel *channel)
{
    CHECK_EQUAL(ibv_req_notify_cq(a->send_cq, 0), 0);
    write_to(a, b, 1);
    struct ibv_wc wc;
    struct ibv_cq *cq;
    void *context;
    int events = 0, polls = 0;
    do {
        CHECK_EQUAL(ibv_get_cq_event(channel, &cq, &context), 0);
        events++;
        CHECK_EQUAL(ibv_req_notify_cq(a->send_cq, 0), 0);
        polls++;
    } while (!poll_once(a, &wc));
    CHECK_EQUAL(wc.wr_id, 1);
    CHECK_EQUAL(wc.status, IBV_WC_SUCCESS);
    CHECK_EQUAL(wc.opcode, IBV_WC_RDMA_WRITE);
    CHECK(polls >= 2);
    ibv_ack_cq_events(a->send_cq, events);
    write_to(a, b, 2);
    CHECK_EQUAL(next(a).wr_id, 2);
}

static void missing(struct end *a, struct end *b)
{
    for (int id = 1; id <= 3; id++)
        write_to(a, b, id);
    CHECK_EQUAL(next(a).wr_id, 1);
    CHECK_EQUAL(next(a).wr_id, 3);
    struct ibv_wc wc;
    CHECK_EQUAL(poll_once(a, &wc), 0);
    CHECK_EQUAL(rig_state(a->qp), IBV_QPS_RTS);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    struct end a, b;
    struct ibv_context *context = rig_open();
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    rig_end(&a, context, 4096);
    rig_end(&b, context, 4096);
    CHECK_EQUAL(ibv_destroy_cq(a.send_cq), 0);
    if (!strcmp(argv[2], "extended")) {
        struct ibv_cq_init_attr_ex init = {.cqe = 64, .channel = channel,
            .wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_QP_NUM};
        CHECK((extended = ibv_create_cq_ex(context, &init)) != NULL);
        a.send_cq = ibv_cq_ex_to_cq(extended);
    } else {
        CHECK((a.send_cq = ibv_create_cq(context, 64, NULL, channel, 0)) != NULL);
    }
    rig_queue_pair(&a, IBV_QPT_RC);
    rig_queue_pair(&b, IBV_QPT_RC);
    rig_connect(&a, &b);
    if (!strcmp(argv[1], "fails"))
        fails(&a, &b);
    else if (!strcmp(argv[1], "late"))
        late(&a, &b, channel);
    else
        missing(&a, &b);
    CHECK_EQUAL(ibv_destroy_qp(a.qp), 0);
    CHECK_EQUAL(ibv_destroy_cq(a.send_cq), 0);
    CHECK_EQUAL(ibv_destroy_comp_channel(channel), 0);
    return 0;
}
