/* Requests between ibv_wr_start and ibv_wr_complete are posted together or not at all, and a list given to ibv_post_send ends exactly at
 * the request that is refused (ibv_wr_post(3), ibv_post_send(3)). FETCH_AND_ADD counts what was executed. */
#include "rig.h"

static struct end end;
static struct ibv_qp_ex *qp;
static struct ibv_qp_cap cap;
static volatile uint64_t *counter;

static void add(uint64_t id)
{
    qp->wr_id = id;
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_atomic_fetch_add(qp, end.mr->rkey, (uintptr_t)counter, 1);
    ibv_wr_set_sge(qp, end.mr->lkey, (uintptr_t)end.bytes, 8);
}

static void write_inline(uint64_t id, size_t length)
{
    static char data[4096];
    qp->wr_id = id;
    qp->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
    ibv_wr_rdma_write(qp, end.mr->rkey, (uintptr_t)end.bytes + 8192);
    ibv_wr_set_inline_data(qp, data, length);
}

/* Nothing of a session was executed: a later request is the first to complete, and finds the counter as it was. */
static void check_nothing_happened(uint64_t before)
{
    struct ibv_wc wc;
    ibv_wr_start(qp);
    add(999);
    CHECK_EQUAL(ibv_wr_complete(qp), 0);
    wc = rig_next(end.send_cq);
    CHECK_EQUAL(wc.wr_id, 999);
    CHECK_EQUAL(wc.status, IBV_WC_SUCCESS);
    CHECK_EQUAL(*(uint64_t *)end.bytes, before);
    CHECK_EQUAL(*counter, before + 1);
    CHECK_EQUAL(ibv_poll_cq(end.send_cq, 1, &wc), 0);
}

