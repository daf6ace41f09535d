/* Making, connecting and destroying verbs objects. */
#include "agent.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PORT 1

/* A fresh number for an object of one kind. */
static int take(int *count)
{
    if (*count == KIND_MAX)
        refuse(ENOSPC, "too many objects");
    return (*count)++;
}

int access_flags(const char *letters)
{
    int flags = 0;
    for (; *letters; letters++) {
        switch (*letters) {
        case 'l': flags |= IBV_ACCESS_LOCAL_WRITE; break;
        case 'w': flags |= IBV_ACCESS_REMOTE_WRITE; break;
        case 'r': flags |= IBV_ACCESS_REMOTE_READ; break;
        case 'a': flags |= IBV_ACCESS_REMOTE_ATOMIC; break;
        case 'b': flags |= IBV_ACCESS_MW_BIND; break;
        case '-': break;
        default: refuse(EINVAL, "no access flag %c", *letters);
        }
    }
    return flags;
}

/* "10.77.0.1" or "fe80::1" as a GID. */
static union ibv_gid parse_gid(const char *address)
{
    union ibv_gid gid = {0};
    if (strchr(address, ':')) {
        if (inet_pton(AF_INET6, address, gid.raw) == 1)
            return gid;
    } else if (inet_pton(AF_INET, address, gid.raw + 12) == 1) {
        gid.raw[10] = gid.raw[11] = 0xff;
        return gid;
    }
    refuse(EINVAL, "%s is no address", address);
}

static enum ibv_mtu parse_mtu(uint64_t bytes)
{
    for (int mtu = IBV_MTU_256; mtu <= IBV_MTU_4096; mtu++)
        if (bytes == 128u << mtu)
            return mtu;
    refuse(EINVAL, "no path MTU of %llu", (unsigned long long)bytes);
}

static struct ibv_ah_attr address_vector(const struct request *request)
{
    return (struct ibv_ah_attr){
        .is_global = 1,
        .port_num = PORT,
        .grh = {.dgid = parse_gid(text(request, "gid")),
                .sgid_index = (uint8_t)number(request, "sgid"),
                .hop_limit = 64},
    };
}

void open_device(const struct request *request)
{
    const char *name = text_or(request, "dev", "rxe0");
    struct ibv_device **devices = ibv_get_device_list(NULL);
    for (int i = 0; devices && devices[i] && !objects.context; i++)
        if (!strcmp(ibv_get_device_name(devices[i]), name))
            objects.context = ibv_open_device(devices[i]);
    struct ibv_port_attr port;
    if (!objects.context || ibv_query_port(objects.context, PORT, &port))
        refuse(errno ? errno : ENODEV, "cannot open %s", name);
    answer("ok mtu=%d", 128 << port.active_mtu);
    for (int index = 0; index < port.gid_tbl_len; index++) {
        struct ibv_gid_entry entry;
        char address[INET6_ADDRSTRLEN];
        if (ibv_query_gid_ex(objects.context, PORT, index, &entry, 0) || entry.gid_type != IBV_GID_TYPE_ROCE_V2)
            continue;
        answer(" gid=%d,%s", index, inet_ntop(AF_INET6, entry.gid.raw, address, sizeof address));
    }
    answer("\n");
}

void make_pd(const struct request *request)
{
    (void)request;
    struct ibv_pd *pd = ibv_alloc_pd(objects.context);
    if (!pd)
        refuse(errno, "no PD");
    int number = take(&objects.pds);
    objects.pd[number] = pd;
    answer("ok pd=%d\n", number);
}

void make_cq(const struct request *request)
{
    struct ibv_cq *cq = ibv_create_cq(objects.context, (int)number(request, "depth"), NULL, NULL, 0);
    if (!cq)
        refuse(errno, "no CQ");
    int number = take(&objects.cqs);
    objects.cq[number] = cq;
    answer("ok cq=%d\n", number);
}

void make_srq(const struct request *request)
{
    struct ibv_srq_init_attr attributes = {
        .attr = {.max_wr = (uint32_t)number(request, "wr"), .max_sge = (uint32_t)number_or(request, "sge", 4)},
    };
    struct ibv_srq *srq = ibv_create_srq(objects.pd[slot(request, "pd", objects.pds)], &attributes);
    if (!srq)
        refuse(errno, "no SRQ");
    int number = take(&objects.srqs);
    objects.srq[number] = srq;
    answer("ok srq=%d\n", number);
}

void make_mr(const struct request *request)
{
    size_t bytes = number(request, "bytes");
    struct region region = {.bytes = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095)};
    if (!region.bytes)
        refuse(ENOMEM, "no %zu bytes", bytes);
    memset(region.bytes, 0, bytes);
    struct ibv_pd *pd = objects.pd[slot(request, "pd", objects.pds)];
    region.mr = ibv_reg_mr(pd, region.bytes, bytes, access_flags(text(request, "access")));
    if (!region.mr)
        refuse(errno, "no MR");
    int number = take(&objects.regions);
    objects.region[number] = region;
    answer("ok mr=%d addr=%p lkey=0x%x rkey=0x%x\n", number, (void *)region.bytes, region.mr->lkey, region.mr->rkey);
}

void make_mw(const struct request *request)
{
    struct ibv_mw *mw = ibv_alloc_mw(objects.pd[slot(request, "pd", objects.pds)], IBV_MW_TYPE_2);
    if (!mw)
        refuse(errno, "no MW");
    int number = take(&objects.mws);
    objects.mw[number] = mw;
    answer("ok mw=%d rkey=0x%x\n", number, mw->rkey);
}

