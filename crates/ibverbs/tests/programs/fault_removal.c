/* A card that is taken out while the program uses it, and comes back. The old context stays dead, and what is left of it does no harm to the
 * new one.
 * scenario: nic-vanishes keeps
 * scenario: nic-vanishes closes
 */
#include "rig.h"
#include <poll.h>

static struct ibv_device *first, *second;
static char bdf[64];

/* The devices that are in the list now; the first two by their order. */
static int list_devices(struct ibv_device *devices[2])
{
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    CHECK(list);
    for (int i = 0; i < count && i < 2; i++)
        devices[i] = list[i];
    CHECK(!list[count]);
    ibv_free_device_list(list);
    return count;
}

/* Whether the files of the first card are there: all of them or none. */
static int files_are_there(void)
{
    const char *paths[] = {"/sys/class/infiniband/mlx5_0", "/sys/class/infiniband/mlx5_0/ports/1/state",
        "/sys/class/infiniband_verbs/uverbs0/ibdev", "/sys/class/infiniband_mad/umad0/ibdev", "/dev/infiniband/uverbs0",
        "/dev/infiniband/umad0", bdf};
    int found = 0, all = sizeof paths / sizeof paths[0];
    for (int i = 0; i < all; i++)
        found += access(paths[i], F_OK) == 0;
    CHECK(found == 0 || found == all);
    /* The other card stays. */
    rig_check_file("/sys/class/infiniband/mlx5_1/ports/1/state", "4: ACTIVE");
    rig_check_file("/sys/class/infiniband_verbs/uverbs1/ibdev", "mlx5_1");
    return found != 0;
}

/* Every call about the old context fails; what waits for events says so. */
static void check_dead(struct end *a, struct ibv_comp_channel *channel)
{
    struct ibv_port_attr port;
    CHECK_EQUAL(ibv_query_port(a->context, 1, &port), EIO);
    errno = 0;
    CHECK(!ibv_alloc_pd(a->context));
    CHECK_EQUAL(errno, EIO);
    errno = 0;
    CHECK(!ibv_create_cq(a->context, 8, NULL, NULL, 0));
    CHECK_EQUAL(errno, EIO);
    CHECK(!ibv_reg_mr(a->pd, a->bytes, 64, ALL_ACCESS));
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    CHECK_EQUAL(ibv_modify_qp(a->qp, &attr, IBV_QP_STATE), EIO);
    struct ibv_recv_wr request = {.wr_id = 9}, *bad;
    CHECK_EQUAL(ibv_post_recv(a->qp, &request, &bad), 0);
    CHECK_EQUAL(ibv_req_notify_cq(a->send_cq, 0), 0);
    struct ibv_wc wc;
    CHECK_EQUAL(ibv_poll_cq(a->send_cq, 1, &wc), 0);
    CHECK_EQUAL(ibv_poll_cq(a->recv_cq, 1, &wc), 0);
    struct ibv_async_event event;
    CHECK_EQUAL(ibv_get_async_event(a->context, &event), -1);
    CHECK_EQUAL(errno, EIO);
    for (int i = 0; i < 2; i++) {
        struct pollfd fd = {.fd = channel->fd, .events = POLLIN};
        struct ibv_cq *cq;
        void *context;
        CHECK_EQUAL(poll(&fd, 1, -1), 1);
        CHECK_EQUAL(ibv_get_cq_event(channel, &cq, &context), -1);
        CHECK_EQUAL(errno, EIO);
    }
}

