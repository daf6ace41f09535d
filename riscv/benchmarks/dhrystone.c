// The mix of Weicker's synthetic benchmark, in a program of its own: records and pointers to them, strings that are
// copied and compared, enumerations, small functions, arrays of one and two dimensions. Not for results in DMIPS.
#include "benchmark.h"

#define ROUNDS 150
#define LETTERS 30

enum kind { FIRST, SECOND, THIRD, FOURTH };

struct record {
    struct record *next;
    enum kind kind, other;
    int number;
    char name[LETTERS + 1];
};

static struct record records[2];
static int numbers[50], table[50][50];
static int total;
static char letter;

static void __attribute__((noinline)) copy_name(char *to, const char *from) {
    while ((*to++ = *from++)) {}
}

static int __attribute__((noinline)) compare_names(const char *a, const char *b) {
    while (*a && *a == *b) a++, b++;
    return (unsigned char)*a - (unsigned char)*b;
}

static enum kind __attribute__((noinline)) other_than(enum kind kind) {
    switch (kind) {
    case FIRST: return FOURTH;
    case SECOND: return total > 100 ? FIRST : FOURTH;
    case THIRD: return SECOND;
    default: return THIRD;
    }
}

static int __attribute__((noinline)) is_third(enum kind kind) { return kind == THIRD; }

static void __attribute__((noinline)) advance(struct record *record) {
    struct record *next = record->next;
    *next = records[0];
    next->number = record->number + 5;
    next->next = record->next;
    next->kind = FIRST;
    next->other = other_than(record->other);
    if (!is_third(next->other)) next->number += 7;
}

static void __attribute__((noinline)) fill(int at, int value) {
    numbers[at] = value;
    numbers[at + 1] = numbers[at];
    numbers[at + 10] = at;
    for (int column = at; column <= at + 1; column++) table[at][column] = at;
    table[at][at - 1]++;
    table[at + 20 < 50 ? at + 20 : 49][at] = numbers[at];
    total = 5;
}

int main(void) {
    static char first[LETTERS + 1], second[LETTERS + 1];
    records[0].next = &records[1];
    records[0].other = THIRD;
    records[0].number = 40;
    copy_name(records[0].name, "THE MIX OF A SYNTHETIC PROGRAM");
    copy_name(first, "A NAME OF THIRTY LETTERS, ONE.");
    for (int round = 1; round <= ROUNDS; round++) {
        letter = 'A' + round % 3;
        copy_name(second, "A NAME OF THIRTY LETTERS, TWO.");
        int sum = compare_names(first, second) < 0 ? 2 : 3, quotient = round;
        while (sum < 6) sum += 5 * sum - quotient % 3;
        fill(8 + round % 4, sum);
        advance(&records[0]);
        for (char step = 'A'; step <= letter; step++)
            if (other_than((enum kind)(step & 3)) == SECOND) total += sum;
        sum *= 3;
        quotient = sum / (round % 7 + 1);
        total += 7 * (sum - quotient) - round;
    }
    return total + sum_of(numbers, 50) + records[1].number;
}
