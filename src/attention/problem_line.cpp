// Attention's keys: sizes, types, mask, layout; and the refusals of invalid combinations.
#include "attention/problem_line.h"

#include <algorithm>
#include <tuple>

#include "attention/mask_keys.h"
#include "attention/validate.h"
#include "core/check.h"
#include "core/names.h"
#include "core/never_destroyed.h"
#include "core/tensor_checks.h"

namespace fovea::core {
namespace {

LineFault overflow_of(const AttentionProblem& p, const LineValues& values) {
  const auto [size, largest] = std::max({std::pair{p.batch, "b"}, {p.heads_q, "hq"}, {p.len_q, "lq"}, {p.len_k, "lk"}});
  return {{largest, "lq", "hq"},
          "the product of the sizes overflows",
          line_of(values),
          "at most " + to_string(kMaxElements) + " elements and " + to_string(kMaxPairs) + " query-key pairs",
          ""};
}

std::optional<LineFault> fault_of(const LineValues& values) {
  const AttentionProblem p = attention_problem(values);
  if (p.heads_q > 0 && (p.heads_kv == 0 || p.heads_q % p.heads_kv != 0)) {
    return LineFault{{"hkv", "hq"},
                     "hq must be a multiple of hkv",
                     "hq=" + std::to_string(p.heads_q) + " hkv=" + std::to_string(p.heads_kv),
                     "hq % hkv == 0",
                     "leave hkv out for as many key heads as query heads"};
  }
  for (const auto& [name, other, dim] : {std::tuple{"d", "dv", p.dim_qk}, {"dv", "d", p.dim_v}}) {
    if (dim >= 1 && dim <= kMaxDim) continue;
    return LineFault{{name, other},
                     "a head dimension out of range",
                     std::string(name) + "=" + std::to_string(dim),
                     "1 to " + std::to_string(kMaxDim),
                     dim < 1 ? "" : "split it over several heads"};
  }
  if (auto fault = mask_fault_of(values, p.len_q, p.len_k)) return fault;
  if (!sizes_fit(p)) return overflow_of(p, values);
  return std::nullopt;
}

}  // namespace

const KeyTable& attention_keys() {
  static const auto& table = never_destroyed<KeyTable>([] {
    KeyTable made{"attention",
                  {pass_key(), Key{"b", KeyKind::count, "batch"}.printed({.noun = "batch"}),
                   Key{"hq", KeyKind::count, "query heads"}.printed({.noun = "heads"}).instead_of({"heads_q"}),
                   Key{"hkv", KeyKind::count, "key heads, a divisor of hq", {}, "hq"}
                       .printed({.noun = "key heads"})
                       .instead_of({"heads_kv"}),
                   Key{"lq", KeyKind::count, "query length"}
                       .printed({.noun = "length", .place = KeyPlace::axis})
                       .instead_of({"len_q", "len", "seqlen", "seqlen_q"}),
                   Key{"lk", KeyKind::count, "key length", {}, "lq"}
                       .printed({.noun = "key length", .place = KeyPlace::axis})
                       .instead_of({"len_k", "seqlen_k"}),
                   Key{"d", KeyKind::count, "head dimension of q and k"}
                       .printed({.place = KeyPlace::column})
                       .instead_of({"dim", "dim_qk", "head_dim", "headdim"}),
                   Key{"dv", KeyKind::count, "head dimension of v", {}, "d"}
                       .printed({.place = KeyPlace::column})
                       .instead_of({"dim_v"}),
                   dtype_key()},
                  fault_of};
    for (Key& key : mask_keys()) made.keys.push_back(std::move(key));
    made.keys.push_back({"layout", KeyKind::word, "order of the dimensions in memory", {"bhld", "blhd"}, "bhld"});
    made.keys.push_back(scale_key());
    made.keys.push_back(device_key());
    return made;
  }());
  return table;
}

AttentionProblem attention_problem(const LineValues& values) {
  AttentionProblem p{.pass = values["pass"] == "bwd" ? Pass::backward : Pass::forward,
                     .batch = values.count("b"),
                     .heads_q = values.count("hq"),
                     .heads_kv = values.count("hkv"),
                     .len_q = values.count("lq"),
                     .len_k = values.count("lk"),
                     .dim_qk = values.count("d"),
                     .dim_v = values.count("dv"),
                     .dtype = *dtype_of(values["dtype"]),
                     .mask = mask_of(values),
                     .scale = values.number("scale")};
  p.result_dtype = p.dtype;
  p.device.kind = *device_kind_of(values["device"]);
  return p;
}

LineValues values_of(const AttentionProblem& p) {
  LineValues values(attention_keys());
  values.set("pass", p.pass == Pass::backward ? "bwd" : "fwd");
  for (const auto& [key, size] : {std::pair{"b", p.batch},
                                  {"hq", p.heads_q},
                                  {"hkv", p.heads_kv},
                                  {"lq", p.len_q},
                                  {"lk", p.len_k},
                                  {"d", p.dim_qk},
                                  {"dv", p.dim_v}})
    values.set(key, size);
  values.set("dtype", std::string(name_of(p.dtype)));
  set_mask(values, p.mask);
  values.set("layout", "bhld");
  values.set("scale", p.scale);
  values.set("device", std::string(name_of(p.device.kind)));
  return values;
}

std::string line_of(const AttentionProblem& problem) { return line_of(values_of(problem)); }

}  // namespace fovea::core
