/* Memory patterns, posting work and polling completions. */
#include "agent.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SGE_MAX 16

/* A stretch of a registered region, checked against its size. */
struct stretch {
    uint8_t *bytes;
    size_t length;
};

static struct stretch find_stretch(const struct request *request)
{
    const struct region *region = &objects.region[slot(request, "mr", objects.regions)];
    size_t offset = number_or(request, "offset", 0);
    if (offset > region->mr->length)
        refuse(ERANGE, "offset %zu is outside the MR", offset);
    size_t length = number_or(request, "length", region->mr->length - offset);
    if (length > region->mr->length - offset)
        refuse(ERANGE, "length %zu is outside the MR", length);
    return (struct stretch){region->bytes + offset, length};
}

/* Byte `index` of a seed's pattern: the bytes, lowest first, of a 64-bit mix of the seed and the index over 8. */
static uint8_t pattern(uint64_t seed, size_t index)
{
    uint64_t x = (seed + 1) * 0x9e3779b97f4a7c15u + index / 8;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    return (uint8_t)(x >> (8 * (index % 8)));
}

void fill(const struct request *request)
{
    struct stretch stretch = find_stretch(request);
    uint64_t seed = number(request, "seed");
    for (size_t i = 0; i < stretch.length; i++)
        stretch.bytes[i] = pattern(seed, i);
    answer("ok\n");
}

void check(const struct request *request)
{
    struct stretch stretch = find_stretch(request);
    uint64_t seed = number(request, "seed");
    for (size_t i = 0; i < stretch.length; i++) {
        if (stretch.bytes[i] != pattern(seed, i)) {
            answer("ok match=0 at=%zu\n", i);
            return;
        }
    }
    answer("ok match=1\n");
}

void poke(const struct request *request)
{
    struct stretch stretch = find_stretch(request);
    const char *hex = text(request, "hex");
    size_t length = strlen(hex) / 2;
    if (length > stretch.length)
        refuse(ERANGE, "%zu bytes do not fit", length);
    for (size_t i = 0; i < length; i++)
        if (sscanf(hex + 2 * i, "%2hhx", &stretch.bytes[i]) != 1)
            refuse(EINVAL, "%s is not hexadecimal", hex);
    answer("ok\n");
}

void peek(const struct request *request)
{
    struct stretch stretch = find_stretch(request);
    answer("ok hex=");
    for (size_t i = 0; i < stretch.length; i++)
        answer("%02x", stretch.bytes[i]);
    answer("\n");
}

/* "MR:OFFSET:LENGTH,…" as a gather or scatter list; its length. */
static int parse_sges(const struct request *request, struct ibv_sge *sges)
{
    const char *list = text_or(request, "sge", "");
    int count = 0;
    while (*list) {
        unsigned mr;
        unsigned long long offset, length;
        int used = 0;
        if (count == SGE_MAX || sscanf(list, "%u:%llu:%llu%n", &mr, &offset, &length, &used) != 3)
            refuse(EINVAL, "sge=%s", list);
        if (mr >= (unsigned)objects.regions)
            refuse(ENOENT, "there is no mr %u", mr);
        const struct region *region = &objects.region[mr];
        sges[count++] = (struct ibv_sge){(uintptr_t)region->bytes + offset, (uint32_t)length, region->mr->lkey};
        list += used + (list[used] == ',');
    }
    return count;
}

static const struct {
    const char *name;
    enum ibv_wr_opcode opcode;
} operations[] = {
    {"send", IBV_WR_SEND},
    {"send_imm", IBV_WR_SEND_WITH_IMM},
    {"send_inv", IBV_WR_SEND_WITH_INV},
    {"write", IBV_WR_RDMA_WRITE},
    {"write_imm", IBV_WR_RDMA_WRITE_WITH_IMM},
    {"read", IBV_WR_RDMA_READ},
    {"cas", IBV_WR_ATOMIC_CMP_AND_SWP},
    {"fadd", IBV_WR_ATOMIC_FETCH_AND_ADD},
    {"bind", IBV_WR_BIND_MW},
    {"local_inv", IBV_WR_LOCAL_INV},
};

static enum ibv_wr_opcode parse_operation(const char *name)
{
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        if (!strcmp(operations[i].name, name))
            return operations[i].opcode;
    refuse(EINVAL, "no operation %s", name);
}

static unsigned send_flags(const char *letters)
{
    unsigned flags = 0;
    for (; *letters; letters++) {
        switch (*letters) {
        case 's': flags |= IBV_SEND_SIGNALED; break;
        case 'e': flags |= IBV_SEND_SOLICITED; break;
        case 'i': flags |= IBV_SEND_INLINE; break;
        case 'f': flags |= IBV_SEND_FENCE; break;
        case '-': break;
        default: refuse(EINVAL, "no send flag %c", *letters);
        }
    }
    return flags;
}