int main(void)
{
    rig_end(&end, rig_open(), 65536);
    counter = (volatile uint64_t *)(end.bytes + 4096);
    struct ibv_qp_init_attr_ex attr = {.send_cq = end.send_cq, .recv_cq = end.recv_cq, .qp_type = IBV_QPT_RC, .pd = end.pd,
        .cap = {.max_send_wr = 4, .max_recv_wr = 7, .max_send_sge = 2, .max_recv_sge = 3, .max_inline_data = 64},
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .send_ops_flags = IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND};
    CHECK((end.qp = ibv_create_qp_ex(end.context, &attr)) != NULL);
    CHECK((qp = ibv_qp_to_qp_ex(end.qp)) != NULL);
    cap = attr.cap;
    union ibv_gid gid;
    CHECK_EQUAL(ibv_query_gid(end.context, 1, 0, &gid), 0);
    rig_init(end.qp);

    /* Before the queue pair can send, nothing is kept for later. */
    ibv_wr_start(qp);
    add(1);
    add(2);
    CHECK(ibv_wr_complete(qp) != 0);
    rig_to(end.qp, end.qp->qp_num, gid, 0x101, 0x101);
    check_nothing_happened(0);

    /* One more than the queue holds. */
    ibv_wr_start(qp);
    for (unsigned i = 0; i < cap.max_send_wr + 1; i++)
        add(i);
    CHECK_EQUAL(ibv_wr_complete(qp), ENOMEM);
    check_nothing_happened(1);

    /* As many as it holds, behind one that has its place still: it was not polled. */
    ibv_wr_start(qp);
    add(10);
    CHECK_EQUAL(ibv_wr_complete(qp), 0);
    ibv_wr_start(qp);
    for (unsigned i = 0; i < cap.max_send_wr; i++)
        add(20 + i);
    CHECK_EQUAL(ibv_wr_complete(qp), ENOMEM);
    CHECK_EQUAL(rig_next(end.send_cq).wr_id, 10);
    CHECK_EQUAL(*counter, 3);
    check_nothing_happened(3);

    /* Too many inline bytes, or elements, in the second request. */
    ibv_wr_start(qp);
    add(30);
    write_inline(31, cap.max_inline_data + 1);
    CHECK(ibv_wr_complete(qp) != 0);
    check_nothing_happened(4);
    struct ibv_sge list[8];
    for (int i = 0; i < 8; i++)
        list[i] = (struct ibv_sge){(uintptr_t)end.bytes, 4, end.mr->lkey};
    ibv_wr_start(qp);
    add(40);
    qp->wr_id = 41;
    ibv_wr_rdma_write(qp, end.mr->rkey, (uintptr_t)end.bytes + 8192);
    ibv_wr_set_sge_list(qp, cap.max_send_sge + 1, list);
    CHECK(ibv_wr_complete(qp) != 0);
    check_nothing_happened(5);

    /* An operation that a session cannot hold, first, in the middle and last. */
    for (int place = 0; place < 3; place++) {
        ibv_wr_start(qp);
        for (int i = 0; i < 3; i++)
            if (i == place)
                ibv_wr_send_tso(qp, list, 8, 64);
            else
                add(50 + i);
        CHECK(ibv_wr_complete(qp) != 0);
        check_nothing_happened(6 + place);
    }

    /* A session that is given up. */
    ibv_wr_start(qp);
    add(60);
    ibv_wr_abort(qp);
    check_nothing_happened(9);

    /* A whole one, in order. */
    ibv_wr_start(qp);
    for (unsigned i = 0; i < cap.max_send_wr; i++)
        if (i == 2)
            write_inline(70 + i, cap.max_inline_data);
        else
            add(70 + i);
    CHECK_EQUAL(ibv_wr_complete(qp), 0);
    for (unsigned i = 0; i < cap.max_send_wr; i++)
        CHECK_EQUAL(rig_next(end.send_cq).wr_id, 70 + i);
    CHECK_EQUAL(*counter, 13);

    /* A list: those before the one that is refused are posted, and it is the one that is named. */
    struct ibv_send_wr requests[4], *bad = NULL;
    struct ibv_sge sge = {(uintptr_t)end.bytes, 8, end.mr->lkey};
    memset(requests, 0, sizeof requests);
    for (int i = 0; i < 4; i++) {
        requests[i] = (struct ibv_send_wr){.wr_id = 80 + i, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED,
            .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .next = i < 3 ? &requests[i + 1] : NULL};
        requests[i].wr.atomic.remote_addr = (uintptr_t)counter;
        requests[i].wr.atomic.compare_add = 1;
        requests[i].wr.atomic.rkey = end.mr->rkey;
    }
    requests[2].num_sge = 3;
    requests[2].sg_list = list;
    CHECK(ibv_post_send(end.qp, requests, &bad) != 0);
    CHECK(bad == &requests[2]);
    CHECK_EQUAL(rig_next(end.send_cq).wr_id, 80);
    CHECK_EQUAL(rig_next(end.send_cq).wr_id, 81);
    check_nothing_happened(15);

    /* Receives likewise. While the device's own thread runs the queues it may have taken some of a list already, and then there is
     * a place for one more; a queue pair that is at rest shows its limit. */
    struct ibv_recv_wr receives[8], *bad_receive = NULL;
    for (int i = 0; i < 8; i++)
        receives[i] = (struct ibv_recv_wr){.wr_id = i, .sg_list = &sge, .num_sge = 1, .next = i < 7 ? &receives[i + 1] : NULL};
    CHECK_EQUAL(cap.max_recv_wr, 7);
    int result = 0;
    for (int attempt = 0; attempt < 100 && result == 0; attempt++) {
        struct ibv_qp *fresh = ibv_create_qp_ex(end.context, &attr);
        CHECK(fresh != NULL);
        rig_init(fresh);
        result = ibv_post_recv(fresh, receives, &bad_receive);
        CHECK_EQUAL(ibv_destroy_qp(fresh), 0);
    }
    CHECK_EQUAL(result, ENOMEM);
    CHECK(bad_receive == &receives[7]);
    return 0;
}
