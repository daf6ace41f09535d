/* Tag matching: the operations on the list, and what a completion says of a message that matched, of one that did not, and of one that has no
 * tag. A queue asks for IBV_WC_EX_WITH_TM_INFO; all numbers differ. */
#define _GNU_SOURCE
#include "rig.h"
#include <arpa/inet.h>
#include <endian.h>
#include <infiniband/tm_types.h>

enum { SEND_AT = 1024, LISTED_AT = 8192, PLAIN_AT = 30000, TAGS = 5 };
static struct ibv_context *context;
static struct end a, b;

struct seen {
    uint64_t wr_id, tag;
    uint32_t priv, bytes, qp_num, vendor_err;
    unsigned flags;
    enum ibv_wc_opcode opcode;
    enum ibv_wc_status status;
};

static struct seen next(struct ibv_cq *cq)
{
    struct ibv_cq_ex *ex = (struct ibv_cq_ex *)cq;
    struct ibv_poll_cq_attr attr = {0};
    struct ibv_wc_tm_info info = {~0ull, ~0u};
    int result;
    while ((result = ibv_start_poll(ex, &attr)) == ENOENT)
        ;
    CHECK_EQUAL(result, 0);
    ibv_wc_read_tm_info(ex, &info);
    struct seen seen = {.wr_id = ex->wr_id, .status = ex->status, .opcode = ibv_wc_read_opcode(ex), .bytes = ibv_wc_read_byte_len(ex),
        .qp_num = ibv_wc_read_qp_num(ex), .vendor_err = ibv_wc_read_vendor_err(ex), .flags = ibv_wc_read_wc_flags(ex),
        .tag = info.tag, .priv = info.priv};
    ibv_end_poll(ex);
    return seen;
}

static struct ibv_cq *queue(int entries)
{
    struct ibv_cq_init_attr_ex attr = {.cqe = entries, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM
        | IBV_WC_EX_WITH_TM_INFO};
    struct ibv_cq_ex *ex = ibv_create_cq_ex(context, &attr);
    CHECK(ex);
    return ibv_cq_ex_to_cq(ex);
}

static void open_ends(void)
{
    rig_end(&a, context, 65536);
    rig_end(&b, context, 65536);
    CHECK_EQUAL(ibv_destroy_cq(b.recv_cq), 0);
    b.recv_cq = queue(60);
    struct ibv_srq_init_attr_ex attr = {.attr = {.max_wr = 14, .max_sge = 2}, .pd = b.pd, .cq = b.recv_cq, .srq_type = IBV_SRQT_TM,
        .tm_cap = {.max_num_tags = TAGS, .max_ops = 9},
        .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM};
    CHECK((b.srq = ibv_create_srq_ex(context, &attr)) != NULL);
    rig_queue_pair(&a, IBV_QPT_RC);
    rig_queue_pair(&b, IBV_QPT_RC);
    rig_connect(&a, &b);
    for (int i = 0; i < 4; i++)
        rig_receive(&b, 70 + i, PLAIN_AT + 512 * i, 512);
}

/* An operation on the list; returns its errno. */
static int list(struct ibv_ops_wr *wr)
{
    struct ibv_ops_wr *bad = NULL;
    int result = ibv_post_srq_ops(b.srq, wr, &bad);
    CHECK(result == 0 ? !bad : bad == wr);
    return result;
}

static struct ibv_ops_wr adding(struct ibv_sge *sge, uint64_t id, uint64_t receive_id, int place, uint32_t length, uint64_t tag, uint64_t mask)
{
    *sge = (struct ibv_sge){(uintptr_t)b.bytes + LISTED_AT + 1024 * place, length, b.mr->lkey};
    struct ibv_ops_wr wr = {.wr_id = id, .opcode = IBV_WR_TAG_ADD, .flags = IBV_OPS_SIGNALED};
    wr.tm.add.recv_wr_id = receive_id;
    wr.tm.add.sg_list = sge;
    wr.tm.add.num_sge = 1;
    wr.tm.add.tag = tag;
    wr.tm.add.mask = mask;
    return wr;
}

