// Fuzzer of the C interface: random structs over a little real memory. Whatever is accepted must stay inside it.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "fovea/fovea.h"

namespace {

constexpr std::int64_t kMemory = 1 << 12;  // bytes of each tensor's buffer

// Reads the fuzzer's bytes as decisions; zero when they run out.
class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}

  template <class T>
  T take() {
    T value{};
    const std::size_t count = std::min(sizeof(T), left_);
    std::memcpy(&value, data_, count);
    data_ += count;
    left_ -= count;
    return value;
  }
  // Mostly a small number, so that the inputs reach beyond the first check; sometimes anything.
  std::int64_t size() {
    const auto selector = take<std::uint8_t>();
    return selector < 250 ? selector % 9 : take<std::int64_t>();
  }
  std::int32_t choice(std::int32_t count) {
    const auto selector = take<std::uint8_t>();
    return selector < 250 ? selector % count : take<std::int32_t>();
  }

 private:
  const std::uint8_t* data_;
  std::size_t left_;
};

// The address sanitizer guards each of these.
struct Memory {
  void* data = std::aligned_alloc(64, kMemory);
  Memory() { std::memset(data, 0, kMemory); }
  ~Memory() { std::free(data); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
};

struct Shape {
  std::int64_t batch, heads_q, heads_kv, len_q, len_k, dim_qk, dim_v;
};

// A struct and bytes behind it, which a newer header's fields would be.
template <class Struct>
struct Sized {
  Struct known = {sizeof(Struct)};
  std::uint8_t unknown[16] = {};

