// Greedy: repeats each change while the case still fails, until no change helps.
#include "verification/shrink.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "verification/operation.h"
#include "verification/problem_line.h"

namespace fovea::verification {
namespace {

// Eighths that a step takes off a size: half, then one eighth, then (0) just one. At least 1 remains.
constexpr std::int64_t kEighths[] = {4, 1, 0};
std::int64_t less(std::int64_t size, std::int64_t eighths) {
  const std::int64_t step = eighths == 0 ? 1 : size / 8 * eighths + size % 8 * eighths / 8;
  return size > 1 && step < size ? size - step : size;
}

using Keys = std::vector<std::string_view>;  // keys that change together

// Every size alone; and before that, the size together with the sizes that copy it when the line leaves them out.
std::vector<Keys> sizes_of(const core::KeyTable& table) {
  std::vector<Keys> sizes;
  for (const core::Key& key : table.keys) {
    if (key.kind != core::KeyKind::count) continue;
    Keys together{key.name};
    for (const core::Key& other : table.keys) {
      if (other.fallback == key.name) together.push_back(other.name);
    }
    if (together.size() > 1) sizes.push_back(together);
    sizes.push_back({key.name});
  }
  return sizes;
}

Case resized(Case c, const Keys& keys, std::int64_t eighths) {
  for (const std::string_view key : keys) {
    const bool is_number = !c[key].empty() && c[key].find_first_not_of("0123456789") == std::string::npos;
    if (is_number) c.values.set(key, less(c.count(key), eighths));
  }
  return c;
}

bool stays(std::string_view key) { return key == "pass" || key == "device"; }

bool is_free_word(const Case& c, const core::Key& key) {
  return key.kind == core::KeyKind::word && !stays(key.name) && !c[key.name].empty();
}

// Sets another word with which fewer keys apply: a window becomes causal.
Case shortened(const Case& c, const core::Key& key, std::string_view word) {
  if (!is_free_word(c, key)) return c;
  const auto words = [](const Case& one) {
    return std::ranges::count_if(one.values.table().keys,
                                 [&](const core::Key& each) { return !one[each.name].empty(); });
  };
  Case changed = with_word(c, key.name, word);
  return words(changed) < words(c) ? changed : c;
}

Case simplified(Case c, const core::Key& key) {
  const core::KeyTable& table = c.values.table();
  if (is_free_word(c, key)) c = with_word(std::move(c), key.name, key.words.front());
  const bool follows = key.kind == core::KeyKind::count && table.find(key.fallback) != nullptr;
  if (follows && c.count(key.name) < c.count(key.fallback)) c.values.set(key.fallback, c.count(key.name));
  return c;
}

}  // namespace

Case shrunk(Case c, const std::function<bool(const Case&)>& fails, int tries) {
  bool smaller = true;
  // Applies a change while the case fails with it.
  const auto repeat = [&](const auto& change) {
    for (;;) {
      Case changed = change(c);
      if (changed == c || !fault_of(changed).empty() || tries-- <= 0 || !fails(changed)) return;
      c = std::move(changed);
      smaller = true;
    }
  };
  const core::KeyTable& table = c.values.table();
  while (smaller && tries > 0) {
    smaller = false;
    for (const std::int64_t eighths : kEighths) {
      for (const Keys& keys : sizes_of(table)) repeat([&](const Case& from) { return resized(from, keys, eighths); });
    }
    for (const core::Key& key : table.keys) {
      repeat([&](const Case& from) { return simplified(from, key); });
      for (const std::string_view word : key.words)
        repeat([&](const Case& from) { return shortened(from, key, word); });
    }
  }
  return c;
}

}  // namespace fovea::verification