static enum ibv_qp_type parse_type(const char *name)
{
    if (!strcmp(name, "rc"))
        return IBV_QPT_RC;
    if (!strcmp(name, "uc"))
        return IBV_QPT_UC;
    if (!strcmp(name, "ud"))
        return IBV_QPT_UD;
    refuse(EINVAL, "no QP type %s", name);
}

void make_qp(const struct request *request)
{
    struct ibv_cq *cq = objects.cq[slot(request, "cq", objects.cqs)];
    uint32_t sge = (uint32_t)number_or(request, "sge", 4);
    struct ibv_qp_init_attr attributes = {
        .send_cq = cq,
        .recv_cq = cq,
        .srq = text_or(request, "srq", NULL) ? objects.srq[slot(request, "srq", objects.srqs)] : NULL,
        .cap = {.max_send_wr = (uint32_t)number_or(request, "send_wr", 64),
                .max_recv_wr = (uint32_t)number_or(request, "recv_wr", 64),
                .max_send_sge = sge,
                .max_recv_sge = sge,
                .max_inline_data = (uint32_t)number_or(request, "inline", 64)},
        .qp_type = parse_type(text(request, "type")),
        .sq_sig_all = (int)number_or(request, "sig_all", 0),
    };
    struct ibv_qp *qp = ibv_create_qp(objects.pd[slot(request, "pd", objects.pds)], &attributes);
    if (!qp)
        refuse(errno, "no QP");
    int number = take(&objects.qps);
    objects.qp[number] = qp;
    answer("ok qp=%d qpn=%u inline=%u\n", number, qp->qp_num, attributes.cap.max_inline_data);
}

void make_ah(const struct request *request)
{
    struct ibv_ah_attr attributes = address_vector(request);
    struct ibv_ah *ah = ibv_create_ah(objects.pd[slot(request, "pd", objects.pds)], &attributes);
    if (!ah)
        refuse(errno, "no AH");
    int number = take(&objects.ahs);
    objects.ah[number] = ah;
    answer("ok ah=%d\n", number);
}

static void modify(struct ibv_qp *qp, struct ibv_qp_attr *attributes, int mask)
{
    int error = ibv_modify_qp(qp, attributes, mask | IBV_QP_STATE);
    if (error)
        refuse(error, "the QP refuses state %d", attributes->qp_state);
    answer("ok\n");
}

void to_init(const struct request *request)
{
    struct ibv_qp *qp = objects.qp[slot(request, "qp", objects.qps)];
    struct ibv_qp_attr attributes = {
        .qp_state = IBV_QPS_INIT,
        .port_num = PORT,
        .qp_access_flags = (unsigned)access_flags(text_or(request, "access", "-")),
        .qkey = (uint32_t)number_or(request, "qkey", 0),
    };
    int kind = qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
    modify(qp, &attributes, IBV_QP_PKEY_INDEX | IBV_QP_PORT | kind);
}

void to_rtr(const struct request *request)
{
    struct ibv_qp *qp = objects.qp[slot(request, "qp", objects.qps)];
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_RTR};
    int mask = 0;
    if (qp->qp_type != IBV_QPT_UD) {
        attributes.ah_attr = address_vector(request);
        attributes.dest_qp_num = (uint32_t)number(request, "qpn");
        attributes.rq_psn = (uint32_t)number(request, "psn");
        attributes.path_mtu = parse_mtu(number(request, "mtu"));
        mask = IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_PATH_MTU;
    }
    if (qp->qp_type == IBV_QPT_RC) {
        attributes.max_dest_rd_atomic = (uint8_t)number_or(request, "rd_atomic", 4);
        attributes.min_rnr_timer = (uint8_t)number_or(request, "min_rnr", 12);
        mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    }
    modify(qp, &attributes, mask);
}

void to_rts(const struct request *request)
{
    struct ibv_qp *qp = objects.qp[slot(request, "qp", objects.qps)];
    struct ibv_qp_attr attributes = {
        .qp_state = IBV_QPS_RTS,
        .sq_psn = (uint32_t)number(request, "psn"),
        .timeout = (uint8_t)number_or(request, "timeout", 12),
        .retry_cnt = (uint8_t)number_or(request, "retry", 7),
        .rnr_retry = (uint8_t)number_or(request, "rnr", 7),
        .max_rd_atomic = (uint8_t)number_or(request, "rd_atomic", 4),
    };
    int reliable = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    modify(qp, &attributes, IBV_QP_SQ_PSN | (qp->qp_type == IBV_QPT_RC ? reliable : 0));
}

void to_error(const struct request *request)
{
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_ERR};
    modify(objects.qp[slot(request, "qp", objects.qps)], &attributes, 0);
}

void query(const struct request *request)
{
    struct ibv_qp_attr attributes;
    struct ibv_qp_init_attr unused;
    int mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_RQ_PSN;
    int error = ibv_query_qp(objects.qp[slot(request, "qp", objects.qps)], &attributes, mask, &unused);
    if (error)
        refuse(error, "no answer");
    answer("ok state=%d sq_psn=%u rq_psn=%u\n", attributes.qp_state, attributes.sq_psn, attributes.rq_psn);
}

void destroy(const struct request *request)
{
    int error;
    if (text_or(request, "qp", NULL))
        error = ibv_destroy_qp(objects.qp[slot(request, "qp", objects.qps)]);
    else if (text_or(request, "mw", NULL))
        error = ibv_dealloc_mw(objects.mw[slot(request, "mw", objects.mws)]);
    else
        error = ibv_dereg_mr(objects.region[slot(request, "mr", objects.regions)].mr);
    if (error)
        refuse(error, "cannot destroy it");
    answer("ok\n");
}
