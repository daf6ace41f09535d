/* XRC: one connection leads to several shared receive queues, each of which has a completion queue. Completions name the target's queue pair
 * there and the initiator's here, and each message lies in the queue whose number its request had.
 * arguments: plain
 * arguments: extended
 */
#include "completions.h"
#include <fcntl.h>

enum { QUEUES = 2 };
static struct ibv_srq *srqs[QUEUES];
static struct ibv_cq *cqs[QUEUES];
static uint32_t numbers[QUEUES];

static struct ibv_xrcd *domain(void)
{
    struct ibv_xrcd_init_attr attr = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};
    struct ibv_xrcd *xrcd = ibv_open_xrcd(context, &attr);
    CHECK(xrcd && xrcd->context == context);
    return xrcd;
}

/* Attributes in the order that each half wants: the initiator has no responder's, the target no requester's. */
static void connect_half(struct ibv_qp *qp, uint32_t peer, uint32_t own_psn, uint32_t peer_psn)
{
    int is_target = qp->qp_type == IBV_QPT_XRC_RECV;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL_ACCESS};
    CHECK_EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .rq_psn = peer_psn,
        .max_dest_rd_atomic = 4, .min_rnr_timer = 1,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .hop_limit = 64}}};
    CHECK_EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN
        | (is_target ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)), 0);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .sq_psn = own_psn, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
        .max_rd_atomic = 4};
    CHECK_EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT
        | (is_target ? 0 : IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)), 0);
}

/* `a` becomes the initiator of a connection whose target is `b`; memory of both is registered. */
static void open_xrc(struct end *a, struct end *b, struct ibv_pd *pd, struct ibv_xrcd *xrcd)
{
    struct end *ends[] = {a, b};
    for (int i = 0; i < 2; i++) {
        memset(ends[i], 0, sizeof **ends);
        ends[i]->context = context;
        ends[i]->pd = pd;
        ends[i]->length = 65536;
        ends[i]->bytes = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(ends[i]->bytes != MAP_FAILED);
        CHECK((ends[i]->mr = ibv_reg_mr(pd, ends[i]->bytes, 65536, ALL_ACCESS)) != NULL);
    }
    CHECK((a->send_cq = queue(40)) != NULL);
    struct ibv_qp_init_attr_ex attr = {.send_cq = a->send_cq, .qp_type = IBV_QPT_XRC_SEND, .pd = pd, .comp_mask = IBV_QP_INIT_ATTR_PD,
        .cap = {.max_send_wr = 9, .max_send_sge = 2, .max_inline_data = 64}};
    if (is_extended) {
        attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE
            | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    }
    CHECK((a->qp = ibv_create_qp_ex(context, &attr)) != NULL);
    CHECK_EQUAL(a->qp->qp_type, IBV_QPT_XRC_SEND);
    CHECK(a->qp->send_cq == a->send_cq && !a->qp->srq);
    attr = (struct ibv_qp_init_attr_ex){.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = xrcd};
    CHECK((b->qp = ibv_create_qp_ex(context, &attr)) != NULL);
    CHECK_EQUAL(b->qp->qp_type, IBV_QPT_XRC_RECV);
    connect_half(b->qp, a->qp->qp_num, 0x41, 0x9172);
    connect_half(a->qp, b->qp->qp_num, 0x9172, 0x41);
}

