// A primitive is made once for each shape and number of threads and shared by callers; each leases scratch memory of
// its own.
#include "linear/blas/matmul_primitive.h"

#include <dnnl.h>
#include <omp.h>

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "core/check.h"
#include "core/hash.h"
#include "core/memory.h"
#include "core/never_destroyed.h"
#include "core/plan_cache.h"

namespace fovea::linear::blas {
namespace {

void check(dnnl_status_t status) {
  if (status == dnnl_success) return;
  core::fail({.problem = "oneDNN's matmul failed", .got = "status " + std::to_string(static_cast<int>(status))});
}

// Owns a oneDNN object; `make` is called with the address of its handle.
template <class Handle, dnnl_status_t (*destroy)(Handle)>
class Owned {
 public:
  template <class Make>
  explicit Owned(Make make) {
    check(make(&handle_));
  }
  ~Owned() { destroy(handle_); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  Handle get() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};
using Engine = Owned<dnnl_engine_t, dnnl_engine_destroy>;
using Stream = Owned<dnnl_stream_t, dnnl_stream_destroy>;
using Memory = Owned<dnnl_memory_t, dnnl_memory_destroy>;
using Attributes = Owned<dnnl_primitive_attr_t, dnnl_primitive_attr_destroy>;
using PostOps = Owned<dnnl_post_ops_t, dnnl_post_ops_destroy>;
using PrimitiveDescriptor = Owned<dnnl_primitive_desc_t, dnnl_primitive_desc_destroy>;
using Primitive = Owned<dnnl_primitive_t, dnnl_primitive_destroy>;

dnnl_engine_t engine() {
  static const auto& one =
      core::never_destroyed<Engine>([](dnnl_engine_t* to) { return dnnl_engine_create(to, dnnl_cpu, 0); });
  return one.get();
}

dnnl_memory_desc_t describe(std::int64_t rows, std::int64_t columns, DType type, std::int64_t stride, bool transposed) {
  const dnnl_dims_t sizes = {rows, columns};
  const dnnl_dims_t strides = {transposed ? 1 : stride, transposed ? stride : 1};
  dnnl_memory_desc_t description;
  check(dnnl_memory_desc_init_by_strides(&description, 2, sizes, type == DType::bf16 ? dnnl_bf16 : dnnl_f32, strides));
  return description;
}

// Everything that a primitive depends on.
struct MatmulKind {
  std::array<std::int64_t, 6> sizes;  // m, n, k and row strides
  DType operands, result;
  bool a_transposed, b_transposed;
  float alpha, beta;
  int threads;
  bool operator==(const MatmulKind&) const = default;
};

MatmulKind kind_of(const BatchedProduct& p, int threads) {
  return {{p.m, p.n, p.k, p.a.row_stride, p.b.row_stride, p.c.row_stride},
          p.a.dtype,
          p.c.dtype,
          p.a.transposed,
          p.b.transposed,
          p.alpha,
          p.beta,
          threads};
}

std::size_t hash_of(const MatmulKind& k) {
  const auto& [m, n, depth, a, b, c] = k.sizes;
  return core::hash_of(m, n, depth, a, b, c, k.operands, k.result, k.a_transposed, k.b_transposed, k.alpha, k.beta,
                       k.threads);
}

struct Matmul {
  MatmulKind kind;
  dnnl_memory_desc_t a, b, c;
  Attributes attributes{dnnl_primitive_attr_create};
  PrimitiveDescriptor descriptor;
  dnnl_memory_desc_t scratch;
  Primitive primitive;

  template <class Request>
  bool answers(const Request& request) const {
    return kind == request.kind;
  }

  Matmul(const BatchedProduct& p, const MatmulKind& own)
      : kind(own),
        a(describe(p.m, p.k, p.a.dtype, p.a.row_stride, p.a.transposed)),
        b(describe(p.k, p.n, p.b.dtype, p.b.row_stride, p.b.transposed)),
        c(describe(p.m, p.n, p.c.dtype, p.c.row_stride, false)),
        descriptor([&](dnnl_primitive_desc_t* to) {
          set_attributes(p);
          dnnl_matmul_desc_t operation;
          check(dnnl_matmul_desc_init(&operation, &a, &b, nullptr, &c));
          return dnnl_primitive_desc_create(to, &operation, attributes.get(), engine(), nullptr);
        }),
        scratch(*dnnl_primitive_desc_query_md(descriptor.get(), dnnl_query_scratchpad_md, 0)),
        primitive([&](dnnl_primitive_t* to) { return dnnl_primitive_create(to, descriptor.get()); }) {}

