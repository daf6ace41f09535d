/* Calls every function that the object takes over, on a path of the device, on one that is absent, and on one of the
 * machine; from threads at once, and in the child of a fork. Prints one line when all of them answered as they should. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define CLASS "/sys/class/infiniband"
#define STATE CLASS "/hw0/ports/1/state"
#define NODE "/dev/infiniband/rdma_cm"

#define CHECK(condition)                                                                                                \
    do {                                                                                                                \
        if (!(condition)) {                                                                                             \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, strerror(errno));                                \
            exit(1);                                                                                                    \
        }                                                                                                               \
    } while (0)

/* Programs that were built with an older C library call these. */
int __xstat(int version, const char *path, struct stat *answer);
int __lxstat(int version, const char *path, struct stat *answer);
int __fxstatat(int version, int folder, const char *path, struct stat *answer, int flags);

static void reads_state(int file)
{
    char text[64];
    CHECK(file >= 0);
    ssize_t size = read(file, text, sizeof text);
    CHECK(size > 0 && !strncmp(text, "4: ACTIVE\n", size));
    close(file);
}

static int is_device(int result, const struct stat *answer)
{
    return result == 0 && S_ISCHR(answer->st_mode);
}

static void opens(int flags)
{
    reads_state(open(STATE, flags));
    reads_state(openat(AT_FDCWD, STATE, flags));
    int folder = open(CLASS "/hw0", O_RDONLY | O_DIRECTORY);
    CHECK(folder >= 0);
    reads_state(openat(folder, "ports/1/state", flags));
    reads_state(openat(folder, STATE, flags));
    close(folder);
    FILE *stream = fopen(STATE, "r");
    CHECK(stream);
    fclose(stream);
    CHECK(open(CLASS "/none", flags) == -1 && errno == ENOENT);
    int null = open("/dev/null", O_WRONLY);
    CHECK(null >= 0);
    close(null);
    int made = open("/dev/shm/every-call", O_CREAT | O_WRONLY | O_TRUNC, 0640);
    struct stat answer;
    CHECK(made >= 0 && fstat(made, &answer) == 0 && (answer.st_mode & 0777) == 0640);
    close(made);
}

static void stats(void)
{
    struct stat answer;
    struct statx extended;
    CHECK(is_device(stat(NODE, &answer), &answer));
    CHECK(is_device(lstat(NODE, &answer), &answer));
    CHECK(is_device(fstatat(AT_FDCWD, NODE, &answer, 0), &answer));
    CHECK(is_device(__xstat(1, NODE, &answer), &answer));
    CHECK(is_device(__lxstat(1, NODE, &answer), &answer));
    CHECK(is_device(__fxstatat(1, AT_FDCWD, NODE, &answer, 0), &answer));
    CHECK(statx(AT_FDCWD, NODE, 0, STATX_BASIC_STATS, &extended) == 0 && S_ISCHR(extended.stx_mode));
    CHECK(stat(CLASS, &answer) == 0 && S_ISDIR(answer.st_mode));
    CHECK(stat(CLASS "/none", &answer) == -1 && errno == ENOENT);
    CHECK(stat("/proc/self/status", &answer) == 0 && S_ISREG(answer.st_mode));
    CHECK(fstatat(AT_FDCWD, "/", &answer, 0) == 0 && S_ISDIR(answer.st_mode));
    CHECK(access(NODE, R_OK | W_OK) == 0 && eaccess(NODE, R_OK) == 0 && euidaccess(NODE, R_OK) == 0);
    CHECK(faccessat(AT_FDCWD, NODE, R_OK, 0) == 0);
    CHECK(access("/no/such/path", F_OK) == -1 && errno == ENOENT);
    CHECK(access(CLASS "/none", F_OK) == -1 && errno == ENOENT);
}

static void folders(void)
{
    int found = 0;
    DIR *stream = opendir(CLASS);
    CHECK(stream);
    for (struct dirent *entry; (entry = readdir(stream));)
        found += !strcmp(entry->d_name, "hw0");
    closedir(stream);
    CHECK(found == 1);
    struct dirent **list;
    int count = scandir(CLASS, &list, NULL, alphasort);
    CHECK(count >= 3);
    while (count--)
        free(list[count]);
    free(list);
    count = scandirat(AT_FDCWD, CLASS "/hw0/ports", &list, NULL, alphasort);
    CHECK(count == 3);
    while (count--)
        free(list[count]);
    free(list);
    CHECK(!opendir(CLASS "/none") && errno == ENOENT);
}

static void links(void)
{
    char text[PATH_MAX];
    const char *link = CLASS "/hw0/device/net/lo";
    CHECK(readlink(link, text, sizeof text) == strlen("/sys/class/net/lo"));
    CHECK(readlinkat(AT_FDCWD, link, text, sizeof text) == strlen("/sys/class/net/lo"));
    CHECK(realpath(CLASS "/hw0", text) && strstr(text, "/hw0"));
    char *name = canonicalize_file_name(CLASS "/hw0");
    CHECK(name);
    free(name);
    CHECK(getxattr(NODE, "user.none", text, sizeof text) == -1 && errno != ENOENT);
    CHECK(lgetxattr(NODE, "user.none", text, sizeof text) == -1 && errno != ENOENT);
    CHECK(listxattr(NODE, text, sizeof text) >= 0 && llistxattr(NODE, text, sizeof text) >= 0);
    CHECK(realpath("/proc/self/fd", text));
}

static void *all(void *flags)
{
    opens(*(int *)flags);
    stats();
    folders();
    links();
    return NULL;
}

int main(void)
{
    volatile int flags = O_RDONLY | O_CLOEXEC;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, all, (void *)&flags) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        all((void *)&flags);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    char before[PATH_MAX];
    CHECK(getcwd(before, sizeof before) && chdir(CLASS "/hw0") == 0 && access("node_guid", R_OK) == 0 && chdir(before) == 0);
    unlink("/dev/shm/every-call");
    puts("every call answered");
    return 0;
}
