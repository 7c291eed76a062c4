// The tensors of one case in memory that parent and worker share: one block of inputs, one of outputs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "verification/operation.h"

namespace fovea::program {

// The place of each tensor of a case, in the operation's order. Behind every output are bytes that no kernel may write.
struct TensorPlaces {
  struct PlacedTensor {
    verification::TensorSpec tensor;
    std::int64_t offset = 0;  // within its block
    bool is_input() const { return verification::is_read(tensor.role); }
    std::int64_t bytes() const;
  };
  std::vector<PlacedTensor> places;
  std::int64_t input_bytes = 0, output_bytes = 0;  // of the blocks
};
TensorPlaces places_of(const verification::Case& c);
TensorPlaces places_without_guards(const verification::Case& c);  // as older programs place them

// A mapped, unnamed file in memory. It grows with the cases and disappears with the last process that has it open.
// Nobody can shrink it, since touching a mapping beyond the end of its file ends a process.
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
  std::int64_t file_bytes_ = 0;  // of the owner's file: the most that was wanted so far
};

// The two blocks: the shared ones themselves, or copies on a device.
struct TensorMemory {
  TensorMemory(const SharedBlock& the_inputs, const SharedBlock& the_outputs)
      : inputs(the_inputs.data()), outputs(the_outputs.data()) {}
  TensorMemory(std::byte* the_inputs, std::byte* the_outputs, Device the_device)
      : inputs(the_inputs), outputs(the_outputs), device(the_device) {}
  std::byte *inputs, *outputs;
  Device device{};
};
MutableTensorView view_of(const TensorPlaces::PlacedTensor& place, const TensorMemory& memory);
verification::TensorSet tensors_of(const TensorPlaces& places, const TensorMemory& memory);

// Poison is a NaN in every type. `untouched`: the tensor has nothing but poison.
void poison(const SharedBlock& block);
// Only what the case's timed passes write: backward alone still reads what forward wrote.
void poison_timed(const verification::Case& c, const TensorPlaces& places, const SharedBlock& outputs);
bool untouched(const MutableTensorView& view);  // of a dense tensor

// The names of the outputs behind whose ends something was written, separated by commas.
std::string overrun(const TensorPlaces& places, const SharedBlock& outputs);

}  // namespace fovea::program
