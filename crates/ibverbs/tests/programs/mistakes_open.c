/* A device that cannot be opened: the reason is said once, with HIGHWIRE_LOG=1 and without, and no second line sends to the manual page. */
#include "words.h"

int main(void)
{
    /* An address for documentation (RFC 5737), which no machine has. */
    CHECK(setenv("HIGHWIRE_ADDR", "203.0.113.9", 1) == 0);
    CHECK(setenv("HIGHWIRE_LOG", "1", 1) == 0);
    capture();
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    CHECK(list && count == 1);
    CHECK(!ibv_open_device(list[0]));
    CHECK(errno != 0);
    const char *text = printed();
    const char *end = strchr(text, '\n');
    if (!strstr(text, "203.0.113.9") || !end || end[1] || strstr(text, "manual page")) {
        fprintf(stdout, "said:\n%s", text);
        return 1;
    }
    ibv_free_device_list(list);
    return 0;
}
