// The tensors of a case, by name.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fovea/tensor.h"

namespace fovea::verification {

// Tensors that a call leaves out are not in the set.
class TensorSet {
 public:
  void add(std::string name, const MutableTensorView& view) { views_.emplace_back(std::move(name), view); }
  void remove(std::string_view name) {
    std::erase_if(views_, [name](const auto& one) { return one.first == name; });
  }
  const MutableTensorView* find(std::string_view name) const {
    for (const auto& [known, view] : views_) {
      if (known == name) return &view;
    }
    return nullptr;
  }
  // A null view if there is none.
  MutableTensorView operator[](std::string_view name) const {
    const MutableTensorView* const found = find(name);
    return found == nullptr ? MutableTensorView{} : *found;
  }
  const std::vector<std::pair<std::string, MutableTensorView>>& all() const { return views_; }

 private:
  std::vector<std::pair<std::string, MutableTensorView>> views_;
};

}  // namespace fovea::verification
