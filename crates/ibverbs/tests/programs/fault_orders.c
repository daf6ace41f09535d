/* `highwire fault` lets things happen to devices and adds rules while the program runs, and tells what is wrong with an order.
 * scenario: controlled
 */
#define RIG_TIMEOUT 16
#include "rig.h"

static struct ibv_context *context;

/* The status of a `highwire fault …`. */
static int fault(const char *words, int pid)
{
    char line[500], only[40] = "";
    const char *highwire = getenv("HIGHWIRE_BROKER");
    CHECK(highwire);
    if (pid)
        snprintf(only, sizeof only, "--pid %d", pid);
    snprintf(line, sizeof line, "env -u LD_PRELOAD %s fault %s %s", highwire, words, only);
    int status = system(line);
    CHECK(status != -1);
    return WEXITSTATUS(status);
}

/* An order for this process. */
static int order(const char *words) { return fault(words, getpid()); }

/* The status of `check` and of `add` with a file of these rules. */
static void add(const char *rules, int checks, int adds)
{
    char path[64], words[100];
    snprintf(path, sizeof path, "/tmp/highwire-rules-%d.toml", (int)getpid());
    FILE *file = fopen(path, "w");
    CHECK(file && fputs(rules, file) >= 0 && fclose(file) == 0);
    snprintf(words, sizeof words, "check %s", path);
    CHECK_EQUAL(fault(words, 0), checks);
    snprintf(words, sizeof words, "add %s", path);
    CHECK_EQUAL(order(words), adds);
    CHECK_EQUAL(unlink(path), 0);
}

/* Rules that come while the program runs count from then; those that are refused leave nothing behind. */
static void rules(struct end *a, struct end *b)
{
    add("[[call]]\nfunction = \"ibv_alloc_pd\"\nerrno = \"ENOMEN\"\n", 2, 2);
    add("[[device]]\nname = \"mlx5_7\"\n", 0, 2);
    add("[[call]]\nfunction = \"ibv_alloc_pd\"\nerrno = \"ENOMEM\"\ndevice = \"hw1\"\n", 2, 2);
    CHECK_EQUAL(order("add /tmp/there-is-no-such-file.toml"), 1);
    CHECK_EQUAL(fault("event port-down", 1), 1);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    CHECK(pd);
    add("[[call]]\nfunction = \"ibv_alloc_pd\"\nerrno = \"ENOMEM\"\nnth = 2\n"
        "[[completion]]\noperation = \"write\"\nnth = 2\nmissing = true\n"
        "[[registration]]\nregions = 1\n"
        "[[event]]\ndo = \"gid-change\"\ncall = \"ibv_query_pkey\"\n", 0, 0);
    CHECK_EQUAL(ibv_dealloc_pd(pd), 0);
    CHECK((pd = ibv_alloc_pd(context)) != NULL);
    errno = 0;
    CHECK(!ibv_alloc_pd(context));
    CHECK_EQUAL(errno, ENOMEM);
    struct ibv_mr *mr = ibv_reg_mr(pd, a->bytes, 64, ALL_ACCESS);
    CHECK(mr && !ibv_reg_mr(pd, a->bytes, 64, ALL_ACCESS));
    CHECK_EQUAL(ibv_dereg_mr(mr), 0);
    CHECK_EQUAL(ibv_dealloc_pd(pd), 0);
    for (int id = 11; id <= 13; id++)
        rig_post(a, IBV_WR_RDMA_WRITE, id, 0, 8, b, 0);
    CHECK_EQUAL(rig_next(a->send_cq).wr_id, 11);
    CHECK_EQUAL(rig_next(a->send_cq).wr_id, 13);
    uint16_t pkey;
    CHECK_EQUAL(ibv_query_pkey(context, 1, 0, &pkey), 0);
    CHECK_EQUAL(rig_event(context).event_type, IBV_EVENT_GID_CHANGE);
    /* Packets, too: the port of this device stays active, and nothing comes back. */
    add("[[path]]\npattern = \"acknowledgement\"\nloss = \"100%\"\n", 0, 0);
    rig_post(a, IBV_WR_RDMA_WRITE, 14, 0, 8, b, 0);
    CHECK_EQUAL(rig_next(a->send_cq).status, IBV_WC_RETRY_EXC_ERR);
}

/* The device leaves and comes back by orders. */
static void removal(void)
{
    int count = -1;
    CHECK_EQUAL(order("event device-removal"), 0);
    CHECK_EQUAL(rig_event(context).event_type, IBV_EVENT_DEVICE_FATAL);
    ibv_free_device_list(ibv_get_device_list(&count));
    CHECK_EQUAL(count, 0);
    CHECK_EQUAL(order("event device-return"), 0);
    struct ibv_context *again = rig_open();
    struct ibv_port_attr port;
    CHECK_EQUAL(ibv_query_port(context, 1, &port), EIO);
    CHECK_EQUAL(ibv_query_port(again, 1, &port), 0);
    CHECK_EQUAL(port.state, IBV_PORT_ACTIVE);
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
    CHECK_EQUAL(order("event port-down --port 2"), 2);
    CHECK_EQUAL(order("event port-down"), 0);
    CHECK_EQUAL(rig_event(context).event_type, IBV_EVENT_PORT_ERR);
    rig_post(&a, IBV_WR_RDMA_WRITE, 2, 0, 8, &b, 0);
    CHECK_EQUAL(rig_next(a.send_cq).status, IBV_WC_RETRY_EXC_ERR);
    CHECK_EQUAL(order("event port-up"), 0);
    CHECK_EQUAL(rig_event(context).event_type, IBV_EVENT_PORT_ACTIVE);
    rig_connect_again(&a, &b);
    rig_post(&a, IBV_WR_RDMA_WRITE, 3, 0, 8, &b, 0);
    CHECK_EQUAL(rig_next(a.send_cq).status, IBV_WC_SUCCESS);
    rules(&a, &b);
    removal();
    return 0;
}
