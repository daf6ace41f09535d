/* Every field of every completion, by operation and service, through ibv_post_send and ibv_poll_cq, and through the extended interfaces of both.
 * Lengths, numbers and immediate data differ everywhere, so that no field can stand for another.
 * arguments: plain
 * arguments: extended
 */
#include "completions.h"

static void sends(struct end *a, struct end *b, uint64_t id)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(&sge, id, IBV_WR_SEND, a, 37);
    rig_receive(b, id + 1, 2048, 333);
    memset(a->bytes + 1024, (int)id, 37);
    post(a, &wr);
    check_received(next(b->recv_cq), id + 1, IBV_WC_RECV, 37, 0, 0, b);
    CHECK_EQUAL(memcmp(a->bytes + 1024, b->bytes + 2048, 37), 0);
    CHECK_EQUAL(b->bytes[2048 + 37], 0);
    check_sent(next(a->send_cq), id, IBV_WC_SEND, a);

    wr = request(&sge, id + 2, IBV_WR_SEND_WITH_IMM, a, 41);
    wr.imm_data = htonl(0x01020304);
    rig_receive(b, id + 3, 4096, 777);
    post(a, &wr);
    check_received(next(b->recv_cq), id + 3, IBV_WC_RECV, 41, IBV_WC_WITH_IMM, 0x01020304, b);
    check_sent(next(a->send_cq), id + 2, IBV_WC_SEND, a);

    /* No bytes, and bytes that the request itself carries. */
    wr = request(&sge, id + 4, IBV_WR_SEND, a, 0);
    rig_receive(b, id + 5, 4096, 11);
    post(a, &wr);
    check_received(next(b->recv_cq), id + 5, IBV_WC_RECV, 0, 0, 0, b);
    check_sent(next(a->send_cq), id + 4, IBV_WC_SEND, a);
    char word[] = "inline";
    wr = request(&sge, id + 6, IBV_WR_SEND, a, sizeof word);
    sge.addr = (uintptr_t)word;
    sge.lkey = 0;
    wr.send_flags |= IBV_SEND_INLINE;
    rig_receive(b, id + 7, 6000, 90);
    post(a, &wr);
    memset(word, 0, sizeof word);
    check_received(next(b->recv_cq), id + 7, IBV_WC_RECV, 7, 0, 0, b);
    CHECK(!strcmp(b->bytes + 6000, "inline"));
    check_sent(next(a->send_cq), id + 6, IBV_WC_SEND, a);
}

static void writes(struct end *a, struct end *b, uint64_t id)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(&sge, id, IBV_WR_RDMA_WRITE, a, 1500);
    wr.wr.rdma.remote_addr = (uintptr_t)b->bytes + 9000;
    wr.wr.rdma.rkey = b->mr->rkey;
    post(a, &wr);
    check_sent(next(a->send_cq), id, IBV_WC_RDMA_WRITE, a);
    wr = request(&sge, id + 1, IBV_WR_RDMA_WRITE_WITH_IMM, a, 1201);
    wr.wr.rdma.remote_addr = (uintptr_t)b->bytes + 12000;
    wr.wr.rdma.rkey = b->mr->rkey;
    wr.imm_data = htonl(0xA1B2C3D4);
    rig_receive(b, id + 2, 20000, 5);
    post(a, &wr);
    check_received(next(b->recv_cq), id + 2, IBV_WC_RECV_RDMA_WITH_IMM, 1201, IBV_WC_WITH_IMM, 0xA1B2C3D4, b);
    check_sent(next(a->send_cq), id + 1, IBV_WC_RDMA_WRITE, a);
}

