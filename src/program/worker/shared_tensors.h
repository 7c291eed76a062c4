// The tensors of one case in memory that parent and worker share: inputs in one block, outputs in another.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "fovea/attention.h"
#include "verification/attention/case.h"

namespace fovea::program {

enum class Name : std::uint8_t { q, k, v, dout, out, lse, dq, dk, dv };
inline constexpr std::string_view kTensorNames[] = {"q", "k", "v", "dout", "out", "lse", "dq", "dk", "dv"};
inline constexpr int kTensorCount = 9;

constexpr bool is_input(Name name) { return name <= Name::dout; }

// Where each tensor lies. A case of pass fwd has neither dout nor gradients.
struct TensorPlaces {
  struct Place {
    std::int64_t offset = 0;  // within its block
    Sizes sizes{}, strides{};
    DType dtype = DType::fp32;
    bool present = false;
    std::int64_t bytes() const { return sizes[0] * sizes[1] * sizes[2] * sizes[3] * size_of(dtype); }
  };
  std::array<Place, kTensorCount> places;
  std::int64_t input_bytes = 0, output_bytes = 0;  // of the blocks

  const Place& operator[](Name name) const { return places[static_cast<std::size_t>(name)]; }
};
TensorPlaces places_of(const verification::AttentionCase& c);

// An unnamed file in memory, mapped. Grows as cases ask; gone when the last process that has it open ends.
class SharedBlock {
 public:
  explicit SharedBlock(const char* name);
  SharedBlock(int descriptor, std::int64_t bytes, bool writable);  // a worker's view of its parent's block
  ~SharedBlock();
  SharedBlock(const SharedBlock&) = delete;
  SharedBlock& operator=(const SharedBlock&) = delete;

  void resize(std::int64_t bytes);  // contents become zero; throws Error(out_of_memory)
  int descriptor() const { return descriptor_; }
  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  void map(bool writable);
  void unmap();

  int descriptor_ = -1;
  bool owner_ = true;
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

// Where the two blocks lie: the shared ones themselves, or copies of them on a device.
struct TensorMemory {
  TensorMemory(const SharedBlock& the_inputs, const SharedBlock& the_outputs)
      : inputs(the_inputs.data()), outputs(the_outputs.data()) {}
  TensorMemory(std::byte* the_inputs, std::byte* the_outputs, Device the_device)
      : inputs(the_inputs), outputs(the_outputs), device(the_device) {}
  std::byte *inputs, *outputs;
  Device device{};
};
MutableTensorView view_of(const TensorPlaces& places, Name name, const TensorMemory& memory);
ForwardTensors forward_tensors(const TensorPlaces& places, const TensorMemory& memory);
BackwardTensors backward_tensors(const TensorPlaces& places, const TensorMemory& memory);

// Poison is a NaN in every type. `untouched`: nothing but poison in the tensor.
void poison(const SharedBlock& block);
bool untouched(const MutableTensorView& view);  // of a dense tensor

}  // namespace fovea::program
