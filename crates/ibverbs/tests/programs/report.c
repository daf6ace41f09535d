/* What `highwire run --report` says of a program: it starts itself under that command, in each way that a program can end, and reads the
 * report.
 */
#include "rig.h"
#include <signal.h>
#include <sys/wait.h>

static char path[64], options[128];

/* A queue pair, a refused call, a request that fails, and an end. */
static void play(const char *end)
{
    struct end a, b;
    struct ibv_context *context = rig_open();
    rig_pair(&a, &b, context, 4096);
    CHECK(!ibv_create_cq(context, 0, NULL, NULL, 0));
    b.mr->rkey ^= 0x5500;
    rig_post(&a, IBV_WR_RDMA_WRITE, 7, 0, 8, &b, 0);
    CHECK_EQUAL(rig_next(a.send_cq).status, IBV_WC_REM_ACCESS_ERR);
    if (!strcmp(end, "kill"))
        kill(getpid(), SIGKILL);
    if (!strcmp(end, "leave"))
        _exit(3);
    CHECK_EQUAL(ibv_destroy_qp(a.qp), 0);
    CHECK_EQUAL(ibv_destroy_qp(b.qp), 0);
}

/* Two devices of a scenario, each with a queue pair in a state of its own; the second one changes last. */
static void play_devices(void)
{
    int count;
    struct end ends[2];
    struct ibv_device **list = ibv_get_device_list(&count);
    CHECK(list && count == 2);
    for (int i = 0; i < 2; i++) {
        struct ibv_context *context = ibv_open_device(list[i]);
        CHECK(context);
        rig_end(&ends[i], context, 4096);
        rig_queue_pair(&ends[i], IBV_QPT_RC);
        if (i == 0)
            rig_init(ends[i].qp);
    }
    ibv_free_device_list(list);
}

/* Each device has an entry of its own, in the order in which they were opened. */
static void check_devices(const char *text)
{
    const char *words[] = {"opened mlx5_0 at ", "last in INIT", "opened mlx5_1 at ", "last in RESET"};
    for (int i = 0; i < 4; i++) {
        const char *at = strstr(text, words[i]);
        if (!at) {
            fprintf(stderr, "two devices: `%s` is not in its place in:\n%s\n", words[i], text);
            exit(1);
        }
        text = at + 1;
    }
}

static void count_words(const char *text, const char *word, int wanted, const char *what)
{
    int found = 0;
    for (const char *at = text; (at = strstr(at, word)); at += strlen(word))
        found++;
    if (found < wanted) {
        fprintf(stderr, "%s: `%s` is there %d times, not %d:\n%s\n", what, word, found, wanted, text);
        exit(1);
    }
}

/* Runs this program under the command, in one way, and returns the report. */
static const char *report(const char *self, const char *end, int status)
{
    static char line[512], text[65536];
    snprintf(line, sizeof line, "\"$HIGHWIRE_BROKER\" run %s --report %s -- %s %s", options, path, self, end);
    int result = system(line);
    CHECK(WIFEXITED(result));
    CHECK_EQUAL(WEXITSTATUS(result), status);
    FILE *file = fopen(path, "r");
    CHECK(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return text;
}

static void check_failures(const char *text, int processes, const char *what)
{
    count_words(text, "opened hw0 at", processes, what);
    count_words(text, "ibv_create_cq fails with EINVAL: cqe is 0", processes, what);
    count_words(text, "there is no such rkey", processes, what);
    count_words(text, "IBV_WC_REM_ACCESS_ERR", processes, what);
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "two")) {
        int status;
        pid_t child = fork();
        CHECK(child >= 0);
        play("return");
        if (child == 0)
            return 0;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK_EQUAL(status, 0);
        return 0;
    }
    if (argc > 1 && !strcmp(argv[1], "none"))
        return 0;
    if (argc > 1 && !strcmp(argv[1], "devices")) {
        play_devices();
        return 0;
    }
    if (argc > 1) {
        play(argv[1]);
        return 0;
    }
    snprintf(path, sizeof path, "/tmp/highwire-report-%d.txt", (int)getpid());
    const char *text = report(argv[0], "kill", 128 + SIGKILL);
    check_failures(text, 1, "a program that was killed");
    count_words(text, "last in ERR", 1, "its queue pairs");
    text = report(argv[0], "leave", 3);
    check_failures(text, 1, "a program that leaves at once");
    count_words(text, "last in", 2, "its queue pairs");
    text = report(argv[0], "return", 0);
    check_failures(text, 1, "a program that returns");
    count_words(text, "destroyed in ERR", 1, "its queue pairs");
    text = report(argv[0], "two", 0);
    check_failures(text, 2, "two processes");
    text = report(argv[0], "none", 0);
    count_words(text, "UCX_TLS=rc_verbs,ud_verbs", 1, "a program that opens no device");
    static char scenario[64];
    snprintf(scenario, sizeof scenario, "/tmp/highwire-report-%d.toml", (int)getpid());
    FILE *file = fopen(scenario, "w");
    CHECK(file && fputs("[[device]]\nname = \"mlx5_0\"\n\n[[device]]\nname = \"mlx5_1\"\n", file) >= 0 && fclose(file) == 0);
    snprintf(options, sizeof options, "--scenario %s", scenario);
    check_devices(report(argv[0], "devices", 0));
    CHECK(unlink(scenario) == 0 && unlink(path) == 0);
    printf("every end was reported\n");
    return 0;
}
