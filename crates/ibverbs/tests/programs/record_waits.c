/* Every wait that HIGHWIRE_LOG=1 has words for is explained by a record as well: the waits of mistakes_waits.c, run under
 * `highwire run --record`.
 */
#define main waiting
#include "mistakes_waits.c"
#undef main
#include "record.h"
#include "record_words.h"

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "play"))
        return waiting(1, argv);
    return explain_all(argv[0], "play", 8);
}
