// A layer's plan: the choices for its parts, and where its activations lie.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "attention/implementation.h"
#include "core/choose.h"
#include "layers/memory_map.h"
#include "layers/parts.h"
#include "linear/implementation.h"

namespace fovea::layers {

// What is planned: a problem, and the implementations that its parts are to have.
struct Request : LayerProblem {
  Request() = default;
  Request(const LayerProblem& problem, std::string_view attention, std::string_view product);
  bool operator==(const Request&) const = default;

  std::string attention_name, product_name;     // as requested; empty: any
  unsigned attentions = 0, products_known = 0;  // how often these lists have grown
};

using AttentionChoice = std::shared_ptr<const core::Choice<attention::Types>>;
using ProductChoice = std::shared_ptr<const core::Choice<linear::Types>>;

// Attention as a part: it writes or reads saved state only if it was named and has one.
AttentionProblem attention_part(const Request& request);
std::int64_t state_bytes(const Request& request);

struct Plan final : core::Plan {
  explicit Plan(const Request& request);  // throws Error(unsupported) if nothing takes a part
  std::string line() const override;

  struct Part {
    Product product;
    ProductChoice choice;
  };

  Request request;
  std::vector<Part> parts;      // in the order of products_of
  AttentionChoice attention{};  // null: backward without it, or nothing to write
  MemoryMap memory;
};

}  // namespace fovea::layers
