/* Every field of every completion, by operation and service, through ibv_post_send and ibv_poll_cq, and through the extended interfaces of both.
 * Lengths, numbers and immediate data differ everywhere, so that no field can stand for another.
 * arguments: plain
 * arguments: extended
 */
#include "rig.h"
#include <arpa/inet.h>
#include <inttypes.h>

static int is_extended;
static struct ibv_context *context;
static union ibv_gid gid;

#define WC_FLAGS                                                                                                       \
    (IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_SRC_QP | IBV_WC_EX_WITH_SLID \
        | IBV_WC_EX_WITH_SL | IBV_WC_EX_WITH_DLID_PATH_BITS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)

static uint64_t last_stamp;

/* The next completion, as one structure from either interface. */
static struct ibv_wc next(struct ibv_cq *cq)
{
    if (!is_extended)
        return rig_next(cq);
    struct ibv_cq_ex *ex = (struct ibv_cq_ex *)cq;
    struct ibv_poll_cq_attr attr = {0};
    int result;
    while ((result = ibv_start_poll(ex, &attr)) == ENOENT)
        ;
    CHECK_EQUAL(result, 0);
    struct ibv_wc wc = {.wr_id = ex->wr_id, .status = ex->status, .vendor_err = ibv_wc_read_vendor_err(ex)};
    wc.opcode = ibv_wc_read_opcode(ex);
    wc.byte_len = ibv_wc_read_byte_len(ex);
    wc.imm_data = ibv_wc_read_imm_data(ex);
    wc.qp_num = ibv_wc_read_qp_num(ex);
    wc.src_qp = ibv_wc_read_src_qp(ex);
    wc.wc_flags = ibv_wc_read_wc_flags(ex);
    wc.slid = ibv_wc_read_slid(ex);
    wc.sl = ibv_wc_read_sl(ex);
    wc.dlid_path_bits = ibv_wc_read_dlid_path_bits(ex);
    if (wc.wc_flags & IBV_WC_WITH_INV)
        CHECK_EQUAL(ibv_wc_read_invalidated_rkey(ex), wc.imm_data);
    uint64_t stamp = ibv_wc_read_completion_ts(ex);
    CHECK(stamp > 0 && stamp >= last_stamp);
    last_stamp = stamp;
    ibv_end_poll(ex);
    return wc;
}

static struct ibv_cq *queue(int entries)
{
    if (!is_extended)
        return ibv_create_cq(context, entries, NULL, NULL, 0);
    struct ibv_cq_init_attr_ex attr = {.cqe = entries, .wc_flags = WC_FLAGS};
    struct ibv_cq_ex *ex = ibv_create_cq_ex(context, &attr);
    CHECK(ex);
    return ibv_cq_ex_to_cq(ex);
}

static uint64_t operations(enum ibv_qp_type type)
{
    uint64_t sends = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    uint64_t connected = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND_WITH_INV
        | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;
    uint64_t reliable = IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    return sends | (type == IBV_QPT_UD ? 0 : connected) | (type == IBV_QPT_RC ? reliable : 0);
}