/* A receive of the queue, any that has not been used; returns where it lies. */
static char *received(uint64_t id)
{
    static unsigned used;
    CHECK(id >= 70 && id < 74 && !(used >> (id - 70) & 1));
    used |= 1u << (id - 70);
    return b.bytes + PLAIN_AT + 512 * (id - 70);
}

static void operated(struct seen seen, uint64_t id, enum ibv_wc_opcode opcode)
{
    CHECK_EQUAL(seen.wr_id, id);
    CHECK_EQUAL(seen.status, IBV_WC_SUCCESS);
    CHECK_EQUAL(seen.opcode, opcode);
    CHECK_EQUAL(seen.vendor_err, 0);
}

static void say(enum ibv_tmh_op operation, uint64_t tag, uint32_t priv, uint32_t length, int value)
{
    struct ibv_tmh header = {.opcode = operation, .app_ctx = htonl(priv), .tag = htobe64(tag)};
    memcpy(a.bytes + SEND_AT, &header, sizeof header);
    memset(a.bytes + SEND_AT + sizeof header, value, length);
    rig_post(&a, IBV_WR_SEND, 5, SEND_AT, sizeof header + length, NULL, 0);
}

static void sent(void)
{
    struct ibv_wc wc = rig_next(a.send_cq);
    CHECK(wc.wr_id == 5 && wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_SEND);
}

static void check_limits(void)
{
    struct ibv_device_attr_ex device;
    memset(&device, 0xA5, sizeof device);
    CHECK_EQUAL(ibv_query_device_ex(context, NULL, &device), 0);
    CHECK_EQUAL(device.tm_caps.flags, IBV_TM_CAP_RC);
    CHECK(device.tm_caps.max_num_tags >= TAGS && device.tm_caps.max_ops >= 9 && device.tm_caps.max_sge >= 1);
    CHECK(device.tm_caps.max_rndv_hdr_size >= sizeof(struct ibv_tmh) + sizeof(struct ibv_rvh));
    struct ibv_srq_init_attr_ex attr = {.attr = {.max_wr = 14, .max_sge = 2}, .pd = b.pd, .cq = b.recv_cq, .srq_type = IBV_SRQT_TM,
        .tm_cap = {.max_num_tags = device.tm_caps.max_num_tags + 1, .max_ops = 9},
        .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM};
    CHECK(!ibv_create_srq_ex(context, &attr) && errno == EINVAL);
}

/* The lowest bits of a tag count, and each buffer serves once. */
static void matched(void)
{
    struct ibv_sge sge;
    struct ibv_ops_wr one = adding(&sge, 21, 301, 0, 400, 0x11, 0xFF);
    CHECK_EQUAL(list(&one), 0);
    operated(next(b.recv_cq), 21, IBV_WC_TM_ADD);
    struct ibv_ops_wr two = adding(&sge, 22, 302, 1, 600, 0x22, 0xFF);
    CHECK_EQUAL(list(&two), 0);
    operated(next(b.recv_cq), 22, IBV_WC_TM_ADD);
    CHECK(one.tm.handle != two.tm.handle);

    say(IBV_TMH_EAGER, 0x7777000000005522, 0xCAFE0102, 333, 0x3A);
    struct seen seen = next(b.recv_cq);
    operated(seen, 302, IBV_WC_TM_RECV);
    CHECK_EQUAL(seen.flags, IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID);
    CHECK_EQUAL(seen.tag, 0x7777000000005522);
    CHECK_EQUAL(seen.priv, 0xCAFE0102);
    CHECK_EQUAL(seen.bytes, 333);
    CHECK_EQUAL(seen.qp_num, b.qp->qp_num);
    char *at = b.bytes + LISTED_AT + 1024;
    CHECK(at[0] == 0x3A && at[332] == 0x3A && at[333] == 0);
    sent();

    /* The other buffer is taken back, and its handle is then nothing. */
    struct ibv_ops_wr away = {.wr_id = 23, .opcode = IBV_WR_TAG_DEL, .flags = IBV_OPS_SIGNALED};
    away.tm.handle = one.tm.handle;
    CHECK_EQUAL(list(&away), 0);
    operated(next(b.recv_cq), 23, IBV_WC_TM_DEL);
    away.wr_id = 24;
    away.flags = 0; /* a failure is reported of every operation */
    CHECK_EQUAL(list(&away), 0);
    seen = next(b.recv_cq);
    CHECK_EQUAL(seen.wr_id, 24);
    CHECK_EQUAL(seen.status, IBV_WC_TM_ERR);
    CHECK_EQUAL(seen.opcode, IBV_WC_TM_DEL);
    CHECK(seen.vendor_err != 0);
}

