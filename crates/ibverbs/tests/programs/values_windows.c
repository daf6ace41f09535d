/* Memory windows of both types: what their completions and keys are, and what they open to whom.
 * arguments: plain
 * arguments: extended
 */
#include "completions.h"

static void windows(struct end *a, struct end *b, uint64_t id)
{
    struct ibv_sge sge;
    struct ibv_mw *mw = ibv_alloc_mw(b->pd, IBV_MW_TYPE_2);
    CHECK(mw);
    struct ibv_send_wr wr = request(&sge, id, IBV_WR_BIND_MW, b, 0);
    wr.bind_mw.mw = mw;
    wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
    wr.bind_mw.bind_info = (struct ibv_mw_bind_info){b->mr, (uintptr_t)b->bytes + 50000, 100, IBV_ACCESS_REMOTE_WRITE};
    post(b, &wr);
    check_sent(next(b->send_cq), id, IBV_WC_BIND_MW, b);
    uint32_t key = mw->rkey;
    wr = request(&sge, id + 1, IBV_WR_RDMA_WRITE, a, 60);
    wr.wr.rdma.remote_addr = (uintptr_t)b->bytes + 50010;
    wr.wr.rdma.rkey = key;
    post(a, &wr);
    check_sent(next(a->send_cq), id + 1, IBV_WC_RDMA_WRITE, a);
    wr = request(&sge, id + 2, IBV_WR_SEND_WITH_INV, a, 13);
    wr.invalidate_rkey = key;
    rig_receive(b, id + 3, 2048, 64);
    post(a, &wr);
    check_received(next(b->recv_cq), id + 3, IBV_WC_RECV, 13, IBV_WC_WITH_INV, key, b);
    check_sent(next(a->send_cq), id + 2, IBV_WC_SEND, a);
    wr = request(&sge, id + 4, IBV_WR_BIND_MW, b, 0);
    wr.bind_mw.mw = mw;
    wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
    wr.bind_mw.bind_info = (struct ibv_mw_bind_info){b->mr, (uintptr_t)b->bytes + 50000, 100, IBV_ACCESS_REMOTE_WRITE};
    post(b, &wr);
    check_sent(next(b->send_cq), id + 4, IBV_WC_BIND_MW, b);
    wr = request(&sge, id + 5, IBV_WR_LOCAL_INV, b, 0);
    wr.invalidate_rkey = mw->rkey;
    post(b, &wr);
    check_sent(next(b->send_cq), id + 5, IBV_WC_LOCAL_INV, b);
    CHECK_EQUAL(ibv_dealloc_mw(mw), 0);
}

/* A window, its region and the queue pair that binds it are of one domain. */
static void foreign_window(struct ibv_pd *pd, int is_region, uint64_t id)
{
    struct end a, b;
    open_end(&a, IBV_QPT_RC, NULL, pd);
    open_end(&b, IBV_QPT_RC, NULL, pd);
    rig_connect(&a, &b);
    struct ibv_pd *other = ibv_alloc_pd(context);
    struct ibv_mw *mw = ibv_alloc_mw(is_region ? pd : other, IBV_MW_TYPE_2);
    CHECK(mw && mw->pd == (is_region ? pd : other));
    struct ibv_mr *mr = ibv_reg_mr(is_region ? other : pd, b.bytes, b.length, ALL_ACCESS | IBV_ACCESS_MW_BIND);
    CHECK(mr);
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(&sge, id, IBV_WR_BIND_MW, &b, 0);
    wr.bind_mw.mw = mw;
    wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
    wr.bind_mw.bind_info = (struct ibv_mw_bind_info){mr, (uintptr_t)b.bytes, 100, IBV_ACCESS_REMOTE_WRITE};
    struct ibv_send_wr *bad;
    if (ibv_post_send(b.qp, &wr, &bad) == 0) {
        struct ibv_wc wc = next(b.send_cq);
        CHECK_EQUAL(wc.wr_id, id);
        CHECK(wc.status != IBV_WC_SUCCESS && wc.status != IBV_WC_WR_FLUSH_ERR && wc.vendor_err != 0);
    }
    CHECK_EQUAL(ibv_dealloc_mw(mw), 0);
    CHECK_EQUAL(ibv_dereg_mr(mr), 0);
    CHECK_EQUAL(ibv_dealloc_pd(other), 0);
}

