/* Posts and registrations that a scenario refuses: a refused post has posted nothing, and what was refused can be done later.
 * scenario: post-refused posts
 * scenario: of-one-object object
 * scenario: memory-limit memory
 */
#include "rig.h"

enum { MESSAGES = 200 };

/* Each WRITE is posted until it is taken; none is lost, none is doubled. */
static void posts(void)
{
    struct end a, b;
    struct ibv_context *context = rig_open();
    rig_pair(&a, &b, context, 4096);
    int refused = 0;
    for (int i = 0; i < MESSAGES; i++) {
        a.bytes[0] = (char)i;
        struct ibv_sge sge = {(uintptr_t)a.bytes, 1, a.mr->lkey};
        struct ibv_send_wr request = {.wr_id = i, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
            .send_flags = IBV_SEND_SIGNALED, .wr.rdma = {(uintptr_t)b.bytes + i, b.mr->rkey}}, *bad = NULL;
        int result;
        while ((result = ibv_post_send(a.qp, &request, &bad)) != 0) {
            CHECK_EQUAL(result, ENOMEM);
            CHECK(bad == &request);
            refused++;
        }
        struct ibv_wc wc = rig_next(a.send_cq);
        CHECK_EQUAL(wc.status, IBV_WC_SUCCESS);
        CHECK_EQUAL(wc.wr_id, i);
    }
    for (int i = 0; i < MESSAGES; i++)
        CHECK_EQUAL(b.bytes[i], (char)i);
    CHECK(refused > 5 && refused < 60);
}

/* The second queue pair's second and third post fail; the first's never do. */
static void object(void)
{
    struct end a, b;
    struct ibv_context *context = rig_open();
    rig_pair(&a, &b, context, 4096);
    const int expected[] = {0, EAGAIN, EAGAIN, 0};
    for (int i = 0; i < 4; i++) {
        struct ibv_send_wr request = {.wr_id = i, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
            .wr.rdma = {(uintptr_t)b.bytes, b.mr->rkey}}, back = request, *bad;
        back.wr.rdma.remote_addr = (uintptr_t)a.bytes;
        back.wr.rdma.rkey = a.mr->rkey;
        CHECK_EQUAL(ibv_post_send(a.qp, &request, &bad), 0);
        CHECK_EQUAL(ibv_post_send(b.qp, &back, &bad), expected[i]);
        CHECK_EQUAL(rig_next(a.send_cq).status, IBV_WC_SUCCESS);
        if (!expected[i])
            CHECK_EQUAL(rig_next(b.send_cq).status, IBV_WC_SUCCESS);
    }
}

static void memory(void)
{
    static char bytes[2 << 20];
    struct ibv_context *context = rig_open();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_mr *mrs[4], *mr;
    /* Beyond the bytes. */
    errno = 0;
    CHECK(!ibv_reg_mr(pd, bytes, (1 << 20) + 1, ALL_ACCESS));
    CHECK_EQUAL(errno, ENOMEM);
    CHECK((mr = ibv_reg_mr(pd, bytes, 1 << 20, ALL_ACCESS)) != NULL);
    CHECK(!ibv_reg_mr(pd, bytes, 1, ALL_ACCESS));
    CHECK_EQUAL(ibv_dereg_mr(mr), 0);
    /* Beyond the regions; one that fails for another reason takes no part of the limit. */
    for (int i = 0; i < 4; i++) {
        CHECK(!ibv_reg_mr(pd, NULL, 4096, ALL_ACCESS));
        CHECK((mrs[i] = ibv_reg_mr(pd, bytes, 4096, ALL_ACCESS)) != NULL);
    }
    CHECK(!ibv_reg_mr(pd, bytes, 4096, ALL_ACCESS));
    /* A region that changes is measured anew: it may not grow beyond the limit, and stays as it is if it would. */
    CHECK(ibv_rereg_mr(mrs[0], IBV_REREG_MR_CHANGE_TRANSLATION, pd, bytes, 2 << 20, ALL_ACCESS) != 0);
    CHECK_EQUAL(ibv_rereg_mr(mrs[0], IBV_REREG_MR_CHANGE_TRANSLATION, pd, bytes, (1 << 20) - 3 * 4096, ALL_ACCESS), 0);
    CHECK_EQUAL(ibv_dereg_mr(mrs[1]), 0);
    CHECK(!ibv_reg_mr(pd, bytes, 4097, ALL_ACCESS));
    CHECK((mrs[1] = ibv_reg_mr(pd, bytes, 4096, ALL_ACCESS)) != NULL);
    for (int i = 0; i < 4; i++)
        CHECK_EQUAL(ibv_dereg_mr(mrs[i]), 0);
    CHECK((mr = ibv_reg_mr(pd, bytes, 1 << 20, ALL_ACCESS)) != NULL);
    CHECK_EQUAL(ibv_dereg_mr(mr), 0);
    CHECK_EQUAL(ibv_dealloc_pd(pd), 0);
    CHECK_EQUAL(ibv_close_device(context), 0);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    if (!strcmp(argv[1], "posts"))
        posts();
    else if (!strcmp(argv[1], "object"))
        object();
    else
        memory();
    return 0;
}
