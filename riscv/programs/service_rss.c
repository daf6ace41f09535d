/* Each core serves a context of its own, with its number: what RSS does when the sender picks the context. */
#include "published.h"

int nanopu_main(uint64_t core) {
    nanopu_add_context(core, 0);
    published_work(core);
    return 0;
}
