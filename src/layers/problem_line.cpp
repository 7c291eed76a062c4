// The keys of layers: attention's, the layer's widths, latents and biases; and which combinations are no problem.
#include "layers/problem_line.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "attention/mask_keys.h"
#include "core/check.h"
#include "core/names.h"
#include "core/never_destroyed.h"
#include "layers/norms.h"
#include "layers/projections.h"
#include "layers/validate.h"

namespace fovea::layers {
namespace {

using core::Key;
using core::KeyKind;
using core::KeyPlace;
using core::LineFault;
using core::LineValues;

constexpr std::array kKinds = {LayerKind::mha_fused, LayerKind::mha, LayerKind::gqa, LayerKind::mqa, LayerKind::mla};

LayerKind kind_of(const LineValues& values) {
  return *std::ranges::find(kKinds, values.table().operation, [](LayerKind kind) { return to_string(kind); });
}

bool has(const LineValues& values, std::string_view key) { return values.table().find(key) != nullptr; }
bool has_gradients(const LineValues& values) { return values["pass"] != "fwd"; }

bool rotates(const LineValues& values) { return values["rope"] != "no"; }
bool normalises(const LineValues& values) {
  return values["qk_norm"] == "yes" || (has(values, "latent_norm") && values["latent_norm"] == "yes");
}
std::int64_t shared_of(const LineValues& values) { return has(values, "d_shared") ? values.count("d_shared") : 0; }
bool chooses_columns(const LineValues& values) { return rotates(values) && shared_of(values) == 0; }

std::string width_of_heads(const LineValues& values) {
  std::int64_t width = 0;
  const bool fits = !__builtin_mul_overflow(values.count("hq"), values.count("d"), &width);
  return std::to_string(fits ? width : values.count("d"));
}

std::string whether_cross(const LineValues& values) {
  return values["lk"] == values["lq"] && values["ekv"] == values["e"] ? "no" : "yes";
}

std::optional<LineFault> head_fault_of(const LayerProblem& p) {
  if (p.heads_kv >= 1 && p.heads_q % p.heads_kv == 0) return std::nullopt;
  return LineFault{{"hkv", "hq"},
                   "hq must be a multiple of hkv",
                   "hq=" + std::to_string(p.heads_q) + " hkv=" + std::to_string(p.heads_kv),
                   "hq % hkv == 0, hkv of 1 or more",
                   "op=mha has as many key heads as query heads"};
}

std::optional<LineFault> size_fault_of(const LineValues& values) {
  for (const std::string_view key : {"hq", "e", "ekv", "d", "dv", "latent", "latent_kv"}) {
    if (!has(values, key)) continue;
    const bool is_dim = key == "d" || key == "dv";
    const std::int64_t size = values.count(key);
    if (size >= 1 && (!is_dim || size <= kMaxDim)) continue;
    return LineFault{{key},
                     "a size out of range",
                     std::string(key) + "=" + std::to_string(size),
                     is_dim ? "1 to " + std::to_string(kMaxDim) : "1 or more",
                     ""};
  }
  return std::nullopt;
}

std::optional<LineFault> rotary_fault_of(const LayerProblem& p) {
  if (p.dim_shared > 0 && (!p.rotary || p.dim_shared >= p.dim_qk || p.norms.q.given))
    return LineFault{{"d_shared", "rope", "qk_norm"},
                     "a shared key is some columns of each head, rotated and not normalised",
                     "d_shared=" + std::to_string(p.dim_shared) + " d=" + std::to_string(p.dim_qk),
                     "d_shared < d, rope=interleaved or halves, qk_norm=no",
                     ""};
  if (!p.rotary) return std::nullopt;
  const Rotary& r = *p.rotary;
  const std::int64_t most = p.dim_shared > 0 ? p.dim_shared : p.dim_qk;
  if (r.columns < 2 || r.columns > most || r.columns % 2 != 0)
    return LineFault{{p.dim_shared > 0 ? "d_shared" : "rope_dim", "d", "rope"},
                     "rotated columns make pairs within a head",
                     std::to_string(r.columns) + " of " + std::to_string(most) + " columns",
                     "an even number of columns, 2 or more",
                     ""};
  if (!(std::isfinite(r.theta) && r.theta >= 1))
    return LineFault{{"theta"}, "the base of the angles is out of range", std::to_string(r.theta), "1 or more", ""};
  const std::int64_t longest = std::max(p.len_q, p.len_k);
  if (longest > Rotary::kMaxPosition || std::max(r.position_q, r.position_k) > Rotary::kMaxPosition - longest)
    return LineFault{{"pos", "pos_k", "lq"},
                     "positions out of range",
                     "pos=" + std::to_string(r.position_q) + " pos_k=" + std::to_string(r.position_k),
                     "the last one up to " + std::to_string(Rotary::kMaxPosition),
                     ""};
  return std::nullopt;
}

std::optional<LineFault> fault_of(const LineValues& values) {
  if (auto fault = size_fault_of(values)) return fault;
  const LayerProblem p = problem_of(values);
  if (auto fault = rotary_fault_of(p)) return fault;
  if (p.epsilon != 0 && !(std::isfinite(p.epsilon) && p.epsilon > 0))
    return LineFault{{"eps"}, "epsilon of the norms out of range", std::to_string(p.epsilon), "above 0", ""};
  if (auto fault = head_fault_of(p)) return fault;
  if (!p.cross && (p.len_k != p.len_q || p.width_kv != p.width))
    return LineFault{{"cross", "lk", "ekv"},
                     "keys of x itself have its length and width",
                     "cross=no lq=" + std::to_string(p.len_q) + " lk=" + std::to_string(p.len_k) +
                         " e=" + std::to_string(p.width) + " ekv=" + std::to_string(p.width_kv),
                     "lk == lq and ekv == e, or cross=yes",
                     ""};
  if (auto fault = core::mask_fault_of(values, p.len_q, p.len_k)) return fault;
  if (sizes_fit(p)) return std::nullopt;
  return LineFault{{"lq", "e"},
                   "the product of the sizes overflows",
                   core::line_of(values),
                   "sizes whose tensors and multiply-adds can be counted",
                   ""};
}

void add_size_keys(LayerKind kind, std::vector<Key>& keys) {
  const bool fused = kind == LayerKind::mha_fused, latent = kind == LayerKind::mla;
  keys.push_back(Key{"b", KeyKind::count, "batch"}.printed({.noun = "batch"}));
  keys.push_back(Key{"hq", KeyKind::count, "query heads"}.printed({.noun = "heads"}));
  if (kind == LayerKind::gqa)
    keys.push_back(Key{"hkv", KeyKind::count, "key heads, a divisor of hq", {}, "hq"}
                       .printed({.noun = "key heads"})
                       .needed("hq=32 hkv=8"));
  keys.push_back(Key{"lq", KeyKind::count, "length of x"}.printed({.noun = "length", .place = KeyPlace::axis}));
  if (!fused)
    keys.push_back(
        Key{"lk", KeyKind::count, "length of x_kv", {}, "lq"}.printed({.noun = "key length", .place = KeyPlace::axis}));
  keys.push_back(Key{"d", KeyKind::count, "head dimension of q and k"}.printed({.place = KeyPlace::column}));
  if (!fused)
    keys.push_back(Key{"dv", KeyKind::count, "head dimension of v", {}, "d"}.printed({.place = KeyPlace::column}));
  keys.push_back(
      Key{"e", KeyKind::count, "width of x and y", {}, "hq*d", width_of_heads}.printed({.place = KeyPlace::column}));
  if (!fused) keys.push_back(Key{"ekv", KeyKind::count, "width of x_kv", {}, "e"}.printed({.place = KeyPlace::column}));
  if (!latent) return;
  keys.push_back(Key{"latent", KeyKind::count, "columns of the latent of q"}
                     .printed({.place = KeyPlace::column})
                     .needed("hq=32 d=128 latent=512"));
  keys.push_back(Key{"latent_kv", KeyKind::count, "columns of the latent of k and v", {}, "latent"}.printed(
      {.place = KeyPlace::column}));
}

void add_row_keys(LayerKind kind, std::vector<Key>& keys) {
  const auto key = [&keys](Key one) { keys.push_back(std::move(one)); };
  key({"rope",
       KeyKind::word,
       "rotary embedding of q and k, and which columns form a pair",
       {"no", "interleaved", "halves"},
       "no"});
  if (kind == LayerKind::mla)
    key({"d_shared",
         KeyKind::count,
         "columns of each head that one rotary key of all heads has",
         {},
         "0",
         nullptr,
         rotates});
  key({"theta", KeyKind::number, "base of the angles", {}, "10000", nullptr, rotates});
  key({"rope_dim", KeyKind::count, "rotated columns of a head, from its first on", {}, "d", nullptr, chooses_columns});
  key({"pos", KeyKind::count, "position of the first row of q", {}, "0", nullptr, rotates});
  key({"pos_k", KeyKind::count, "position of the first row of k", {}, "pos", nullptr, rotates});
  key({"qk_norm", KeyKind::word, "RMS norm of each head of q and k", {"no", "yes"}, "no"});
  if (kind == LayerKind::mla) key({"latent_norm", KeyKind::word, "RMS norm of both latents", {"no", "yes"}, "no"});
  key({"eps", KeyKind::number, "epsilon of the norms", {}, "1e-06", nullptr, normalises});
}

core::KeyTable table_of(LayerKind kind) {
  core::KeyTable table{to_string(kind), {core::pass_key()}, fault_of};
  std::vector<Key>& keys = table.keys;
  add_size_keys(kind, keys);
  keys.push_back(core::dtype_key());
  for (Key& key : core::mask_keys()) keys.push_back(std::move(key));
  if (kind != LayerKind::mha_fused)
    keys.push_back({"cross",
                    KeyKind::word,
                    "take keys and values from another sequence, x_kv",
                    {"no", "yes"},
                    "yes where lk or ekv say so",
                    whether_cross});
  keys.push_back({"bias", KeyKind::word, "every projection has a bias", {"no", "yes"}, "no"});
  add_row_keys(kind, keys);
  keys.push_back({"accumulate",
                  KeyKind::word,
                  "add gradients of parameters, which are then fp32, to what is there",
                  {"no", "yes"},
                  "no",
                  nullptr,
                  has_gradients});
  keys.push_back(core::scale_key());
  keys.push_back(core::device_key());
  return table;
}

}  // namespace

const core::KeyTable& layer_keys(LayerKind kind) {
  static const auto& tables = core::never_destroyed<std::array<core::KeyTable, kKinds.size()>>([] {
    std::array<core::KeyTable, kKinds.size()> made;
    for (const LayerKind one : kKinds) made[static_cast<std::size_t>(one)] = table_of(one);
    return made;
  }());
  return tables[static_cast<std::size_t>(kind)];
}

namespace {

void take_row_keys(const LineValues& values, LayerProblem& p) {
  if (rotates(values)) {
    p.dim_shared = shared_of(values);
    p.rotary = Rotary{.theta = values.number("theta"),
                      .pairs = values["rope"] == "halves" ? RotaryPairs::halves : RotaryPairs::interleaved,
                      .columns = p.dim_shared > 0 ? p.dim_shared : values.count("rope_dim"),
                      .position_q = values.count("pos"),
                      .position_k = values.count("pos_k")};
  }
  const NormFacts facts{true, p.pass == Pass::backward};
  if (values["qk_norm"] == "yes") p.norms.q = p.norms.k = facts;
  if (has(values, "latent_norm") && values["latent_norm"] == "yes") p.norms.q_latent = p.norms.kv_latent = facts;
  if (normalises(values)) p.epsilon = values.number("eps");
}

void set_row_keys(const LayerProblem& p, LineValues& values) {
  values.set("rope", std::string(p.rotary ? to_string(p.rotary->pairs) : "no"));
  if (p.rotary) {
    if (has(values, "d_shared")) values.set("d_shared", p.dim_shared);
    if (p.dim_shared == 0) values.set("rope_dim", p.rotary->columns);
    values.set("theta", p.rotary->theta);
    values.set("pos", p.rotary->position_q);
    values.set("pos_k", p.rotary->position_k);
  }
  const auto word = [](bool given) { return std::string(given ? "yes" : "no"); };
  values.set("qk_norm", word(p.norms.q.given || p.norms.k.given));
  if (has(values, "latent_norm")) values.set("latent_norm", word(p.norms.q_latent.given || p.norms.kv_latent.given));
  if (p.epsilon != 0) values.set("eps", p.epsilon);
}

}  // namespace

LayerProblem problem_of(const LineValues& values) {
  const auto count_or = [&](std::string_view key, std::int64_t other) {
    return has(values, key) ? values.count(key) : other;
  };
  LayerProblem p{.kind = kind_of(values),
                 .pass = values["pass"] == "bwd" ? Pass::backward : Pass::forward,
                 .batch = values.count("b"),
                 .len_q = values.count("lq"),
                 .width = values.count("e"),
                 .heads_q = values.count("hq"),
                 .dim_qk = values.count("d"),
                 .latent_q = count_or("latent", 0),
                 .latent_kv = count_or("latent_kv", 0),
                 .dtype = *core::dtype_of(values["dtype"]),
                 .mask = core::mask_of(values),
                 .scale = values.number("scale"),
                 .cross = has(values, "cross") && values["cross"] == "yes",
                 .saves = values["pass"] != "fwd"};
  p.len_k = count_or("lk", p.len_q);
  p.width_kv = count_or("ekv", p.width);
  p.dim_v = count_or("dv", p.dim_qk);
  p.heads_kv = count_or("hkv", p.kind == LayerKind::mqa ? 1 : p.heads_q);
  p.device.kind = *core::device_kind_of(values["device"]);
  p.result_dtype = p.parameter_dtype = p.dtype;
  const bool backward = p.pass == Pass::backward, bias = values["bias"] == "yes";
  if (backward && values["accumulate"] == "yes") p.accumulate = true, p.parameter_dtype = DType::fp32;
  p.wants_dx = backward;
  p.wants_dx_kv = backward && p.cross;
  for (const Step& step : steps_of(p)) at(p.projections, step.slot) = {!backward && bias, backward, backward && bias};
  take_row_keys(values, p);
  return p;
}

std::string line_of(const LayerProblem& p) {
  const bool backward = p.pass == Pass::backward;
  LineValues values(layer_keys(p.kind));
  values.set("pass", std::string(backward ? "bwd" : "fwd"));
  for (const auto& [key, size] : {std::pair{"b", p.batch},
                                  {"hq", p.heads_q},
                                  {"hkv", p.heads_kv},
                                  {"lq", p.len_q},
                                  {"lk", p.len_k},
                                  {"d", p.dim_qk},
                                  {"dv", p.dim_v},
                                  {"e", p.width},
                                  {"ekv", p.width_kv},
                                  {"latent", p.latent_q},
                                  {"latent_kv", p.latent_kv}})
    if (has(values, key)) values.set(key, size);
  values.set("dtype", std::string(core::name_of(p.dtype)));
  core::set_mask(values, p.mask);
  if (has(values, "cross")) values.set("cross", std::string(p.cross ? "yes" : "no"));
  const bool bias = std::ranges::any_of(
      kAllSlots, [&](Slot slot) { return at(p.projections, slot).bias || at(p.projections, slot).wants_dbias; });
  values.set("bias", std::string(bias ? "yes" : "no"));
  set_row_keys(p, values);
  if (backward) values.set("accumulate", std::string(p.accumulate ? "yes" : "no"));
  values.set("scale", p.scale);
  values.set("device", std::string(core::name_of(p.device.kind)));
  return core::line_of(values);
}

}  // namespace fovea::layers
