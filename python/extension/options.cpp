// Reads the arguments of a call beside its arrays, and refuses those that Python's types do not.
#include "options.h"

#include <cstdint>

namespace fovea::python {
namespace {

constexpr std::size_t kCausal = 0, kWindow = 1, kAlign = 2, kScale = 3, kLayout = 4, kImplementation = 5, kThreads = 6,
                      kStream = 7;

std::string text_of(nb::handle value) { return nb::repr(value).c_str(); }

[[noreturn]] void refuse_type(const char* name, nb::handle value, const char* wanted) {
  throw nb::type_error((std::string(name) + ": got " + text_of(value) + "; wanted " + wanted).c_str());
}

[[noreturn]] void refuse_value(const char* name, nb::handle value, const char* wanted) {
  throw nb::value_error((std::string(name) + ": got " + text_of(value) + "; wanted " + wanted).c_str());
}

template <class Value>
Value read(const char* name, nb::handle value, const char* wanted) {
  Value result{};
  if (nb::try_cast(value, result, false)) return result;
  PyErr_Clear();
  refuse_type(name, value, wanted);
}

// Also of types other than int that count as integers, such as numpy.int64.
template <class Integer>
Integer read_integer(const char* name, nb::handle value, const char* wanted) {
  const nb::object integer = nb::steal(PyNumber_Index(value.ptr()));
  if (!integer.is_valid()) PyErr_Clear();
  return read<Integer>(name, integer.is_valid() ? integer : nb::borrow(value), wanted);
}

double read_number(const char* name, nb::handle value, const char* wanted) {
  const bool is_text = nb::isinstance<nb::str>(value) || nb::isinstance<nb::bytes>(value);  // which float() parses
  const nb::object number = nb::steal(is_text ? nullptr : PyNumber_Float(value.ptr()));
  if (!number.is_valid()) PyErr_Clear();
  return read<double>(name, number.is_valid() ? number : nb::borrow(value), wanted);
}

// Also for words with letters that UTF-8 does not have.
bool is_word(nb::handle value, const char* word) {
  return nb::isinstance<nb::str>(value) && PyUnicode_CompareWithASCIIString(value.ptr(), word) == 0;
}

// Keys beside the row's own.
std::int64_t bound_of(nb::handle value) {
  constexpr const char* kWanted = "two numbers of keys, left and right of the row's own; None is no limit";
  if (value.is_none()) return Mask::kUnlimited;
  const auto keys = read_integer<std::int64_t>("window", value, kWanted);
  if (keys < 0 || keys > Mask::kLargestBound) refuse_value("window", value, kWanted);
  return keys;
}

Mask::Alignment alignment_of(nb::handle word) {
  if (word.is_none()) return Mask::Alignment::equal_lengths;
  if (is_word(word, "top_left")) return Mask::Alignment::top_left;
  if (is_word(word, "bottom_right")) return Mask::Alignment::bottom_right;
  refuse_value("align", word, "\"top_left\", \"bottom_right\", or None where lengths are equal");
}

void read_window(nb::handle window, Mask& mask) {
  if (window.is_none()) return;
  nb::tuple pair;
  if (nb::isinstance<nb::tuple>(window) || nb::isinstance<nb::list>(window)) pair = nb::tuple(window);
  if (pair.size() != 2) refuse_type("window", window, "a pair (left, right)");
  mask.left = bound_of(pair[0]), mask.right = bound_of(pair[1]);
}

Mask mask_of(nb::handle causal, nb::handle window, nb::handle align) {
  Mask mask{.alignment = alignment_of(align)};
  read_window(window, mask);
  if (read<bool>("causal", causal, "True or False")) {
    if (mask.right != 0 && mask.right != Mask::kUnlimited)
      refuse_value("window", window, "a right side of None or 0 with causal=True");
    mask.right = 0;
  }
  if (mask.left != Mask::kUnlimited || mask.right != Mask::kUnlimited) return mask;
  if (!align.is_none()) refuse_value("align", align, "None without a mask");
  return Mask::none;
}

Layout layout_of(nb::handle word) {
  if (is_word(word, "bhld")) return Layout::bhld;
  if (is_word(word, "blhd")) return Layout::blhd;
  refuse_value("layout", word, "\"bhld\" or \"blhd\"");
}

std::string implementation_of(nb::handle name) {
  constexpr const char* kWanted = "a name of fovea.implementations(), or None";
  if (!nb::isinstance<nb::str>(name)) refuse_type("implementation", name, kWanted);
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(name.ptr(), &size);
  if (text != nullptr) return {text, static_cast<std::size_t>(size)};
  PyErr_Clear();
  refuse_value("implementation", name, kWanted);
}

}  // namespace

Options::Options(const Words& words) : layout(layout_of(words[kLayout])) {
  attention.mask = mask_of(words[kCausal], words[kWindow], words[kAlign]);
  if (const nb::object scale = words[kScale]; !scale.is_none())
    attention.scale = read_number("scale", scale, "a number, or None for 1 / sqrt(columns of q)");
  if (const nb::object name = words[kImplementation]; !name.is_none()) {
    implementation = implementation_of(name);
    attention.implementation = implementation;
  }
  attention.threads = read_integer<int>("threads", words[kThreads], "a number of threads, 0 for the default");
  const nb::object stream = words[kStream];
  on_current_stream = stream.is_none();
  if (!on_current_stream)
    attention.stream = reinterpret_cast<void*>(read<std::uintptr_t>("stream", stream, "the address of a stream"));
}

void Options::check_alignment(std::int64_t queries, std::int64_t keys) const {
  if (attention.mask.alignment != Mask::Alignment::equal_lengths || queries == keys) return;
  const std::string sizes = std::to_string(queries) + " queries and " + std::to_string(keys) + " keys";
  throw nb::value_error(("align: got None with a mask, " + sizes +
                         "; wanted \"top_left\" or \"bottom_right\", where the last query sees the last key")
                            .c_str());
}

}  // namespace fovea::python
