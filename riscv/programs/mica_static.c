/* The key-value store of mica.h, each core a context of its own: the client sends every key to its core, and none else. */
#include "mica.h"

int nanopu_main(uint64_t core) { mica_run(core); }
