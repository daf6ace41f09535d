/* Programs clean up in exit handlers and in destructors of libraries, when what belongs to the main thread is gone already. Calls do there what they
 * do elsewhere, with HIGHWIRE_LOG as well: refused ones say why, and waits end.
 */
#include "rig.h"
#include <rdma/rdma_cma.h>

static struct ibv_context *context;

static void use_everything(const char *when)
{
    struct end a, b;
    struct ibv_wc wc;
    struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = RAI_PASSIVE}, *info;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
    rig_pair(&a, &b, context, 4096);
    rig_receive(&b, 1, 0, 64);
    rig_post(&a, IBV_WR_SEND, 2, 64, 64, NULL, 0);
    wc = rig_next(b.recv_cq);
    CHECK_EQUAL(wc.status, IBV_WC_SUCCESS);
    wc = rig_next(a.send_cq);
    CHECK_EQUAL(wc.status, IBV_WC_SUCCESS);
    rig_reset(a.qp);
    CHECK(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE) != 0);
    rig_close(&a);
    rig_close(&b);
    /* An event that is there, and a wait that ends. */
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    CHECK(channel);
    struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, channel, 0), *of;
    CHECK(cq);
    void *word;
    CHECK_EQUAL(fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
    CHECK_EQUAL(ibv_get_cq_event(channel, &of, &word), -1);
    CHECK_EQUAL(errno, EAGAIN);
    CHECK_EQUAL(ibv_destroy_cq(cq), 0);
    CHECK_EQUAL(ibv_destroy_comp_channel(channel), 0);
    CHECK_EQUAL(rdma_getaddrinfo(NULL, "7471", &hints, &info), 0);
    rdma_freeaddrinfo(info);
    printf("%s: all is well\n", when);
    fflush(stdout);
}

static void at_exit(void) { use_everything("an exit handler"); }

__attribute__((destructor)) static void at_the_very_end(void)
{
    use_everything("a destructor");
    CHECK_EQUAL(ibv_close_device(context), 0);
}

int main(void)
{
    CHECK_EQUAL(setenv("HIGHWIRE_LOG", "1", 1), 0);
    context = rig_open();
    CHECK_EQUAL(atexit(at_exit), 0);
    use_everything("main");
    return 0;
}