static void open_queues(struct ibv_pd *pd, struct ibv_xrcd *xrcd)
{
    for (int i = 0; i < QUEUES; i++) {
        CHECK((cqs[i] = queue(30 + i)) != NULL);
        struct ibv_srq_init_attr_ex attr = {.srq_context = &cqs[i], .attr = {.max_wr = 11 + 6 * i, .max_sge = 2}, .pd = pd, .xrcd = xrcd,
            .cq = cqs[i], .srq_type = IBV_SRQT_XRC, .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD
                | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ};
        CHECK((srqs[i] = ibv_create_srq_ex(context, &attr)) != NULL);
        CHECK(srqs[i]->srq_context == &cqs[i] && srqs[i]->pd == pd && srqs[i]->context == context);
        CHECK(attr.attr.max_wr >= 11u + 6 * i && attr.attr.max_sge >= 2);
        CHECK_EQUAL(ibv_get_srq_num(srqs[i], &numbers[i]), 0);
        struct ibv_srq_attr now = {0};
        CHECK_EQUAL(ibv_query_srq(srqs[i], &now), 0);
        CHECK(now.max_wr == attr.attr.max_wr && now.max_sge == attr.attr.max_sge && now.srq_limit == 0);
    }
    CHECK(numbers[0] != numbers[1]);
    struct ibv_srq_init_attr plain = {.attr = {.max_wr = 3, .max_sge = 1}};
    struct ibv_srq *without = ibv_create_srq(pd, &plain);
    uint32_t number = 0x77;
    CHECK(without && ibv_get_srq_num(without, &number) != 0);
    CHECK_EQUAL(number, 0x77);
    CHECK_EQUAL(ibv_destroy_srq(without), 0);
}

static void receive(struct end *b, int which, uint64_t id, size_t offset, uint32_t length)
{
    struct ibv_sge sge = {(uintptr_t)b->bytes + offset, length, b->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;
    CHECK_EQUAL(ibv_post_srq_recv(srqs[which], &wr, &bad), 0);
}

/* To each queue messages of their own kind and length; the other one hears nothing of them. */
static void messages(struct end *a, struct end *b, uint64_t id)
{
    struct ibv_sge sge;
    for (int i = 0; i < QUEUES; i++) {
        int other = 1 - i;
        receive(b, i, id + 10 * i, 2048 + 512 * i, 300 + i);
        receive(b, i, id + 10 * i + 1, 8192 + 512 * i, 500 + i);
        receive(b, i, id + 10 * i + 2, 16384 + 512 * i, 5);
        struct ibv_send_wr wr = request(&sge, id + 100 + i, IBV_WR_SEND, a, 31 + 3 * i);
        wr.qp_type.xrc.remote_srqn = numbers[i];
        memset(a->bytes + 1024, 0x21 + i, 64);
        post(a, &wr);
        check_received(next(cqs[i]), id + 10 * i, IBV_WC_RECV, 31 + 3 * i, 0, 0, b);
        CHECK(b->bytes[2048 + 512 * i + 30 + 3 * i] == 0x21 + i && b->bytes[2048 + 512 * i + 31 + 3 * i] == 0);
        check_sent(next(a->send_cq), id + 100 + i, IBV_WC_SEND, a);

        wr = request(&sge, id + 110 + i, IBV_WR_SEND_WITH_IMM, a, 57 + i);
        wr.qp_type.xrc.remote_srqn = numbers[i];
        wr.imm_data = htonl(0x0A0B0C0D + i);
        post(a, &wr);
        check_received(next(cqs[i]), id + 10 * i + 1, IBV_WC_RECV, 57 + i, IBV_WC_WITH_IMM, 0x0A0B0C0D + i, b);
        check_sent(next(a->send_cq), id + 110 + i, IBV_WC_SEND, a);

        wr = request(&sge, id + 120 + i, IBV_WR_RDMA_WRITE_WITH_IMM, a, 2000 + i);
        wr.qp_type.xrc.remote_srqn = numbers[i];
        wr.imm_data = htonl(0x70605040 + i);
        wr.wr.rdma.remote_addr = (uintptr_t)b->bytes + 30000;
        wr.wr.rdma.rkey = b->mr->rkey;
        post(a, &wr);
        check_received(next(cqs[i]), id + 10 * i + 2, IBV_WC_RECV_RDMA_WITH_IMM, 2000 + i, IBV_WC_WITH_IMM, 0x70605040 + i, b);
        check_sent(next(a->send_cq), id + 120 + i, IBV_WC_RDMA_WRITE, a);
        if (!is_extended) {
            struct ibv_wc wc;
            CHECK_EQUAL(ibv_poll_cq(cqs[other], 1, &wc), 0);
        }
    }
}

/* Operations that need no receive. */
static void one_sided(struct end *a, struct end *b, uint64_t id)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(&sge, id, IBV_WR_RDMA_READ, a, 1777);
    wr.qp_type.xrc.remote_srqn = numbers[0];
    wr.wr.rdma.remote_addr = (uintptr_t)b->bytes + 40000;
    wr.wr.rdma.rkey = b->mr->rkey;
    memset(b->bytes + 40000, 0x6E, 1777);
    post(a, &wr);
    struct ibv_wc wc = next(a->send_cq);
    check_sent(wc, id, IBV_WC_RDMA_READ, a);
    CHECK_EQUAL(wc.byte_len, 1777);
    CHECK(a->bytes[1024 + 1776] == 0x6E && a->bytes[1024 + 1777] != 0x6E);
    *(uint64_t *)(b->bytes + 50000) = 40;
    wr = request(&sge, id + 1, IBV_WR_ATOMIC_FETCH_AND_ADD, a, 8);
    wr.qp_type.xrc.remote_srqn = numbers[1];
    wr.wr.atomic.remote_addr = (uintptr_t)b->bytes + 50000;
    wr.wr.atomic.rkey = b->mr->rkey;
    wr.wr.atomic.compare_add = 7;
    post(a, &wr);
    wc = next(a->send_cq);
    check_sent(wc, id + 1, IBV_WC_FETCH_ADD, a);
    CHECK_EQUAL(wc.byte_len, 8);
    CHECK(*(uint64_t *)(a->bytes + 1024) == 40 && *(uint64_t *)(b->bytes + 50000) == 47);
}

