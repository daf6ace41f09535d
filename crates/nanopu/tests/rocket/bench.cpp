// A bench for Rocket's RTL: one memory of a fixed latency behind each of its two AXI ports.
//
// Vtop +image=FILE [+latency=CYCLES] [+cycles=LIMIT]. The memory port shows FILE at 0x8000'0000; the port for devices shows a
// jump to it at 0x1000'0000, and ends the run when 0x1000'1000 is written. The commit log is the RTL's own.
#include "Vtop.h"
#include "verilated.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <vector>

namespace {

constexpr uint64_t kMemory = 0x80000000, kDone = 0x10001000;

struct Read {
    uint64_t address;
    int beats, id;
    uint64_t ready;
};

struct Acknowledgement {
    int id;
    uint64_t ready;
};

// What one port has to do. Reads are answered in order; one burst of writes is taken at a time.
struct Port {
    std::deque<Read> reads;
    std::deque<Acknowledgement> acknowledgements;
    bool writing = false;
    uint64_t write_address = 0;
    int write_id = 0;
};

const char *argument(int count, char **words, const char *name, const char *otherwise) {
    for (int i = 1; i < count; i++)
        if (!strncmp(words[i], name, strlen(name))) return words[i] + strlen(name);
    return otherwise;
}

}  // namespace

// One half-cycle's view of a port; `read_word` and `write_byte` are its memory.
#define DRIVE(p, port, read_word)                                                            \
    top.p##_ar_ready = 1, top.p##_aw_ready = !port.writing, top.p##_w_ready = port.writing; \
    top.p##_r_valid = !port.reads.empty() && port.reads.front().ready <= cycle;             \
    if (top.p##_r_valid) {                                                                  \
        const Read &read = port.reads.front();                                              \
        top.p##_r_bits_data = read_word(read.address & ~7ull), top.p##_r_bits_id = read.id; \
        top.p##_r_bits_last = read.beats == 1, top.p##_r_bits_resp = 0;                     \
    }                                                                                       \
    top.p##_b_valid = !port.acknowledgements.empty() && port.acknowledgements.front().ready <= cycle; \
    if (top.p##_b_valid) top.p##_b_bits_id = port.acknowledgements.front().id, top.p##_b_bits_resp = 0;

#define TAKE(p, port, delay, write_byte)                                                          \
    if (top.p##_r_valid && top.p##_r_ready) {                                                     \
        port.reads.front().address += 8;                                                          \
        if (--port.reads.front().beats == 0) port.reads.pop_front();                              \
    }                                                                                             \
    if (top.p##_b_valid && top.p##_b_ready) port.acknowledgements.pop_front();                    \
    if (top.p##_ar_valid)                                                                         \
        port.reads.push_back({top.p##_ar_bits_addr, top.p##_ar_bits_len + 1, top.p##_ar_bits_id, cycle + delay}); \
    if (port.writing && top.p##_w_valid) {                                                        \
        for (int i = 0; i < 8; i++)                                                               \
            if (top.p##_w_bits_strb >> i & 1)                                                     \
                write_byte((port.write_address & ~7ull) + i, top.p##_w_bits_data >> 8 * i);       \
        port.write_address += 8;                                                                  \
        if (top.p##_w_bits_last) {                                                                \
            port.writing = false;                                                                 \
            port.acknowledgements.push_back({port.write_id, cycle + delay});                      \
        }                                                                                         \
    } else if (!port.writing && top.p##_aw_valid) {                                               \
        port.writing = true, port.write_address = top.p##_aw_bits_addr, port.write_id = top.p##_aw_bits_id; \
    }

int main(int count, char **words) {
    std::vector<uint8_t> memory(64 << 20);
    FILE *file = fopen(argument(count, words, "+image=", "/dev/null"), "rb");
    if (!file || fread(memory.data(), 1, memory.size(), file) == 0) return fprintf(stderr, "no image\n"), 2;
    fclose(file);
    const uint64_t latency = strtoull(argument(count, words, "+latency=", "40"), nullptr, 10);
    const uint64_t limit = strtoull(argument(count, words, "+cycles=", "1000000"), nullptr, 10);
    // li t0, 1; slli t0, t0, 31; jr t0
    const uint32_t jump[] = {0x00100293, 0x01f29293, 0x00028067, 0x00000013};

    auto memory_word = [&](uint64_t address) {
        uint64_t word = 0;
        if (address - kMemory + 8 <= memory.size()) memcpy(&word, &memory[address - kMemory], 8);
        return word;
    };
    auto memory_byte = [&](uint64_t address, uint8_t byte) {
        if (address - kMemory < memory.size()) memory[address - kMemory] = byte;
    };
    bool done = false;
    auto device_word = [&](uint64_t address) {
        uint64_t word = 0;
        if ((address & 0xfff) < sizeof jump) memcpy(&word, reinterpret_cast<const char *>(jump) + (address & 0xff8), 8);
        return word;
    };
    auto device_byte = [&](uint64_t address, uint8_t) { done |= (address & ~7ull) == kDone; };

    Verilated::commandArgs(count, words);
    Vtop top;
    Port main_port, device_port;
    top.l2_frontend_bus_axi4_0_b_ready = top.l2_frontend_bus_axi4_0_r_ready = 1;
    for (uint64_t cycle = 0; cycle < limit && !done; cycle++) {
        top.reset = top.debug_reset = top.debug_clockeddmi_dmiReset = cycle < 20;
        DRIVE(mem_axi4_0, main_port, memory_word)
        DRIVE(mmio_axi4_0, device_port, device_word)
        top.clock = top.debug_clock = top.debug_clockeddmi_dmiClock = 0;
        top.eval();
        TAKE(mem_axi4_0, main_port, latency, memory_byte)
        TAKE(mmio_axi4_0, device_port, 5, device_byte)
        top.clock = top.debug_clock = top.debug_clockeddmi_dmiClock = 1;
        top.eval();
    }
    return done ? 0 : 1;
}
