/* Registering and deregistering at changing places leaves mappings, descriptors and files as they were, and private memory
 * that is private again.
 * arguments: any 0 1500
 * arguments: any 1 1500
 * arguments: faults 8 700
 * arguments: thread-faults 8 700
 * arguments: protection 8 700 */
#include "rig.h"
#include <dirent.h>
#include <ftw.h>
#include <pthread.h>
#include <sys/stat.h>

#define POOL_PAGES 8192L

static void *turn(void *stop)
{
    while (!__atomic_load_n((int *)stop, __ATOMIC_RELAXED))
        usleep(100);
    return NULL;
}

/* Pages: of the registry's files, and of shared memory that this process has mapped, whether or not its file has a name. */
struct trace {
    long mappings, descriptors, blocks;
};

static long pages_of_files;

static int add(const char *path, const struct stat *stat, int kind, struct FTW *place)
{
    (void)path, (void)place;
    pages_of_files += kind == FTW_F ? stat->st_blocks / 8 : 0;
    return 0;
}

static long pages_mapped(void)
{
    char line[256];
    long kilobytes = -1;
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status);
    while (fgets(line, sizeof line, status) && sscanf(line, "RssShmem: %ld", &kilobytes) != 1)
        ;
    fclose(status);
    CHECK(kilobytes >= 0);
    return kilobytes / 4;
}

static struct trace look(void)
{
    struct trace trace = {0};
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps);
    for (int c; (c = getc(maps)) != EOF;)
        trace.mappings += c == '\n';
    fclose(maps);
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder);
    while (readdir(folder))
        trace.descriptors++;
    closedir(folder);
    const char *registry = getenv("HIGHWIRE_SHM_DIR");
    CHECK(registry);
    pages_of_files = 0;
    CHECK_EQUAL(nftw(registry, add, 16, FTW_PHYS), 0);
    trace.blocks = pages_of_files + pages_mapped();
    return trace;
}

int main(int count, char **arguments)
{
    CHECK_EQUAL(count, 4);
    if (strcmp(arguments[1], "any") != 0)
        setenv("HIGHWIRE_REMAP", arguments[1], 1);
    int threads = atoi(arguments[2]), rounds = atoi(arguments[3]), stop = 0;
    struct ibv_context *context = rig_open();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    CHECK(pd);
    pthread_t thread[64];
    for (int i = 0; i < threads; i++)
        CHECK_EQUAL(pthread_create(&thread[i], NULL, turn, &stop), 0);
    char *pool = mmap(NULL, POOL_PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pool != MAP_FAILED);
    memset(pool, 3, POOL_PAGES * 4096);
    struct trace before = {0};
    unsigned seed = 1;
    for (int round = 0; round < rounds; round++) {
        struct ibv_mr *regions[3];
        for (int i = 0; i < 3; i++) {
            size_t offset = rand_r(&seed) % (POOL_PAGES - 64) * 4096 + rand_r(&seed) % 4096;
            regions[i] = ibv_reg_mr(pd, pool + offset, 1 + rand_r(&seed) % (20 * 4096), ALL_ACCESS);
            CHECK(regions[i]);
        }
        for (int i = 0; i < 3; i++)
            CHECK_EQUAL(ibv_dereg_mr(regions[(i + round) % 3]), 0);
        if (round == 100)
            before = look();
        if (round % 10000 == 9999) {
            struct trace now = look();
            printf("%d: %ld mappings, %ld descriptors, %ld blocks\n", round + 1, now.mappings, now.descriptors, now.blocks);
            fflush(stdout);
        }
    }
    struct trace after = look();
    printf("before: %ld mappings, %ld descriptors, %ld blocks\n", before.mappings, before.descriptors, before.blocks);
    printf("after:  %ld mappings, %ld descriptors, %ld blocks\n", after.mappings, after.descriptors, after.blocks);
    CHECK(after.mappings <= before.mappings + 8);
    CHECK_EQUAL(after.descriptors, before.descriptors);
    CHECK(after.blocks <= before.blocks + 16);
    for (long page = 0; page < POOL_PAGES; page++)
        CHECK_EQUAL(pool[page * 4096 + page % 4096], 3);

    /* A thread comes while memory is registered; what was registered is ordinary memory afterwards. */
    size_t length = 1 << 20;
    char *bytes = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(bytes != MAP_FAILED);
    struct ibv_mr *mr = ibv_reg_mr(pd, bytes, length, ALL_ACCESS);
    CHECK(mr);
    memset(bytes, 'A', length);
    pthread_t late;
    CHECK_EQUAL(pthread_create(&late, NULL, turn, &stop), 0);
    CHECK_EQUAL(ibv_dereg_mr(mr), 0);
    CHECK_EQUAL(bytes[length - 1], 'A');
    memset(bytes, 'B', length);
    CHECK_EQUAL(madvise(bytes, length, MADV_DONTNEED), 0);
    for (size_t i = 0; i < length; i++)
        CHECK_EQUAL(bytes[i], 0);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    pthread_join(late, NULL);
    return 0;
}
