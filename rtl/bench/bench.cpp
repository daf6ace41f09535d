// Drives one verilated block: a line of inputs per cycle from standard input, a line of outputs per cycle to standard output, both as
// 64-bit words in the order of ports.inc, which the test writes. What drives and compares is in crates/nanopu/tests/rtl.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <vector>

#include "Vblock.h"
#include "ports.inc"
#include "verilated.h"

double sc_time_stamp() { return 0; }

namespace {

constexpr int kResetCycles = 4;

// A port takes as many words as ports.inc says.
template <class T>
void put(T& port, const uint64_t* from, std::size_t) {
  port = static_cast<T>(*from);
}

template <std::size_t Halves>
void put(VlWide<Halves>& port, const uint64_t* from, std::size_t words) {
  for (std::size_t half = 0; half < Halves; ++half) {
    port[half] = half / 2 < words ? static_cast<uint32_t>(from[half / 2] >> half % 2 * 32) : 0;
  }
}

template <class T>
void get(const T& port, uint64_t* to, std::size_t) {
  *to = port;
}

template <std::size_t Halves>
void get(const VlWide<Halves>& port, uint64_t* to, std::size_t words) {
  for (std::size_t half = 0; half < Halves && half / 2 < words; ++half) {
    to[half / 2] |= static_cast<uint64_t>(port[half]) << half % 2 * 32;
  }
}

void edge(Vblock& block) {
  block.clk = 1;
  block.eval();
  block.clk = 0;
  block.eval();
}

}  // namespace

int main(int argc, char** argv) {
  VerilatedContext context;
  context.commandArgs(argc, argv);
  // Registers without a reset begin with any value.
  context.randReset(2);
  auto block = std::make_unique<Vblock>(&context);

  std::vector<uint64_t> inputs(kInputWords), outputs(kOutputWords);
  const auto apply = [&] {
    const uint64_t* from = inputs.data();
#define PUT(name, words) put(block->name, from, words), from += words;
    INPUTS(PUT)
  };
  apply();
  block->clk = 0;
  block->rst = 1;
  for (int cycle = 0; cycle < kResetCycles; ++cycle) edge(*block);
  block->rst = 0;

  while (std::fread(inputs.data(), sizeof(uint64_t), inputs.size(), stdin) == inputs.size()) {
    apply();
    block->eval();
    std::fill(outputs.begin(), outputs.end(), 0);
    uint64_t* to = outputs.data();
#define GET(name, words) get(block->name, to, words), to += words;
    OUTPUTS(GET)
    std::fwrite(outputs.data(), sizeof(uint64_t), outputs.size(), stdout);
    edge(*block);
  }
  block->final();
  return 0;
}