static void open_end(struct end *end, enum ibv_qp_type type, struct ibv_srq *srq, struct ibv_pd *pd)
{
    memset(end, 0, sizeof *end);
    end->context = context;
    end->pd = pd;
    end->srq = srq;
    CHECK((end->send_cq = queue(40)) != NULL);
    CHECK((end->recv_cq = queue(70)) != NULL);
    end->length = 65536;
    end->bytes = mmap(NULL, end->length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(end->bytes != MAP_FAILED);
    CHECK((end->mr = ibv_reg_mr(pd, end->bytes, end->length, ALL_ACCESS | IBV_ACCESS_MW_BIND)) != NULL);
    struct ibv_qp_init_attr_ex attr = {.send_cq = end->send_cq, .recv_cq = end->recv_cq, .srq = srq, .qp_type = type,
        .cap = {.max_send_wr = 9, .max_recv_wr = 17, .max_send_sge = 2, .max_recv_sge = 3, .max_inline_data = 64},
        .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd};
    if (is_extended) {
        attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        attr.send_ops_flags = operations(type);
    }
    CHECK((end->qp = ibv_create_qp_ex(context, &attr)) != NULL);
}

static void check_sent(struct ibv_wc wc, uint64_t id, enum ibv_wc_opcode opcode, struct end *end)
{
    CHECK_EQUAL(wc.wr_id, id);
    CHECK_EQUAL(wc.status, IBV_WC_SUCCESS);
    CHECK_EQUAL(wc.opcode, opcode);
    CHECK_EQUAL(wc.vendor_err, 0);
    CHECK_EQUAL(wc.qp_num, end->qp->qp_num);
    CHECK_EQUAL(wc.wc_flags, 0);
    CHECK_EQUAL(wc.slid, 0);
    CHECK_EQUAL(wc.dlid_path_bits, 0);
}

static void check_received(struct ibv_wc wc, uint64_t id, enum ibv_wc_opcode opcode, uint32_t bytes, unsigned flags,
    uint32_t immediate, struct end *end)
{
    CHECK_EQUAL(wc.wr_id, id);
    CHECK_EQUAL(wc.status, IBV_WC_SUCCESS);
    CHECK_EQUAL(wc.opcode, opcode);
    CHECK_EQUAL(wc.vendor_err, 0);
    CHECK_EQUAL(wc.byte_len, bytes);
    CHECK_EQUAL(wc.qp_num, end->qp->qp_num);
    CHECK_EQUAL(wc.wc_flags, flags);
    if (flags & IBV_WC_WITH_IMM) {
        CHECK_EQUAL(wc.imm_data, htonl(immediate));
    }
    if (flags & IBV_WC_WITH_INV) {
        CHECK_EQUAL(wc.invalidated_rkey, immediate);
    }
    CHECK_EQUAL(wc.slid, 0);
    CHECK_EQUAL(wc.pkey_index, 0);
    CHECK_EQUAL(wc.dlid_path_bits, 0);
}

static struct ibv_send_wr request(struct ibv_sge *sge, uint64_t id, enum ibv_wr_opcode opcode, struct end *from,
    uint32_t length)
{
    *sge = (struct ibv_sge){(uintptr_t)from->bytes + 1024, length, from->mr->lkey};
    return (struct ibv_send_wr){.wr_id = id, .sg_list = sge, .num_sge = length ? 1 : 0, .opcode = opcode,
        .send_flags = IBV_SEND_SIGNALED};
}

/* The operation of a request, for the extended interface. */
static void begin(struct ibv_qp_ex *qp, struct ibv_send_wr *wr)
{
    uint32_t rkey = wr->wr.rdma.rkey;
    uint64_t remote = wr->wr.rdma.remote_addr;
    switch (wr->opcode) {
    case IBV_WR_SEND:
        return ibv_wr_send(qp);
    case IBV_WR_SEND_WITH_IMM:
        return ibv_wr_send_imm(qp, wr->imm_data);
    case IBV_WR_SEND_WITH_INV:
        return ibv_wr_send_inv(qp, wr->invalidate_rkey);
    case IBV_WR_RDMA_WRITE:
        return ibv_wr_rdma_write(qp, rkey, remote);
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        return ibv_wr_rdma_write_imm(qp, rkey, remote, wr->imm_data);
    case IBV_WR_RDMA_READ:
        return ibv_wr_rdma_read(qp, rkey, remote);
    case IBV_WR_ATOMIC_CMP_AND_SWP:
        return ibv_wr_atomic_cmp_swp(qp, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr, wr->wr.atomic.compare_add, wr->wr.atomic.swap);
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        return ibv_wr_atomic_fetch_add(qp, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr, wr->wr.atomic.compare_add);
    case IBV_WR_LOCAL_INV:
        return ibv_wr_local_inv(qp, wr->invalidate_rkey);
    case IBV_WR_BIND_MW:
        return ibv_wr_bind_mw(qp, wr->bind_mw.mw, wr->bind_mw.rkey, &wr->bind_mw.bind_info);
    default:
        CHECK(!"an operation of this program");
    }
}

static void post(struct end *end, struct ibv_send_wr *wr)
{
    struct ibv_send_wr *bad;
    if (!is_extended) {
        CHECK_EQUAL(ibv_post_send(end->qp, wr, &bad), 0);
        return;
    }
    struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(end->qp);
    CHECK(qp);
    ibv_wr_start(qp);
    qp->wr_id = wr->wr_id;
    qp->wr_flags = wr->send_flags;
    begin(qp, wr);
    if (end->qp->qp_type == IBV_QPT_UD)
        ibv_wr_set_ud_addr(qp, wr->wr.ud.ah, wr->wr.ud.remote_qpn, wr->wr.ud.remote_qkey);
    if (wr->send_flags & IBV_SEND_INLINE)
        ibv_wr_set_inline_data(qp, (void *)(uintptr_t)wr->sg_list->addr, wr->sg_list->length);
    else if (wr->opcode != IBV_WR_BIND_MW && wr->opcode != IBV_WR_LOCAL_INV)
        ibv_wr_set_sge_list(qp, wr->num_sge, wr->sg_list);
    CHECK_EQUAL(ibv_wr_complete(qp), 0);
}

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

enum failure { BAD_RKEY, TOO_LONG, BAD_LKEY, NO_RECEIVE, FAILURES };

/* Each failure names itself at both ends; what comes behind is flushed. */
static void fails(struct ibv_pd *pd, enum failure failure)
{
    struct end a, b;
    struct ibv_sge sge;
    open_end(&a, IBV_QPT_RC, NULL, pd);
    open_end(&b, IBV_QPT_RC, NULL, pd);
    rig_connect(&a, &b);
    struct ibv_qp_attr attr = {.rnr_retry = 0};
    if (failure == NO_RECEIVE) {
        /* Without a repetition the first "not ready" ends the request. */
        attr.qp_state = IBV_QPS_SQD;
        CHECK_EQUAL(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), 0);
        CHECK_EQUAL(ibv_modify_qp(a.qp, &attr, IBV_QP_RNR_RETRY), 0);
        attr.qp_state = IBV_QPS_RTS;
        CHECK_EQUAL(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), 0);
    } else {
        rig_receive(&b, 5, 0, 30);
    }
    struct ibv_send_wr wr = request(&sge, 71, failure == BAD_RKEY ? IBV_WR_RDMA_WRITE : IBV_WR_SEND, &a, 50);
    wr.send_flags = 0; /* a failure is reported of every request */
    if (failure == BAD_RKEY) {
        wr.wr.rdma.remote_addr = (uintptr_t)b.bytes;
        wr.wr.rdma.rkey = b.mr->rkey ^ 0x10;
    }
    if (failure == BAD_LKEY) {
        sge.lkey ^= 0x20;
        sge.length = 8;
    }
    post(&a, &wr);
    const enum ibv_wc_status status[] = {IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_PROT_ERR,
        IBV_WC_RNR_RETRY_EXC_ERR};
    struct ibv_wc wc = next(a.send_cq);
    CHECK_EQUAL(wc.wr_id, 71);
    CHECK_EQUAL(wc.status, status[failure]);
    CHECK(wc.vendor_err != 0);
    CHECK_EQUAL(wc.qp_num, a.qp->qp_num);
    struct ibv_send_wr more = request(&sge, 72, IBV_WR_SEND, &a, 8);
    more.send_flags = 0;
    post(&a, &more);
    wc = next(a.send_cq);
    CHECK_EQUAL(wc.wr_id, 72);
    CHECK_EQUAL(wc.status, IBV_WC_WR_FLUSH_ERR);
    CHECK_EQUAL(wc.qp_num, a.qp->qp_num);
    if (failure == TOO_LONG || failure == BAD_RKEY) {
        wc = next(b.recv_cq);
        CHECK_EQUAL(wc.wr_id, 5);
        CHECK_EQUAL(wc.status, failure == TOO_LONG ? IBV_WC_LOC_LEN_ERR : IBV_WC_WR_FLUSH_ERR);
        CHECK_EQUAL(wc.qp_num, b.qp->qp_num);
    }
    struct ibv_qp_init_attr unused;
    CHECK_EQUAL(ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &unused), 0);
    CHECK_EQUAL(attr.qp_state, IBV_QPS_ERR);
    CHECK_EQUAL(ibv_destroy_qp(a.qp), 0);
    CHECK_EQUAL(ibv_destroy_qp(b.qp), 0);
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
    is_extended = count > 1 && !strcmp(arguments[1], "extended");
    context = rig_open();
    CHECK_EQUAL(ibv_query_gid(context, 1, 0, &gid), 0);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    CHECK(pd);

    struct end a, b;
    open_end(&a, IBV_QPT_RC, NULL, pd);
    struct ibv_srq_init_attr shared = {.attr = {.max_wr = 12, .max_sge = 2}};
    struct ibv_srq *srq = ibv_create_srq(pd, &shared);
    CHECK(srq);
    open_end(&b, IBV_QPT_RC, NULL, pd);
    rig_connect(&a, &b);
    /* Both directions. */
    sends(&a, &b, 100);
    sends(&b, &a, 200);
    writes(&a, &b, 300);
    writes(&b, &a, 400);
    reads_and_atomics(&a, &b, 500);
    reads_and_atomics(&b, &a, 600);
    windows(&a, &b, 700);
    foreign_window(pd, 0, 800);
    foreign_window(pd, 1, 810);
    window_from_another_domain(pd, 820);

    /* Receives of a shared queue complete as those of the queue pair that got the message. */
    struct end c, d;
    open_end(&c, IBV_QPT_RC, NULL, pd);
    open_end(&d, IBV_QPT_RC, srq, pd);
    rig_connect(&c, &d);
    sends(&c, &d, 900);
    writes(&c, &d, 1000);

    /* Without acknowledgements. */
    struct end e, f;
    open_end(&e, IBV_QPT_UC, NULL, pd);
    open_end(&f, IBV_QPT_UC, NULL, pd);
    rig_connect(&e, &f);
    sends(&e, &f, 1100);
    writes(&f, &e, 1200);
    datagrams(pd);
    for (int failure = 0; failure < FAILURES; failure++)
        fails(pd, failure);
    return 0;
}