static void reads_and_atomics(struct end *a, struct end *b, uint64_t id)
{
    struct ibv_sge sge;
    struct ibv_wc wc;
    struct ibv_send_wr wr = request(&sge, id, IBV_WR_RDMA_READ, a, 2222);
    wr.wr.rdma.remote_addr = (uintptr_t)b->bytes + 30000;
    wr.wr.rdma.rkey = b->mr->rkey;
    memset(b->bytes + 30000, 0x5C, 2222);
    post(a, &wr);
    wc = next(a->send_cq);
    check_sent(wc, id, IBV_WC_RDMA_READ, a);
    CHECK_EQUAL(wc.byte_len, 2222);
    CHECK_EQUAL(a->bytes[1024 + 2221], 0x5C);

    uint64_t *word = (uint64_t *)(b->bytes + 40000);
    *word = 0x1111222233334444;
    wr = request(&sge, id + 1, IBV_WR_ATOMIC_CMP_AND_SWP, a, 8);
    wr.wr.atomic.remote_addr = (uintptr_t)word;
    wr.wr.atomic.rkey = b->mr->rkey;
    wr.wr.atomic.compare_add = 0x1111222233334444;
    wr.wr.atomic.swap = 0x0102030405060708;
    post(a, &wr);
    wc = next(a->send_cq);
    check_sent(wc, id + 1, IBV_WC_COMP_SWAP, a);
    CHECK_EQUAL(wc.byte_len, 8);
    CHECK_EQUAL(*(uint64_t *)(a->bytes + 1024), 0x1111222233334444);
    CHECK_EQUAL(*word, 0x0102030405060708);
    wr = request(&sge, id + 2, IBV_WR_ATOMIC_FETCH_AND_ADD, a, 8);
    wr.wr.atomic.remote_addr = (uintptr_t)word;
    wr.wr.atomic.rkey = b->mr->rkey;
    wr.wr.atomic.compare_add = 3;
    wr.wr.atomic.swap = 99; /* not looked at */
    post(a, &wr);
    wc = next(a->send_cq);
    check_sent(wc, id + 2, IBV_WC_FETCH_ADD, a);
    CHECK_EQUAL(wc.byte_len, 8);
    CHECK_EQUAL(*(uint64_t *)(a->bytes + 1024), 0x0102030405060708);
    CHECK_EQUAL(*word, 0x010203040506070B);
}

static void datagrams(struct ibv_pd *pd)
{
    struct end a, b;
    open_end(&a, IBV_QPT_UD, NULL, pd);
    open_end(&b, IBV_QPT_UD, NULL, pd);
    struct end *ends[] = {&a, &b};
    for (int i = 0; i < 2; i++) {
        rig_init(ends[i]->qp);
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
        CHECK_EQUAL(ibv_modify_qp(ends[i]->qp, &attr, IBV_QP_STATE), 0);
        attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .sq_psn = 0x777 + i};
        CHECK_EQUAL(ibv_modify_qp(ends[i]->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
    }
    struct ibv_ah_attr ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .hop_limit = 64}};
    struct ibv_ah *ah = ibv_create_ah(pd, &ah_attr);
    CHECK(ah);
    for (int has_immediate = 0; has_immediate < 2; has_immediate++) {
        struct ibv_sge sge;
        struct ibv_send_wr wr = request(&sge, 80 + has_immediate, has_immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, &a,
            101 + has_immediate);
        wr.wr.ud.ah = ah;
        wr.wr.ud.remote_qpn = b.qp->qp_num;
        wr.wr.ud.remote_qkey = 0x1234567;
        wr.imm_data = htonl(0xCAFE0102);
        memset(a.bytes + 1024, 0x3D, 200);
        rig_receive(&b, 90 + has_immediate, 2048, 512);
        post(&a, &wr);
        struct ibv_wc wc = next(b.recv_cq);
        check_received(wc, 90 + has_immediate, IBV_WC_RECV, 40 + 101 + has_immediate,
            IBV_WC_GRH | (has_immediate ? IBV_WC_WITH_IMM : 0), 0xCAFE0102, &b);
        CHECK_EQUAL(wc.src_qp, a.qp->qp_num);
        CHECK_EQUAL(b.bytes[2048 + 40], 0x3D);
        check_sent(next(a.send_cq), 80 + has_immediate, IBV_WC_SEND, &a);
    }
    CHECK_EQUAL(ibv_destroy_ah(ah), 0);
    CHECK_EQUAL(ibv_destroy_qp(a.qp), 0);
    CHECK_EQUAL(ibv_destroy_qp(b.qp), 0);
}

int main(int count, char **arguments)
{
    struct ibv_pd *pd = begin_program(count, arguments);
    struct end a, b;
    open_pair(&a, &b, IBV_QPT_RC, pd);
    /* Both directions. */
    sends(&a, &b, 100);
    sends(&b, &a, 200);
    writes(&a, &b, 300);
    writes(&b, &a, 400);
    reads_and_atomics(&a, &b, 500);
    reads_and_atomics(&b, &a, 600);

    /* Receives of a shared queue complete as those of the queue pair that got the message. */
    struct ibv_srq_init_attr shared = {.attr = {.max_wr = 12, .max_sge = 2}};
    struct ibv_srq *srq = ibv_create_srq(pd, &shared);
    CHECK(srq);
    struct end c, d;
    open_end(&c, IBV_QPT_RC, NULL, pd);
    open_end(&d, IBV_QPT_RC, srq, pd);
    rig_connect(&c, &d);
    sends(&c, &d, 900);
    writes(&c, &d, 1000);

    /* Without acknowledgements. */
    struct end e, f;
    open_pair(&e, &f, IBV_QPT_UC, pd);
    sends(&e, &f, 1100);
    writes(&f, &e, 1200);
    datagrams(pd);
    return 0;
}
