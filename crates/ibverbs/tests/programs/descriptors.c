/* A program closes descriptors of the library's, one or all of them, and files of its own get their numbers: no byte is written to these,
 * none is closed, and calls that need the descriptor say EBADF.
 * arguments: one
 * arguments: all
 */
#include "rig.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <sys/stat.h>

#define FILES 64
static int foreign[FILES], opened;

/* Files of the program's under all free numbers up to this one. The system chooses the numbers: the library opens and closes files meanwhile. */
static void take_numbers(int last)
{
    int file;
    do {
        char name[] = "/tmp/descriptors-XXXXXX";
        file = mkostemp(name, O_APPEND);
        CHECK(file >= 0 && opened < FILES);
        unlink(name);
        foreign[opened++] = file;
    } while (file < last);
}

static void check_foreign(void)
{
    for (int i = 0; i < opened; i++) {
        struct stat stat;
        CHECK_EQUAL(fstat(foreign[i], &stat), 0);
        CHECK(S_ISREG(stat.st_mode));
        CHECK_EQUAL(stat.st_size, 0);
    }
}

int main(int count, char **arguments)
{
    int is_all = count > 1 && !strcmp(arguments[1], "all");
    struct ibv_context *context = rig_open();
    struct end a, b;
    rig_end(&a, context, 65536);
    rig_end(&b, context, 65536);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    CHECK(channel);
    CHECK_EQUAL(ibv_destroy_cq(b.recv_cq), 0);
    CHECK((b.recv_cq = ibv_create_cq(context, 64, NULL, channel, 0)) != NULL);
    struct rdma_event_channel *connections = rdma_create_event_channel();
    struct rdma_cm_id *id;
    CHECK(connections);
    CHECK_EQUAL(rdma_create_id(connections, &id, NULL, RDMA_PS_TCP), 0);
    rig_queue_pair(&a, IBV_QPT_RC);
    rig_queue_pair(&b, IBV_QPT_RC);
    rig_connect(&a, &b);

    int numbers[] = {channel->fd, context->async_fd, connections->fd, context->cmd_fd};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        close(numbers[i]);
    if (is_all) /* as a daemon does */
        for (int fd = 3; fd < 4096; fd++)
            close(fd);
    int last = 0;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i] < 256 && numbers[i] > last)
            last = numbers[i];
    take_numbers(is_all ? last + 24 : last);

    /* Five completions with events, an asynchronous event and one of connections. */
    struct ibv_wc wc;
    for (int i = 0; i < 5; i++) {
        rig_receive(&b, i, 0, 64);
        CHECK_EQUAL(ibv_req_notify_cq(b.recv_cq, 0), 0);
        rig_post(&a, IBV_WR_SEND, i, 0, 8, NULL, 0);
        if (!is_all) {
            CHECK_EQUAL(rig_next(b.recv_cq).wr_id, i);
            CHECK_EQUAL(rig_next(a.send_cq).wr_id, i);
        } else {
            for (int turn = 0; turn < 1000; turn++) {
                ibv_poll_cq(b.recv_cq, 1, &wc);
                ibv_poll_cq(a.send_cq, 1, &wc);
            }
        }
    }
    struct sockaddr_in to = {.sin_family = AF_INET};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000);
    struct ibv_qp_attr failed = {.qp_state = IBV_QPS_ERR};
    ibv_modify_qp(b.qp, &failed, IBV_QP_STATE);
    check_foreign();

    /* Waiting needs the descriptor, as `read` does. One event is there already. */
    struct ibv_cq *cq;
    void *user;
    int result;
    do
        result = ibv_get_cq_event(channel, &cq, &user);
    while (result == 0);
    CHECK_EQUAL(errno, EBADF);
    struct ibv_async_event event;
    while ((result = ibv_get_async_event(context, &event)) == 0)
        ibv_ack_async_event(&event);
    CHECK_EQUAL(errno, EBADF);
    if (!is_all) {
        ibv_ack_cq_events(b.recv_cq, 5);
        /* What is destroyed closes no file of the program's. */
        CHECK_EQUAL(ibv_destroy_qp(b.qp), 0);
        CHECK_EQUAL(ibv_destroy_cq(b.recv_cq), 0);
        CHECK_EQUAL(ibv_destroy_comp_channel(channel), 0);
        CHECK_EQUAL(rdma_destroy_id(id), 0);
        rdma_destroy_event_channel(connections);
        CHECK_EQUAL(ibv_destroy_qp(a.qp), 0);
        CHECK_EQUAL(ibv_destroy_cq(a.send_cq), 0);
        CHECK_EQUAL(ibv_destroy_cq(a.recv_cq), 0);
        CHECK_EQUAL(ibv_destroy_cq(b.send_cq), 0);
        CHECK_EQUAL(ibv_dereg_mr(a.mr), 0);
        CHECK_EQUAL(ibv_dereg_mr(b.mr), 0);
        CHECK_EQUAL(ibv_dealloc_pd(a.pd), 0);
        CHECK_EQUAL(ibv_dealloc_pd(b.pd), 0);
        CHECK_EQUAL(ibv_close_device(context), 0);
    }
    check_foreign();
    _exit(0);
}
