/* A program whose own mremap stands in for the C library's, as UCX's does, and knows four arguments only. The library moves registered memory
 * without it: the program has given nothing up, and would find its memory elsewhere.
 * links: shm
 */
#include "rig.h"
#include <pthread.h>
#include <sys/syscall.h>

static int moves;

void *mremap(void *old, size_t old_length, size_t new_length, int flags, ...)
{
    moves++;
    return (void *)syscall(SYS_mremap, old, old_length, new_length, flags, NULL);
}

/* Memory moves in another way in a process with threads. */
static void *sleep_on(void *gate)
{
    pthread_mutex_lock(gate);
    return NULL;
}

int main(void)
{
    enum { BYTES = 1 << 20 };
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_t thread;
    struct end a, b;
    struct ibv_context *context = rig_open();
    rig_pair(&a, &b, context, 4096);
    CHECK(mremap != NULL && pthread_mutex_lock(&gate) == 0);
    for (int threads = 0; threads < 2; threads++) {
        if (threads)
            CHECK_EQUAL(pthread_create(&thread, NULL, sleep_on, &gate), 0);
        char *bytes = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(bytes != MAP_FAILED);
        memset(bytes, 1 + threads, BYTES);
        moves = 0;
        struct ibv_mr *mr = ibv_reg_mr(b.pd, bytes, BYTES, ALL_ACCESS);
        CHECK(mr);
        struct ibv_mr *own = b.mr;
        char *before = b.bytes;
        b.mr = mr;
        b.bytes = bytes;
        memset(a.bytes, 9, 8);
        rig_post(&a, IBV_WR_RDMA_WRITE, 1, 0, 8, &b, 4096);
        CHECK_EQUAL(rig_next(a.send_cq).status, IBV_WC_SUCCESS);
        b.mr = own;
        b.bytes = before;
        CHECK_EQUAL(ibv_dereg_mr(mr), 0);
        CHECK_EQUAL(moves, 0);
        for (int i = 0; i < BYTES; i++)
            CHECK_EQUAL(bytes[i], i >= 4096 && i < 4104 ? 9 : 1 + threads);
        CHECK_EQUAL(munmap(bytes, BYTES), 0);
    }
    pthread_mutex_unlock(&gate);
    CHECK_EQUAL(pthread_join(thread, NULL), 0);
    return 0;
}