/* What nothing waits for lies in a receive of the queue, with its header, and so does what has no tag. */
static void unmatched(void)
{
    say(IBV_TMH_EAGER, 0x33, 0x01020304, 50, 0x4B);
    struct seen seen = next(b.recv_cq);
    operated(seen, seen.wr_id, IBV_WC_TM_RECV);
    char *at = received(seen.wr_id);
    CHECK_EQUAL(seen.flags & (IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID), 0);
    CHECK_EQUAL(seen.bytes, sizeof(struct ibv_tmh) + 50);
    CHECK_EQUAL(seen.qp_num, b.qp->qp_num);
    struct ibv_tmh header;
    memcpy(&header, at, sizeof header);
    CHECK(header.opcode == IBV_TMH_EAGER && be64toh(header.tag) == 0x33 && ntohl(header.app_ctx) == 0x01020304);
    CHECK(at[sizeof header + 49] == 0x4B && at[sizeof header + 50] == 0);
    sent();

    say(IBV_TMH_NO_TAG, 0x44, 0x05060708, 60, 0x5C);
    seen = next(b.recv_cq);
    operated(seen, seen.wr_id, IBV_WC_TM_NO_TAG);
    received(seen.wr_id);
    CHECK_EQUAL(seen.bytes, sizeof(struct ibv_tmh) + 60);
    CHECK_EQUAL(seen.flags & (IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID), 0);
    sent();

    /* The program has not said that it knows of one unexpected message. */
    struct ibv_ops_wr sync = {.wr_id = 31, .opcode = IBV_WR_TAG_SYNC, .flags = IBV_OPS_SIGNALED};
    sync.tm.unexpected_cnt = 0;
    CHECK_EQUAL(list(&sync), 0);
    seen = next(b.recv_cq);
    operated(seen, 31, IBV_WC_TM_SYNC);
    CHECK_EQUAL(seen.flags, IBV_WC_TM_SYNC_REQ);
    sync.wr_id = 32;
    sync.tm.unexpected_cnt = 1;
    CHECK_EQUAL(list(&sync), 0);
    seen = next(b.recv_cq);
    operated(seen, 32, IBV_WC_TM_SYNC);
    CHECK_EQUAL(seen.flags, 0);
}

/* The list holds as many as it was made for. */
static void full(void)
{
    struct ibv_sge sge;
    struct ibv_ops_wr wr;
    unsigned held = 0;
    for (;; held++) {
        wr = adding(&sge, 40 + held, 400 + held, held, 64, 0x9000 + held, ~0ull);
        int result = list(&wr);
        if (result) {
            CHECK_EQUAL(result, ENOMEM);
            break;
        }
        operated(next(b.recv_cq), 40 + held, IBV_WC_TM_ADD);
    }
    CHECK_EQUAL(held, TAGS);
    /* Too long for the buffer that waits for it. */
    say(IBV_TMH_EAGER, 0x9003, 9, 65, 0x6D);
    struct seen seen = next(b.recv_cq);
    CHECK_EQUAL(seen.wr_id, 403);
    CHECK_EQUAL(seen.status, IBV_WC_LOC_LEN_ERR);
    CHECK_EQUAL(seen.qp_num, b.qp->qp_num);
}

int main(void)
{
    context = rig_open();
    open_ends();
    check_limits();
    matched();
    unmatched();
    full();
    return 0;
}