/* Every queue pair of its domain may use a window of type 1, and none of another domain. */
static void window_from_another_domain(struct ibv_pd *pd, uint64_t id)
{
    struct ibv_pd *other = ibv_alloc_pd(context);
    CHECK(other);
    struct end a, b, c, d;
    open_end(&a, IBV_QPT_RC, NULL, pd);
    open_end(&b, IBV_QPT_RC, NULL, pd);
    open_end(&c, IBV_QPT_RC, NULL, pd);
    open_end(&d, IBV_QPT_RC, NULL, other);
    rig_connect(&a, &b);
    rig_connect(&c, &d);
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
    CHECK(mw);
    struct ibv_mw_bind bind = {.wr_id = id, .send_flags = IBV_SEND_SIGNALED,
        .bind_info = {b.mr, (uintptr_t)b.bytes + 100, 100, IBV_ACCESS_REMOTE_WRITE}};
    CHECK_EQUAL(ibv_bind_mw(b.qp, mw, &bind), 0);
    check_sent(next(b.send_cq), id, IBV_WC_BIND_MW, &b);
    struct end *from[] = {&a, &c};
    for (int is_other = 0; is_other < 2; is_other++) {
        struct ibv_sge sge;
        struct ibv_send_wr wr = request(&sge, id + 1, IBV_WR_RDMA_WRITE, from[is_other], 20);
        wr.wr.rdma.remote_addr = (uintptr_t)b.bytes + 110;
        wr.wr.rdma.rkey = mw->rkey;
        memset(from[is_other]->bytes + 1024, 0x51 + is_other, 20);
        post(from[is_other], &wr);
        struct ibv_wc wc = next(from[is_other]->send_cq);
        CHECK_EQUAL(wc.wr_id, id + 1);
        CHECK_EQUAL(wc.status, is_other ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS);
        CHECK_EQUAL(b.bytes[110], 0x51);
    }
    CHECK_EQUAL(ibv_dealloc_mw(mw), 0);
}

/* What a request through a key comes to. A refusal ends its queue pairs, so each has its own. */
static enum ibv_wc_status through(struct ibv_pd *pd, enum ibv_wr_opcode opcode, uint32_t key, char *at, uint32_t length, int value)
{
    struct end a, b;
    struct ibv_sge sge;
    open_pair(&a, &b, IBV_QPT_RC, pd);
    struct ibv_send_wr wr = request(&sge, 11, opcode, &a, length);
    wr.wr.rdma.remote_addr = (uintptr_t)at;
    wr.wr.rdma.rkey = key;
    memset(a.bytes + 1024, value, length);
    post(&a, &wr);
    struct ibv_wc wc = next(a.send_cq);
    CHECK_EQUAL(wc.wr_id, 11);
    if (wc.status == IBV_WC_SUCCESS && opcode == IBV_WR_RDMA_READ)
        CHECK_EQUAL(memcmp(a.bytes + 1024, at, length), 0);
    CHECK_EQUAL(ibv_destroy_qp(a.qp), 0);
    CHECK_EQUAL(ibv_destroy_qp(b.qp), 0);
    return wc.status;
}

