/* Every mistake that HIGHWIRE_LOG=1 has words for is explained by a record as well, in the same words.
 *
 * The program runs the mistakes of mistakes.c under `highwire run --record`: what they print is the list of lines to be found.
 */
#define main mistakes
#include "mistakes.c"
#undef main
#include "record.h"
#include "record_words.h"

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "play"))
        return mistakes();
    return explain_all(argv[0], "play", 35);
}