/* The parameters of an operation beyond its local memory. */
static void add_operands(const struct request *request, enum ibv_qp_type type, struct ibv_send_wr *wr)
{
    switch (wr->opcode) {
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_RDMA_WRITE_WITH_IMM: wr->imm_data = htonl((uint32_t)number(request, "imm")); break;
    case IBV_WR_SEND_WITH_INV:
    case IBV_WR_LOCAL_INV: wr->invalidate_rkey = (uint32_t)number(request, "invalidate"); break;
    case IBV_WR_BIND_MW:
        wr->bind_mw.mw = objects.mw[slot(request, "mw", objects.mws)];
        wr->bind_mw.rkey = (uint32_t)number(request, "rkey");
        wr->bind_mw.bind_info.mr = objects.region[slot(request, "mr", objects.regions)].mr;
        wr->bind_mw.bind_info.addr = number(request, "addr");
        wr->bind_mw.bind_info.length = number(request, "length");
        wr->bind_mw.bind_info.mw_access_flags = (unsigned)access_flags(text(request, "access"));
        break;
    default: break;
    }
    switch (wr->opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_RDMA_READ:
        wr->wr.rdma.remote_addr = number(request, "raddr");
        wr->wr.rdma.rkey = (uint32_t)number(request, "rkey");
        break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        wr->wr.atomic.remote_addr = number(request, "raddr");
        wr->wr.atomic.rkey = (uint32_t)number(request, "rkey");
        wr->wr.atomic.compare_add =
            number(request, wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? "add" : "compare");
        wr->wr.atomic.swap = number_or(request, "swap", 0);
        break;
    default: break;
    }
    if (type == IBV_QPT_UD) {
        wr->wr.ud.ah = objects.ah[slot(request, "ah", objects.ahs)];
        wr->wr.ud.remote_qpn = (uint32_t)number(request, "qpn");
        wr->wr.ud.remote_qkey = (uint32_t)number(request, "qkey");
    }
}

void post_send(const struct request *request)
{
    struct ibv_qp *qp = objects.qp[slot(request, "qp", objects.qps)];
    struct ibv_sge sges[SGE_MAX];
    struct ibv_send_wr wr = {
        .wr_id = number(request, "wr"),
        .sg_list = sges,
        .num_sge = parse_sges(request, sges),
        .opcode = parse_operation(text(request, "op")),
        .send_flags = send_flags(text_or(request, "flags", "s")),
    };
    add_operands(request, qp->qp_type, &wr);
    for (uint64_t left = number_or(request, "count", 1); left; left--, wr.wr_id++) {
        struct ibv_send_wr *bad;
        int error = ibv_post_send(qp, &wr, &bad);
        if (error)
            refuse(error, "post_send");
    }
    answer("ok\n");
}

void post_recv(const struct request *request)
{
    struct ibv_sge sges[SGE_MAX];
    struct ibv_recv_wr wr = {
        .wr_id = number(request, "wr"), .sg_list = sges, .num_sge = parse_sges(request, sges)};
    int shared = text_or(request, "srq", NULL) != NULL;
    for (uint64_t left = number_or(request, "count", 1); left; left--, wr.wr_id++) {
        struct ibv_recv_wr *bad;
        int error = shared ? ibv_post_srq_recv(objects.srq[slot(request, "srq", objects.srqs)], &wr, &bad)
                           : ibv_post_recv(objects.qp[slot(request, "qp", objects.qps)], &wr, &bad);
        if (error)
            refuse(error, "post_recv");
    }
    answer("ok\n");
}

static int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000ll + now.tv_nsec / 1000;
}

void poll_cq(const struct request *request)
{
    static struct ibv_wc completions[1024];
    struct ibv_cq *cq = objects.cq[slot(request, "cq", objects.cqs)];
    int wanted = (int)number_or(request, "count", 1), found = 0;
    if (wanted > 1024)
        refuse(ERANGE, "at most 1024 completions at once");
    int64_t deadline = now_us() + (int64_t)number_or(request, "ms", 2000) * 1000;
    for (;;) {
        int more = ibv_poll_cq(cq, wanted - found, completions + found);
        if (more < 0)
            refuse(EIO, "poll_cq");
        found += more;
        if (found >= wanted || now_us() >= deadline)
            break;
        /* The guest has one processor, and the kernel's side of rxe needs it more than the agent does. */
        if (!more)
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    answer("ok n=%d", found);
    for (const struct ibv_wc *wc = completions; wc < completions + found; wc++) {
        /* rxe passes on the kernel's number of this flag, which libibverbs gives to another one. */
        unsigned invalidated = IBV_WC_WITH_INV | IBV_WC_IP_CSUM_OK;
        uint32_t immediate = wc->wc_flags & invalidated ? wc->invalidated_rkey : ntohl(wc->imm_data);
        answer(" wc=%llu,%d,%d,%u,%u,%u,0x%x,%u", (unsigned long long)wc->wr_id, wc->status, wc->opcode,
               wc->byte_len, wc->qp_num, wc->src_qp, immediate, wc->wc_flags);
    }
    answer("\n");
}
