/* `highwire fault` lets a port go down and come up while the program runs, and tells what is wrong with an order.
 * scenario: controlled
 */
#define RIG_TIMEOUT 16
#include "rig.h"

static struct ibv_context *context;

/* The status of a `highwire fault …` for this process. */
static int order(const char *words)
{
    char line[500];
    const char *highwire = getenv("HIGHWIRE_BROKER");
    CHECK(highwire);
    snprintf(line, sizeof line, "env -u LD_PRELOAD %s fault %s --pid %d", highwire, words, getpid());
    int status = system(line);
    CHECK(status != -1);
    return WEXITSTATUS(status);
}

int main(void)
{
    struct end a, b;
    context = rig_open();
    rig_pair(&a, &b, context, 4096);
    rig_post(&a, IBV_WR_RDMA_WRITE, 1, 0, 8, &b, 0);
    CHECK_EQUAL(rig_next(a.send_cq).status, IBV_WC_SUCCESS);
    CHECK_EQUAL(order("event port-dwon"), 2);
    CHECK_EQUAL(order("event port-down --device hw7"), 2);
    CHECK_EQUAL(order("event port-down"), 0);
    CHECK_EQUAL(rig_event(context).event_type, IBV_EVENT_PORT_ERR);
    rig_post(&a, IBV_WR_RDMA_WRITE, 2, 0, 8, &b, 0);
    CHECK_EQUAL(rig_next(a.send_cq).status, IBV_WC_RETRY_EXC_ERR);
    CHECK_EQUAL(order("event port-up"), 0);
    CHECK_EQUAL(rig_event(context).event_type, IBV_EVENT_PORT_ACTIVE);
    rig_connect_again(&a, &b);
    rig_post(&a, IBV_WR_RDMA_WRITE, 3, 0, 8, &b, 0);
    CHECK_EQUAL(rig_next(a.send_cq).status, IBV_WC_SUCCESS);
    return 0;
}