  void set_attributes(const BatchedProduct& p) const {
    check(dnnl_primitive_attr_set_scratchpad_mode(attributes.get(), dnnl_scratchpad_mode_user));
    if (p.alpha != 1.0f) check(dnnl_primitive_attr_set_output_scales(attributes.get(), 1, 0, &p.alpha));
    if (p.beta == 0.0f) return;
    const PostOps added(dnnl_post_ops_create);
    check(dnnl_post_ops_append_sum(added.get(), p.beta));
    check(dnnl_primitive_attr_set_post_ops(attributes.get(), added.get()));
  }
};

using Matmuls = core::PlanCache<Matmul, 256>;

bool has(dnnl_cpu_isa_t isa) { return (dnnl_get_effective_cpu_isa() & isa) == isa; }

Matmuls::Held find_matmul(const BatchedProduct& p, int threads) {
  const MatmulKind kind = kind_of(p, threads);
  const struct {
    const MatmulKind& kind;
    std::size_t hash;
  } request{kind, hash_of(kind)};
  return Matmuls::instance().find(request, [&] { return std::make_shared<const Matmul>(p, kind); });
}

}  // namespace

OmpThreads::OmpThreads(int threads) : before_(omp_get_max_threads()) { omp_set_num_threads(threads); }
OmpThreads::~OmpThreads() { omp_set_num_threads(before_); }

bool has_avx512() { return has(dnnl_cpu_isa_avx512_core); }
bool has_bf16_products() { return has(dnnl_cpu_isa_avx512_core_bf16); }
bool has_amx_products() { return has(dnnl_cpu_isa_avx512_core_amx); }

void multiply_by_sgemm(const BatchedProduct& p, int threads) {
  const OmpThreads used(threads);
  const dnnl_status_t status =
      dnnl_sgemm(p.a.transposed ? 'T' : 'N', p.b.transposed ? 'T' : 'N', p.m, p.n, p.k, p.alpha,
                 static_cast<const float*>(p.a.data), p.a.row_stride, static_cast<const float*>(p.b.data),
                 p.b.row_stride, p.beta, static_cast<float*>(target_of(p.c)), p.c.row_stride);
  if (status != dnnl_success)
    core::fail({.problem = "oneDNN's sgemm failed", .got = "status " + std::to_string(static_cast<int>(status))});
}

void multiply_by_primitive(const BatchedProduct& p, int threads) {
  const OmpThreads used(threads);
  const Matmuls::Held held = find_matmul(p, threads);
  const Matmul& matmul = *held;
  const core::WorkspaceLease scratch(static_cast<std::int64_t>(dnnl_memory_desc_get_size(&matmul.scratch)), "product");
  const auto memory = [](const dnnl_memory_desc_t& description, const void* data) {
    return Memory(
        [&](dnnl_memory_t* to) { return dnnl_memory_create(to, &description, engine(), const_cast<void*>(data)); });
  };
  const Memory a = memory(matmul.a, p.a.data), b = memory(matmul.b, p.b.data), c = memory(matmul.c, p.c.data),
               scratchpad = memory(matmul.scratch, scratch.data());
  const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, a.get()},
                                       {DNNL_ARG_WEIGHTS, b.get()},
                                       {DNNL_ARG_DST, c.get()},
                                       {DNNL_ARG_SCRATCHPAD, scratchpad.get()}};
  const Stream stream([](dnnl_stream_t* to) { return dnnl_stream_create(to, engine(), dnnl_stream_default_flags); });
  check(dnnl_primitive_execute(matmul.primitive.get(), stream.get(), 4, arguments));
  check(dnnl_stream_wait(stream.get()));
}

}  // namespace fovea::linear::blas
