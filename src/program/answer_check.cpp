// The bridge from shared memory to the verification library.
#include "program/answer_check.h"

#include "core/float16.h"
#include "core/random.h"

namespace fovea::program {

void fill_inputs(const core::Case& c, const TensorPlaces& places, const SharedBlock& inputs) {
  for (const Name name : {Name::q, Name::k, Name::v, Name::dout}) {
    const auto& place = places[name];
    if (!place.present) continue;
    for (std::int64_t i = 0; i < place.bytes() / size_of(place.dtype); ++i) {
      core::store_from_float(inputs.data() + place.offset, place.dtype, i,
                             core::approximate_normal(core::philox(c.seed, static_cast<std::uint64_t>(name), i)));
    }
  }
}

AnswerCheck check_answer(const core::Case& c, const TensorPlaces& places, const SharedBlock& inputs,
                         const SharedBlock& outputs, bool lse_optional) {
  AnswerCheck result;
  const auto view = [&](Name name) { return view_of(places, name, inputs, outputs); };
  if (untouched(view(Name::out)) && c.pass != core::CasePass::bwd) result.wrong = "out was not written";
  if (!lse_optional && untouched(view(Name::lse))) result.wrong = "lse was not written";
  if (c.pass == core::CasePass::fwd) return result;
  for (const Name name : {Name::dq, Name::dk, Name::dv}) {
    if (untouched(view(name)))
      result.wrong = std::string(kTensorNames[static_cast<std::size_t>(name)]) + " was not written";
  }
  return result;
}

}  // namespace fovea::program
