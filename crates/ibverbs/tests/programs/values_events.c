/* Every asynchronous event that a program can bring about has the right code and the right object, at the right moment and once. */
#include "rig.h"
#include <poll.h>

static struct ibv_context *context;

static int has_event(void)
{
    struct pollfd poll_fd = {.fd = context->async_fd, .events = POLLIN};
    return poll(&poll_fd, 1, 0) == 1;
}

/* The next event is this one, about this object. */
static void expect(enum ibv_event_type type, void *element)
{
    struct ibv_async_event event;
    CHECK_EQUAL(ibv_get_async_event(context, &event), 0);
    CHECK_EQUAL(event.event_type, type);
    CHECK(event.element.qp == element);
    ibv_ack_async_event(&event);
}

static void two_ends(struct end *a, struct end *b, struct ibv_srq *(*shared)(struct ibv_pd *))
{
    rig_end(a, context, 65536);
    rig_end(b, context, 65536);
    b->srq = shared ? shared(b->pd) : NULL;
    rig_queue_pair(a, IBV_QPT_RC);
    rig_queue_pair(b, IBV_QPT_RC);
    rig_connect(a, b);
}

static struct ibv_srq *shared_queue(struct ibv_pd *pd)
{
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = 16, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &attr);
    CHECK(srq);
    return srq;
}

static void message(struct end *a, struct end *b, uint64_t id)
{
    rig_post(a, IBV_WR_SEND, id, 0, 8, NULL, 0);
    CHECK_EQUAL(rig_next(b->recv_cq).status, IBV_WC_SUCCESS);
    CHECK_EQUAL(rig_next(a->send_cq).status, IBV_WC_SUCCESS);
}

/* The limit's event comes when fewer receives than the limit are left, not when as many are, and only once for each time that it is set. */
static void limit(void)
{
    struct end a, b;
    two_ends(&a, &b, shared_queue);
    for (int i = 0; i < 6; i++)
        rig_receive(&b, i, 1024, 16);
    struct ibv_srq_attr attr = {.srq_limit = 4};
    CHECK_EQUAL(ibv_modify_srq(b.srq, &attr, IBV_SRQ_LIMIT), 0);
    message(&a, &b, 1);
    message(&a, &b, 2);
    CHECK(!has_event());
    CHECK_EQUAL(ibv_query_srq(b.srq, &attr), 0);
    CHECK_EQUAL(attr.srq_limit, 4);
    message(&a, &b, 3);
    expect(IBV_EVENT_SRQ_LIMIT_REACHED, b.srq);
    CHECK_EQUAL(ibv_query_srq(b.srq, &attr), 0);
    CHECK_EQUAL(attr.srq_limit, 0);
    message(&a, &b, 4);
    CHECK(!has_event());
    /* The last receive that a queue pair of a shared queue may use is behind it once it is in error. */
    struct ibv_qp_attr failed = {.qp_state = IBV_QPS_ERR};
    CHECK_EQUAL(ibv_modify_qp(b.qp, &failed, IBV_QP_STATE), 0);
    expect(IBV_EVENT_QP_LAST_WQE_REACHED, b.qp);
    CHECK(!has_event());
}

/* A request without the right is an access error, one that is too long is an invalid request. */
static void violations(void)
{
    for (int is_access = 0; is_access < 2; is_access++) {
        struct end a, b;
        two_ends(&a, &b, NULL);
        rig_receive(&b, 1, 0, 8);
        struct ibv_sge sge = {(uintptr_t)a.bytes, 32, a.mr->lkey};
        struct ibv_send_wr wr = {.wr_id = 2, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED,
            .opcode = is_access ? IBV_WR_RDMA_WRITE : IBV_WR_SEND}, *bad;
        wr.wr.rdma.remote_addr = (uintptr_t)b.bytes;
        wr.wr.rdma.rkey = b.mr->rkey ^ 0x40;
        if (!is_access)
            memset(&wr.wr, 0, sizeof wr.wr);
        CHECK_EQUAL(ibv_post_send(a.qp, &wr, &bad), 0);
        CHECK_EQUAL(rig_next(a.send_cq).status, is_access ? IBV_WC_REM_ACCESS_ERR : IBV_WC_REM_INV_REQ_ERR);
        expect(is_access ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR, b.qp);
        CHECK(!has_event());
    }
}

/* Also right after it was connected, while the two ends may still agree to another loss recovery. */
static void drained(void)
{
    for (int round = 0; round < 20; round++) {
        struct end a, b;
        two_ends(&a, &b, NULL);
        if (round == 1) {
            rig_receive(&b, 1, 0, 8);
            message(&a, &b, 2);
        }
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
        CHECK_EQUAL(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
        expect(IBV_EVENT_SQ_DRAINED, a.qp);
        /* Back and forth with another queue pair of the device: what was on its way has come. */
        struct end c, d;
        two_ends(&c, &d, NULL);
        rig_receive(&d, 1, 0, 8);
        message(&c, &d, 2);
        CHECK(!has_event());
    }
}

/* A queue pair that may not send yet hears from its peer. */
static void established(void)
{
    struct end a, b;
    rig_end(&a, context, 65536);
    rig_end(&b, context, 65536);
    rig_queue_pair(&a, IBV_QPT_RC);
    rig_queue_pair(&b, IBV_QPT_RC);
    union ibv_gid gid;
    CHECK_EQUAL(ibv_query_gid(context, 1, 0, &gid), 0);
    rig_init(a.qp);
    rig_init(b.qp);
    rig_to(a.qp, b.qp->qp_num, gid, 0x31, 0x57);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = a.qp->qp_num, .rq_psn = 0x31,
        .max_dest_rd_atomic = 1, .min_rnr_timer = 1, .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .hop_limit = 64}}};
    CHECK_EQUAL(ibv_modify_qp(b.qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN
        | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), 0);
    rig_receive(&b, 1, 0, 64);
    message(&a, &b, 3);
    expect(IBV_EVENT_COMM_EST, b.qp);
    CHECK(!has_event());
}

/* A queue that overflows. */
static void overrun(void)
{
    struct end a, b;
    rig_end(&a, context, 65536);
    rig_end(&b, context, 65536);
    CHECK_EQUAL(ibv_destroy_cq(a.send_cq), 0);
    CHECK((a.send_cq = ibv_create_cq(context, 4, NULL, NULL, 0)) != NULL);
    rig_queue_pair(&a, IBV_QPT_RC);
    rig_queue_pair(&b, IBV_QPT_RC);
    rig_connect(&a, &b);
    for (int i = 0; i < a.send_cq->cqe + 1; i++)
        rig_post(&a, IBV_WR_RDMA_WRITE, i, 0, 8, &b, 64);
    expect(IBV_EVENT_CQ_ERR, a.send_cq);
}

int main(void)
{
    context = rig_open();
    limit();
    violations();
    drained();
    established();
    overrun();
    return 0;
}