/* A window of type 1 has another key after each bind, and opens these bytes in this way and no others. */
static void type_one(struct ibv_pd *pd, uint64_t id)
{
    struct end a, b;
    struct ibv_sge sge;
    open_pair(&a, &b, IBV_QPT_RC, pd);
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1), *two = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
    CHECK(mw && two && mw->type == IBV_MW_TYPE_1 && mw->rkey != two->rkey);
    char *at = b.bytes + 200;
    uint32_t handle = mw->handle, unbound = mw->rkey;
    CHECK_EQUAL(through(pd, IBV_WR_RDMA_WRITE, unbound, at, 8, 1), IBV_WC_REM_ACCESS_ERR);
    struct ibv_mw_bind bind = {.wr_id = id, .send_flags = IBV_SEND_SIGNALED,
        .bind_info = {b.mr, (uintptr_t)at, 70, IBV_ACCESS_REMOTE_WRITE}};
    CHECK_EQUAL(ibv_bind_mw(b.qp, mw, &bind), 0);
    check_sent(next(b.send_cq), id, IBV_WC_BIND_MW, &b);
    CHECK_EQUAL(mw->handle, handle);
    CHECK(mw->type == IBV_MW_TYPE_1 && mw->pd == pd && mw->context == context);
    uint32_t first = mw->rkey;
    CHECK(first != unbound && first != b.mr->rkey && (first ^ unbound) < 256);

    CHECK_EQUAL(through(pd, IBV_WR_RDMA_WRITE, first, at, 70, 0x11), IBV_WC_SUCCESS);
    CHECK_EQUAL(through(pd, IBV_WR_RDMA_WRITE, first, at - 1, 8, 0x22), IBV_WC_REM_ACCESS_ERR);
    CHECK_EQUAL(through(pd, IBV_WR_RDMA_WRITE, first, at + 63, 8, 0x33), IBV_WC_REM_ACCESS_ERR);
    CHECK_EQUAL(through(pd, IBV_WR_RDMA_READ, first, at, 8, 0x44), IBV_WC_REM_ACCESS_ERR);
    for (int i = -20; i < 90; i++)
        CHECK_EQUAL(at[i], i >= 0 && i < 70 ? 0x11 : 0);

    /* Bound anew: elsewhere, for READs, and without a completion of its own. */
    bind = (struct ibv_mw_bind){.wr_id = id + 1, .bind_info = {a.mr, (uintptr_t)a.bytes + 300, 30, IBV_ACCESS_REMOTE_READ}};
    CHECK_EQUAL(ibv_bind_mw(b.qp, mw, &bind), 0);
    struct ibv_send_wr wr = request(&sge, id + 2, IBV_WR_RDMA_WRITE, &b, 5);
    wr.wr.rdma.remote_addr = (uintptr_t)a.bytes;
    wr.wr.rdma.rkey = a.mr->rkey;
    post(&b, &wr);
    check_sent(next(b.send_cq), id + 2, IBV_WC_RDMA_WRITE, &b);
    uint32_t second = mw->rkey;
    CHECK(second != first && second != unbound);
    memset(a.bytes + 300, 0x55, 30);
    CHECK_EQUAL(through(pd, IBV_WR_RDMA_WRITE, first, at, 8, 0x66), IBV_WC_REM_ACCESS_ERR);
    CHECK_EQUAL(through(pd, IBV_WR_RDMA_READ, second, a.bytes + 300, 30, 0), IBV_WC_SUCCESS);
    CHECK_EQUAL(through(pd, IBV_WR_RDMA_WRITE, second, a.bytes + 300, 30, 0x77), IBV_WC_REM_ACCESS_ERR);
    CHECK(at[0] == 0x11 && a.bytes[300] == 0x55);

    /* No bytes: the window opens nothing any more. */
    bind = (struct ibv_mw_bind){.wr_id = id + 3, .send_flags = IBV_SEND_SIGNALED, .bind_info = {b.mr, (uintptr_t)at, 0, 0}};
    CHECK_EQUAL(ibv_bind_mw(b.qp, mw, &bind), 0);
    check_sent(next(b.send_cq), id + 3, IBV_WC_BIND_MW, &b);
    CHECK_EQUAL(through(pd, IBV_WR_RDMA_READ, second, a.bytes + 300, 8, 0), IBV_WC_REM_ACCESS_ERR);
    CHECK_EQUAL(through(pd, IBV_WR_RDMA_WRITE, mw->rkey, at, 1, 0x12), IBV_WC_REM_ACCESS_ERR);
    CHECK_EQUAL(at[0], 0x11);

    /* Each type has its own way of being bound. */
    uint32_t key = two->rkey;
    bind.bind_info = (struct ibv_mw_bind_info){b.mr, (uintptr_t)at, 70, IBV_ACCESS_REMOTE_WRITE};
    CHECK_EQUAL(ibv_bind_mw(b.qp, two, &bind), EINVAL);
    CHECK_EQUAL(two->rkey, key);
    /* A region that was not registered for windows. */
    struct ibv_mr *closed = ibv_reg_mr(pd, b.bytes, b.length, ALL_ACCESS);
    CHECK(closed);
    bind.wr_id = id + 4;
    bind.bind_info.mr = closed;
    CHECK_EQUAL(ibv_bind_mw(b.qp, mw, &bind), 0);
    struct ibv_wc wc = next(b.send_cq);
    CHECK_EQUAL(wc.wr_id, id + 4);
    CHECK_EQUAL(wc.status, IBV_WC_MW_BIND_ERR);
    CHECK_EQUAL(wc.qp_num, b.qp->qp_num);
    CHECK_EQUAL(through(pd, IBV_WR_RDMA_WRITE, mw->rkey, at, 8, 0x13), IBV_WC_REM_ACCESS_ERR);
    CHECK_EQUAL(at[0], 0x11);
    CHECK_EQUAL(ibv_dereg_mr(closed), 0);
    CHECK_EQUAL(ibv_dealloc_mw(mw), 0);
    CHECK_EQUAL(ibv_dealloc_mw(two), 0);
}

int main(int count, char **arguments)
{
    struct ibv_pd *pd = begin_program(count, arguments);
    struct end a, b;
    open_pair(&a, &b, IBV_QPT_RC, pd);
    windows(&a, &b, 700);
    type_one(pd, 750);
    foreign_window(pd, 0, 800);
    foreign_window(pd, 1, 810);
    window_from_another_domain(pd, 820);
    return 0;
}