int main(int count, char **arguments)
{
    struct ibv_pd *pd = begin_program(count, arguments);
    struct ibv_xrcd *xrcd = domain();
    struct end a, b;
    open_queues(pd, xrcd);
    open_xrc(&a, &b, pd, xrcd);
    messages(&a, &b, 1000);
    one_sided(&a, &b, 2000);

    /* What is in use is not closed. */
    CHECK_EQUAL(ibv_close_xrcd(xrcd), EBUSY);

    /* A number that is no queue's ends the connection; the receives stay. */
    uint32_t nobody = 1;
    while (nobody == numbers[0] || nobody == numbers[1])
        nobody++;
    receive(&b, 0, 3000, 2048, 64);
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(&sge, 3001, IBV_WR_SEND, &a, 8);
    wr.qp_type.xrc.remote_srqn = nobody;
    post(&a, &wr);
    struct ibv_wc wc = next(a.send_cq);
    CHECK_EQUAL(wc.wr_id, 3001);
    CHECK(wc.status == IBV_WC_REM_INV_REQ_ERR || wc.status == IBV_WC_REM_OP_ERR);
    CHECK(wc.vendor_err != 0 && wc.qp_num == a.qp->qp_num);
    CHECK_EQUAL(ibv_destroy_qp(a.qp), 0);
    CHECK_EQUAL(ibv_destroy_qp(b.qp), 0);

    /* The receive that was left serves another connection. */
    struct end c, d;
    open_xrc(&c, &d, pd, xrcd);
    wr = request(&sge, 3002, IBV_WR_SEND, &c, 9);
    wr.qp_type.xrc.remote_srqn = numbers[0];
    post(&c, &wr);
    check_received(next(cqs[0]), 3000, IBV_WC_RECV, 9, 0, 0, &d);
    check_sent(next(c.send_cq), 3002, IBV_WC_SEND, &c);
    CHECK_EQUAL(ibv_destroy_qp(c.qp), 0);
    CHECK_EQUAL(ibv_destroy_qp(d.qp), 0);
    for (int i = 0; i < QUEUES; i++) {
        CHECK_EQUAL(ibv_destroy_srq(srqs[i]), 0);
        CHECK_EQUAL(ibv_destroy_cq(cqs[i]), 0);
    }
    CHECK_EQUAL(ibv_close_xrcd(xrcd), 0);
    return 0;
}