  // Any size within the memory that is there, or far too large a one.
  void take_size(Bytes& bytes) {
    known.struct_size = bytes.take<std::uint8_t>();
    if (known.struct_size > sizeof *this) known.struct_size *= 4096;
    unknown[0] = bytes.take<std::uint8_t>();
  }
};

Sized<fovea_tensor> tensor(Bytes& bytes, const Memory& memory, std::int32_t dtype, std::int64_t heads,
                           std::int64_t length, std::int64_t dim, std::int64_t batch) {
  Sized<fovea_tensor> result;
  fovea_tensor& t = result.known;
  // Sizes that it refuses go on to the calls, which refuse them too.
  if (fovea_init_dense_tensor(&t, memory.data, dtype, batch, heads, length, dim) != FOVEA_OK)
    t = {sizeof t, memory.data, dtype, 4, {batch, heads, length, dim}};
  t.buffer_bytes = kMemory;
  const auto spoil = bytes.take<std::uint8_t>();
  if (spoil < 200) return result;
  switch (spoil % 8) {
    case 0:
      result.take_size(bytes);
      break;
    case 1:
      t.rank = bytes.choice(6);
      break;
    case 2:
      t.dtype = bytes.choice(3);
      break;
    case 3:
      t.sizes[bytes.take<std::uint8_t>() % 4] = bytes.size();
      break;
    case 4:
      t.strides[bytes.take<std::uint8_t>() % 4] = bytes.size();
      break;
    case 5:
      t.device_kind = bytes.choice(2);
      break;
    case 6:
      t.data = nullptr;
      break;
    default:
      t.data = static_cast<char*>(t.data) + 1;
      t.buffer_bytes -= 1;
      break;
  }
  return result;
}

std::int64_t bound(Bytes& bytes) { return bytes.choice(8) == 7 ? FOVEA_UNLIMITED : bytes.size(); }

Sized<fovea_options> options_from(Bytes& bytes) {
  static const char* const names[] = {nullptr, "", "reference", "cpu.scalar", "cpu.avx2", "flash", "nothing"};
  Sized<fovea_options> result;
  fovea_options& options = result.known;
  options.mask = bytes.choice(7);
  options.has_scale = bytes.choice(2);
  options.scale = bytes.take<float>();
  options.implementation = names[bytes.take<std::uint8_t>() % 7];
  options.threads = bytes.choice(3);
  options.irreproducible = bytes.choice(2);
  if (bytes.take<std::uint8_t>() > 250) result.take_size(bytes);
  if (options.mask >= FOVEA_MASK_WINDOW) options.mask_left = bound(bytes), options.mask_right = bound(bytes);
  return result;
}

void check(fovea_status status) {
  if (status < FOVEA_OK || status >= FOVEA_ERROR) std::abort();  // on a CPU nothing underneath may fail
  if (status != FOVEA_OK && std::string_view(fovea_last_error()).empty()) std::abort();
}

// Broadcast inputs make long work out of little memory; only short work is run. Refused calls are run to be refused.
template <class Describe, class Tensors>
bool quick(Describe describe, const Tensors& tensors, const fovea_options& options) {
  fovea_problem p = {sizeof p};
  if (describe(&tensors, &options, &p) != FOVEA_OK) return true;
  const auto factor = [](std::int64_t size) { return static_cast<double>(std::max<std::int64_t>(size, 1)); };
  return factor(p.batch) * factor(p.heads_q) * factor(p.len_q) * factor(p.len_k) * factor(p.dim_qk + p.dim_v) < 1e6;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Bytes bytes(data, size);
  const Memory memory[11];
  const Shape s{bytes.size(), bytes.size(), bytes.size(), bytes.size(), bytes.size(), bytes.size(), bytes.size()};
  const std::int32_t dtype = bytes.choice(3), results = bytes.choice(2) == 0 ? dtype : FOVEA_FP32;
  const Sized<fovea_options> sized_options = options_from(bytes);
  const fovea_options& options = sized_options.known;
  const auto q = tensor(bytes, memory[0], dtype, s.heads_q, s.len_q, s.dim_qk, s.batch);
  const auto k = tensor(bytes, memory[1], dtype, s.heads_kv, s.len_k, s.dim_qk, s.batch);
  const auto v = tensor(bytes, memory[2], dtype, s.heads_kv, s.len_k, s.dim_v, s.batch);
  const auto out = tensor(bytes, memory[3], results, s.heads_q, s.len_q, s.dim_v, s.batch);
  const auto lse = tensor(bytes, memory[4], FOVEA_FP32, s.heads_q, s.len_q, 1, s.batch);
  const auto dout = tensor(bytes, memory[5], dtype, s.heads_q, s.len_q, s.dim_v, s.batch);
  const auto delta = tensor(bytes, memory[6], FOVEA_FP32, s.heads_q, s.len_q, 1, s.batch);
  const auto dq = tensor(bytes, memory[7], results, s.heads_q, s.len_q, s.dim_qk, s.batch);
  const auto dk = tensor(bytes, memory[8], results, s.heads_kv, s.len_k, s.dim_qk, s.batch);
  const auto dv = tensor(bytes, memory[9], results, s.heads_kv, s.len_k, s.dim_v, s.batch);
  const auto absent = bytes.take<std::uint8_t>();
  const auto unless = [absent](int bit, const Sized<fovea_tensor>& t) {
    return (absent >> bit & 1) != 0 ? nullptr : &t.known;
  };

  const fovea_forward_tensors forward = {sizeof forward, &q.known, &k.known, &v.known, &out.known, unless(0, lse), {}};
  if (quick(fovea_describe_forward, forward, options)) check(fovea_attention_forward(&forward, &options));
  const fovea_backward_tensors backward = {sizeof backward, &q.known,      &k.known,      &v.known,
                                           unless(1, out),  &lse.known,    &dout.known,   unless(2, delta),
                                           unless(3, dq),   unless(4, dk), unless(5, dv), {},
                                           bytes.choice(2)};
  if (quick(fovea_describe_backward, backward, options)) check(fovea_attention_backward(&backward, &options));

  Sized<fovea_problem> sized_problem;
  fovea_problem& problem = sized_problem.known;
  if (bytes.take<std::uint8_t>() > 250) sized_problem.take_size(bytes);
  if (fovea_describe_forward(&forward, &options, &problem) == FOVEA_OK) {
    std::int64_t needed = -1;
    check(fovea_workspace_bytes(&problem, options.implementation, &needed));
    char text[64];
    check(fovea_explain(&problem, options.implementation, text, bytes.take<std::uint8_t>() % sizeof text, nullptr));
  }
  const fovea_tensor* const outs[] = {unless(6, out), &dout.known};
  const fovea_tensor* const lses[] = {&lse.known, unless(7, delta)};
  const auto merged = tensor(bytes, memory[10], FOVEA_FP32, s.heads_q, s.len_q, s.dim_v, s.batch);
  check(fovea_merge_partials(outs, lses, bytes.take<std::uint8_t>() % 3, &merged.known, &dq.known));
  return 0;
}
