/* What is offered beside the standard's operations: atomic WRITEs, and the time of completions.
 * arguments: plain
 * arguments: extended
 */
#include "completions.h"

#define HOUR_NS (3600 * 1000000000ull)

/* An atomic WRITE is one aligned word on a reliable service. It completes as a WRITE, and so the device does not name it among what it can do. */
static void atomic_writes(struct ibv_pd *pd, uint64_t id)
{
    enum { ATOMIC_WRITE = 40 };
    struct ibv_device_attr_ex device;
    memset(&device, 0xA5, sizeof device);
    CHECK_EQUAL(ibv_query_device_ex(context, NULL, &device), 0);
    CHECK_EQUAL(device.device_cap_flags_ex >> ATOMIC_WRITE & 1, 0);
    struct end a, b;
    struct ibv_sge sge;
    open_pair(&a, &b, IBV_QPT_RC, pd);
    uint64_t *to = (uint64_t *)(b.bytes + 4096), word = 0x8877665544332211;
    to[-1] = to[1] = 0x0101010101010101;
    struct ibv_send_wr wr = request(&sge, id, IBV_WR_ATOMIC_WRITE, &a, 8), *bad;
    memcpy(a.bytes + 1024, &word, 8);
    wr.wr.rdma.remote_addr = (uintptr_t)to;
    wr.wr.rdma.rkey = b.mr->rkey;
    post(&a, &wr);
    check_sent(next(a.send_cq), id, IBV_WC_RDMA_WRITE, &a);
    CHECK(to[0] == word && to[-1] == 0x0101010101010101 && to[1] == 0x0101010101010101);

    /* Neither another length nor another place. */
    sge.length = 4;
    CHECK(ibv_post_send(a.qp, &wr, &bad) != 0 && bad == &wr);
    sge.length = 8;
    wr.wr.rdma.remote_addr = (uintptr_t)to + 4;
    CHECK(ibv_post_send(a.qp, &wr, &bad) != 0 && bad == &wr);
    CHECK(to[0] == word && to[1] == 0x0101010101010101);

    /* The key is looked at as any WRITE's. */
    wr = request(&sge, id + 1, IBV_WR_ATOMIC_WRITE, &a, 8);
    wr.wr.rdma.remote_addr = (uintptr_t)to;
    wr.wr.rdma.rkey = b.mr->rkey ^ 0x10;
    post(&a, &wr);
    struct ibv_wc wc = next(a.send_cq);
    CHECK_EQUAL(wc.wr_id, id + 1);
    CHECK_EQUAL(wc.status, IBV_WC_REM_ACCESS_ERR);
    CHECK_EQUAL(to[0], word);
    CHECK_EQUAL(ibv_destroy_qp(a.qp), 0);
    CHECK_EQUAL(ibv_destroy_qp(b.qp), 0);
}

static uint64_t now_ns(clockid_t clock)
{
    struct timespec now;
    CHECK_EQUAL(clock_gettime(clock, &now), 0);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}

/* A completion's time is of the clock that the device shows, not before its request and not after its reading; that of the wall is another clock's. */
static void timestamps(struct ibv_pd *pd, uint64_t id)
{
    struct ibv_device_attr_ex device;
    memset(&device, 0xA5, sizeof device);
    CHECK_EQUAL(ibv_query_device_ex(context, NULL, &device), 0);
    CHECK_EQUAL(device.completion_timestamp_mask, UINT64_MAX);
    CHECK_EQUAL(device.hca_core_clock, 1000000); /* kHz, so that a stamp counts nanoseconds */
    struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
    CHECK_EQUAL(ibv_query_rt_values_ex(context, &values), 0);
    CHECK_EQUAL(values.comp_mask, IBV_VALUES_MASK_RAW_CLOCK);
    values.comp_mask = 1u << 7;
    CHECK(ibv_query_rt_values_ex(context, &values) != 0);

    struct end a, b;
    struct ibv_sge sge;
    open_pair(&a, &b, IBV_QPT_RC, pd);
    struct ibv_cq_init_attr_ex attr = {.cqe = 20, .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
        | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK};
    struct ibv_cq_ex *ex = ibv_create_cq_ex(context, &attr);
    CHECK(ex);
    CHECK_EQUAL(ibv_destroy_qp(a.qp), 0);
    CHECK_EQUAL(ibv_destroy_cq(a.send_cq), 0);
    a.send_cq = ibv_cq_ex_to_cq(ex);
    rig_queue_pair(&a, IBV_QPT_RC);
    CHECK_EQUAL(ibv_destroy_qp(b.qp), 0);
    rig_queue_pair(&b, IBV_QPT_RC);
    rig_connect(&a, &b);
    uint64_t last = 0;
    for (int i = 0; i < 5; i++) {
        struct ibv_send_wr wr = request(&sge, id + i, IBV_WR_RDMA_WRITE, &a, 64), *bad;
        wr.wr.rdma.remote_addr = (uintptr_t)b.bytes;
        wr.wr.rdma.rkey = b.mr->rkey;
        values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
        CHECK_EQUAL(ibv_query_rt_values_ex(context, &values), 0);
        uint64_t before = values.raw_clock.tv_sec * 1000000000ull + values.raw_clock.tv_nsec, wall_before = now_ns(CLOCK_REALTIME);
        CHECK_EQUAL(ibv_post_send(a.qp, &wr, &bad), 0);
        struct ibv_poll_cq_attr none = {0};
        int result;
        while ((result = ibv_start_poll(ex, &none)) == ENOENT)
            ;
        CHECK_EQUAL(result, 0);
        CHECK(ex->wr_id == id + i && ex->status == IBV_WC_SUCCESS);
        uint64_t stamp = ibv_wc_read_completion_ts(ex), wall = ibv_wc_read_completion_wallclock_ns(ex);
        CHECK_EQUAL(ibv_wc_read_completion_ts(ex), stamp);
        ibv_end_poll(ex);
        values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
        CHECK_EQUAL(ibv_query_rt_values_ex(context, &values), 0);
        uint64_t after = values.raw_clock.tv_sec * 1000000000ull + values.raw_clock.tv_nsec;
        CHECK(before <= stamp && stamp <= after && stamp > last);
        /* The clocks are read one after the other, by a thread that may lose its core in between: an hour tells them apart as well. */
        CHECK(wall + HOUR_NS >= wall_before && wall <= now_ns(CLOCK_REALTIME) + HOUR_NS);
        last = stamp;
    }
}

int main(int count, char **arguments)
{
    struct ibv_pd *pd = begin_program(count, arguments);
    atomic_writes(pd, 100);
    timestamps(pd, 200);
    return 0;
}
