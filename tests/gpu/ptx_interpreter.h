// Interprets the PTX that kernels/cuda/ptx.h generates, as a GPU would run it.  Refuses everything
// that is undefined on a GPU.
//
// Accepts only the instruction forms that the kernels need.  Another rounding, a fused operation or
// a flush of denormals is an error.  Further errors are an access out of bounds or misaligned, and
// a read of unwritten memory.  Two threads must not use the same byte if one of them writes it.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace tkv::test {

// An error in a kernel's text or in its execution.
class PtxError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The memory that a kernel reads and writes.
class PtxMemory {
 public:
  virtual ~PtxMemory() = default;
  // Clears the records of reads and writes by threads.
  virtual void BeginLaunch() = 0;
  // Read and write for a thread with a number above 0; `bytes` is also the required alignment.
  //   throws  PtxError
  virtual void Load(uint64_t address, void* target, size_t bytes, uint32_t thread) = 0;
  virtual void Store(uint64_t address, const void* source, size_t bytes, uint32_t thread) = 0;
};

// Memory of a simulated device, in ranges far apart.
class DeviceMemory final : public PtxMemory {
 public:
  // Allocates an unwritten range.  Its address is a multiple of 4,096, plus `misaligned_by`.
  //   returns  its device address
  uint64_t Allocate(size_t bytes, size_t misaligned_by = 0);

  // Write and read for the host.
  //   throws  PtxError  out of bounds; a read of unwritten bytes
  void Write(uint64_t address, std::span<const std::byte> bytes);
  std::vector<std::byte> Read(uint64_t address, size_t bytes) const;

  void BeginLaunch() override;
  void Load(uint64_t address, void* target, size_t bytes, uint32_t thread) override;
  void Store(uint64_t address, const void* source, size_t bytes, uint32_t thread) override;

 private:
  struct Byte {
    std::byte value{};
    bool is_written = false;
    uint32_t writer = 0;
    uint32_t reader = 0;  // kMany: several
  };
  struct Range {
    uint64_t begin;
    std::vector<Byte> bytes;
  };
  static constexpr uint32_t kMany = UINT32_MAX;

  std::span<Byte> At(uint64_t address, size_t bytes);

  std::vector<Range> ranges_;
};

// A kernel.  Blocks of 256 threads run in lock step: the threads with the smallest program counter
// run first.
class PtxKernel {
 public:
  // Parses a kernel.
  //   throws  PtxError  naming the line
  explicit PtxKernel(std::string_view text);

  // Runs the kernel.
  //   parameter  the bytes of the kernel's parameter, at most as many as it declares
  //   throws     PtxError  naming the instruction
  void Launch(uint32_t blocks, std::span<const std::byte> parameter, PtxMemory* memory) const;

  const std::string& name() const { return name_; }
  // Returns the size of its parameter.
  size_t parameter_bytes() const { return parameter_bytes_; }

  // Returns the number of occurrences of each instruction form in the text.
  const std::map<std::string, int>& forms() const { return forms_; }

  struct Operand {
    enum class Kind : uint8_t { kRegister, kConstant, kThread, kBlock, kGrid };
    Kind kind = Kind::kConstant;
    uint32_t number = 0;  // of the register
    uint64_t constant = 0;
  };
  using Function = uint64_t (*)(uint64_t a, uint64_t b, uint64_t c);
  struct Instruction {
    enum class Kind : uint8_t { kCompute, kLoad, kStore, kBranch, kReturn };
    Kind kind = Kind::kCompute;
    std::string text;
    Function function = nullptr;
    std::vector<uint32_t> targets;  // registers that are written
    std::vector<Operand> sources;
    Operand address;  // of a load or store, to which `offset` is added
    uint64_t offset = 0;
    bool is_parameter = false;  // a load of the parameter
    size_t item = 0;            // bytes of each register that is loaded or stored
    bool is_signed = false;     // a load extends the sign
    uint32_t destination = 0;   // of a branch
    std::string label;          // of a branch, until all are known
  };

 private:
  friend class PtxParser;
  std::vector<Instruction> instructions_;
  uint32_t register_count_ = 0;
  std::string name_;
  size_t parameter_bytes_ = 0;
  std::map<std::string, int> forms_;
};

}  // namespace tkv::test
