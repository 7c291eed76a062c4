// Tensor maps: a thread keeps those of the last layouts and changes their address. A new thread, which keeps none and
// has no context, encodes each anew. Both must give the same bytes.
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <random>
#include <string>
#include <thread>

#include "cuda/attention/sm90/tensor_map.h"
#include "cuda/measure/device_memory.h"
#include "cuda/runtime/device_info.h"
#include "on_device.h"

namespace fovea::cuda {
namespace {

struct Request {
  ConstTensorRef tensor;
  sm90::TensorMapShape rows;
  sm90::QueryMapShape queries;
};

struct Maps {
  bool encoded = false;
  CUtensorMap rows{}, queries{};
};

Maps maps_of(const Request& request) {
  Maps maps;
  maps.encoded = sm90::encode_tensor_map(maps.rows, request.tensor, request.rows) &&
                 sm90::encode_query_map(maps.queries, request.tensor, request.queries);
  return maps;
}

// Empty, or what is wrong.
std::string wrong_maps(const Maps& kept, const Maps& anew) {
  if (!kept.encoded || !anew.encoded) return kept.encoded ? "not encoded anew" : "not encoded";
  if (std::memcmp(&kept.rows, &anew.rows, sizeof kept.rows) != 0) return "other bytes for rows";
  return std::memcmp(&kept.queries, &anew.queries, sizeof kept.queries) != 0 ? "other bytes for queries" : "";
}

// A tensor somewhere in the memory; nothing reads it.
Request random_request(std::mt19937& random, const DeviceMemory& memory) {
  const auto one_of = [&random](std::initializer_list<std::int64_t> all) { return all.begin()[random() % all.size()]; };
  const std::int64_t dim = one_of({32, 64, 128}), heads = one_of({1, 4}), len = one_of({1, 100, 128});
  const std::int64_t batch = one_of({1, 2}), row = one_of({dim, 2 * dim}), head = len * row, group = one_of({1, heads});
  const std::byte* const data = memory.data() + 16 * (random() % 1024);
  const ElementKind kind = one_of({0, 1}) == 0 ? ElementKind::bf16 : ElementKind::fp16;
  return {.tensor = {data, batch > 1 ? heads * head : 0, heads > 1 ? head : 0, len > 1 ? row : 0, kind, true},
          .rows = {dim, len, heads, batch, static_cast<int>(one_of({16, 64, 128}))},
          .queries = {dim, group, len, heads / group, batch, static_cast<int>(group), static_cast<int>(64 / group)}};
}

}  // namespace

int check_tensor_maps() {
  if (device_info(0).major < 9) {
    std::printf("tensor maps: none on this GPU; 1 passed, 0 failed\n");
    return 0;
  }
  constexpr int kRequests = 2000;
  const DeviceMemory memory(1 << 20);
  std::mt19937 random(20261126);
  int failed = 0;
  for (int i = 0; i < kRequests; ++i) {
    const Request request = random_request(random, memory);
    Request before = request;
    before.tensor.data = memory.data() + (1 << 16);
    maps_of(before);  // keeps the layout, for another address
    const Maps kept = maps_of(request);
    Maps anew;
    std::thread([&] { anew = maps_of(request); }).join();
    const std::string wrong = wrong_maps(kept, anew);
    if (!wrong.empty() && failed++ < 3) {
      const sm90::TensorMapShape& t = request.rows;
      std::printf("TENSOR MAPS: %s, [%ld, %ld, %ld, %ld], boxes of %d rows\n", wrong.c_str(), long{t.batch},
                  long{t.heads}, long{t.len}, long{t.dim}, t.box_rows);
    }
  }
  std::printf("tensor maps: %d passed, %d failed\n", kRequests - failed, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace fovea::cuda
