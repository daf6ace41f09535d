/* Requests and completions by either interface of the verbs: `ibv_post_send` and `ibv_poll_cq`, or the extended calls of both. A program that
 * includes this says which with its first argument, `plain` or `extended`. */
#ifndef COMPLETIONS_H
#define COMPLETIONS_H
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
    uint64_t reliable = IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
        | IBV_QP_EX_WITH_ATOMIC_WRITE;
    int is_reliable = type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND;
    return sends | (type == IBV_QPT_UD ? 0 : connected) | (is_reliable ? reliable : 0);
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
    case IBV_WR_ATOMIC_WRITE:
        return ibv_wr_atomic_write(qp, rkey, remote, (void *)(uintptr_t)wr->sg_list->addr);
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
    if (end->qp->qp_type == IBV_QPT_XRC_SEND)
        ibv_wr_set_xrc_srqn(qp, wr->qp_type.xrc.remote_srqn);
    if (wr->send_flags & IBV_SEND_INLINE)
        ibv_wr_set_inline_data(qp, (void *)(uintptr_t)wr->sg_list->addr, wr->sg_list->length);
    else if (wr->opcode != IBV_WR_BIND_MW && wr->opcode != IBV_WR_LOCAL_INV && wr->opcode != IBV_WR_ATOMIC_WRITE)
        ibv_wr_set_sge_list(qp, wr->num_sge, wr->sg_list);
    CHECK_EQUAL(ibv_wr_complete(qp), 0);
}

/* The device, and which interface the program's first argument asks for. Returns a protection domain. */
static struct ibv_pd *begin_program(int count, char **arguments)
{
    is_extended = count > 1 && !strcmp(arguments[1], "extended");
    context = rig_open();
    CHECK_EQUAL(ibv_query_gid(context, 1, 0, &gid), 0);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    CHECK(pd);
    return pd;
}

/* Two ends that are connected. */
static void open_pair(struct end *a, struct end *b, enum ibv_qp_type type, struct ibv_pd *pd)
{
    open_end(a, type, NULL, pd);
    open_end(b, type, NULL, pd);
    rig_connect(a, b);
}

#endif