static void post_write(struct end *from, struct end *to, int id)
{
    struct ibv_sge sge = {(uintptr_t)from->bytes, 8, from->mr->lkey};
    struct ibv_send_wr request = {.wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED, .wr.rdma = {(uintptr_t)to->bytes, to->mr->rkey}}, *bad;
    CHECK_EQUAL(ibv_post_send(from->qp, &request, &bad), 0);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    int closes = !strcmp(argv[1], "closes");
    struct ibv_device *devices[2];
    CHECK_EQUAL(list_devices(devices), 2);
    first = devices[0];
    second = devices[1];
    uint64_t guid = ibv_get_device_guid(first);
    char real[4096];
    CHECK(realpath("/sys/class/infiniband/mlx5_0/device", real));
    snprintf(bdf, sizeof bdf, "/sys/bus/pci/devices/%s", strrchr(real, '/') + 1);
    CHECK(files_are_there());

    struct ibv_context *old = ibv_open_device(first), *other = ibv_open_device(second);
    CHECK(old && other);
    struct end a, b, near, far;
    rig_pair(&a, &b, old, 4096);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(old);
    CHECK(channel);
    /* From the second card to the first, which will be gone. */
    rig_end(&near, other, 4096);
    rig_end(&far, old, 4096);
    rig_queue_pair(&near, IBV_QPT_RC);
    rig_queue_pair(&far, IBV_QPT_RC);
    rig_connect(&near, &far);
    rig_receive(&b, 70, 0, 8);
    post_write(&a, &b, 1);
    CHECK_EQUAL(rig_next(a.send_cq).status, IBV_WC_SUCCESS);
    post_write(&near, &far, 2);
    CHECK_EQUAL(rig_next(near.send_cq).status, IBV_WC_SUCCESS);

    /* The card goes at the third post, which is taken and never carried out. */
    memset(a.bytes, 6, 8);
    post_write(&a, &b, 3);
    CHECK_EQUAL(rig_event(old).event_type, IBV_EVENT_DEVICE_FATAL);
    check_dead(&a, channel);
    CHECK_EQUAL(b.bytes[0], 0);
    CHECK_EQUAL(list_devices(devices), 1);
    CHECK(devices[0] == second);
    CHECK(!files_are_there());
    errno = 0;
    CHECK(!ibv_open_device(first));
    CHECK_EQUAL(errno, ENODEV);
    /* The peer has no event, only a request that nobody answers. */
    memset(near.bytes, 7, 8);
    post_write(&near, &far, 4);
    CHECK_EQUAL(rig_next(near.send_cq).status, IBV_WC_RETRY_EXC_ERR);
    CHECK_EQUAL(far.bytes[0], 0);
    if (closes) {
        rig_close(&a);
        rig_close(&b);
        rig_close(&far);
        CHECK_EQUAL(ibv_destroy_comp_channel(channel), 0);
        CHECK_EQUAL(ibv_close_device(old), 0);
    }

    /* The scenario lets it come back at this call. It is a new device with the same GUID, behind the others. */
    struct ibv_device_attr attr;
    CHECK_EQUAL(ibv_query_device(other, &attr), 0);
    CHECK_EQUAL(list_devices(devices), 2);
    CHECK(devices[0] == second && devices[1] != first);
    CHECK(!strcmp(ibv_get_device_name(devices[1]), "mlx5_0"));
    CHECK_EQUAL(ibv_get_device_guid(devices[1]), guid);
    CHECK(files_are_there());
    rig_check_file("/sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE");
    errno = 0;
    CHECK(!ibv_open_device(first));
    CHECK_EQUAL(errno, ENODEV);
    struct ibv_context *new = ibv_open_device(devices[1]);
    CHECK(new);
    struct end c, d;
    rig_pair(&c, &d, new, 4096);
    memset(c.bytes, 5, 8);
    post_write(&c, &d, 5);
    CHECK_EQUAL(rig_next(c.send_cq).status, IBV_WC_SUCCESS);
    CHECK_EQUAL(d.bytes[7], 5);
    if (!closes) {
        check_dead(&a, channel);
        /* A peer of before that goes on sending is not answered, and what it sends does not land. */
        rig_reset(near.qp);
        union ibv_gid gid;
        CHECK_EQUAL(ibv_query_gid(new, 1, 0, &gid), 0);
        rig_init(near.qp);
        rig_to(near.qp, far.qp->qp_num, gid, 0x111111, 0x222222);
        post_write(&near, &far, 6);
        CHECK_EQUAL(rig_next(near.send_cq).status, IBV_WC_RETRY_EXC_ERR);
        CHECK_EQUAL(far.bytes[0], 0);
        rig_close(&a);
        rig_close(&b);
        rig_close(&far);
        CHECK_EQUAL(ibv_destroy_comp_channel(channel), 0);
        CHECK_EQUAL(ibv_close_device(old), 0);
    }
    struct pollfd fd = {.fd = new->async_fd, .events = POLLIN};
    CHECK_EQUAL(poll(&fd, 1, 0), 0);
    post_write(&c, &d, 7);
    CHECK_EQUAL(rig_next(c.send_cq).status, IBV_WC_SUCCESS);
    return 0;
}
