/* Every step of an "open a device" sequence fails in turn: each is refused as the scenario says, all that was acquired can be released, and
 * the second attempt succeeds.
 * scenario: open-open-device 0 19
 * scenario: open-query-port 1 5
 * scenario: open-alloc-pd 2 12
 * scenario: open-comp-channel 3 24
 * scenario: open-create-cq 4 12
 * scenario: open-reg-mr 5 12
 * scenario: open-create-qp 6 12
 * scenario: open-modify-qp 7 22
 */
#include "rig.h"

static char memory[4096];

struct opened {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    struct ibv_qp *qp;
};

/* The step that failed, 8 if none did; the errno in `error`. */
static int open_all(struct opened *all, int *error)
{
    int count;
    struct ibv_device **list = ibv_get_device_list(&count);
    CHECK(list && count == 1);
    errno = 0;
    all->context = ibv_open_device(list[0]);
    *error = errno;
    ibv_free_device_list(list);
    if (!all->context)
        return 0;
    struct ibv_port_attr port;
    if ((*error = ibv_query_port(all->context, 1, &port)) != 0)
        return 1;
    CHECK_EQUAL(port.state, IBV_PORT_ACTIVE);
    errno = 0;
    if (!(all->pd = ibv_alloc_pd(all->context)))
        return *error = errno, 2;
    if (!(all->channel = ibv_create_comp_channel(all->context)))
        return *error = errno, 3;
    if (!(all->cq = ibv_create_cq(all->context, 8, NULL, all->channel, 0)))
        return *error = errno, 4;
    if (!(all->mr = ibv_reg_mr(all->pd, memory, sizeof memory, ALL_ACCESS)))
        return *error = errno, 5;
    struct ibv_qp_init_attr attr = {.send_cq = all->cq, .recv_cq = all->cq, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
    if (!(all->qp = ibv_create_qp(all->pd, &attr)))
        return *error = errno, 6;
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL_ACCESS};
    *error = ibv_modify_qp(all->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    return *error ? 7 : 8;
}

static void close_all(struct opened *all)
{
    if (all->qp)
        CHECK_EQUAL(ibv_destroy_qp(all->qp), 0);
    if (all->mr)
        CHECK_EQUAL(ibv_dereg_mr(all->mr), 0);
    if (all->cq)
        CHECK_EQUAL(ibv_destroy_cq(all->cq), 0);
    if (all->channel)
        CHECK_EQUAL(ibv_destroy_comp_channel(all->channel), 0);
    if (all->pd)
        CHECK_EQUAL(ibv_dealloc_pd(all->pd), 0);
    if (all->context)
        CHECK_EQUAL(ibv_close_device(all->context), 0);
    memset(all, 0, sizeof *all);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    struct opened all = {0};
    int error = 0;
    CHECK_EQUAL(open_all(&all, &error), atoi(argv[1]));
    CHECK_EQUAL(error, atoi(argv[2]));
    close_all(&all);
    CHECK_EQUAL(open_all(&all, &error), 8);
    close_all(&all);
    return 0;
}
