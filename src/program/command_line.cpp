// Refusals of the command line.
#include "program/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "core/problem_line.h"
#include "program/terminal_text.h"

namespace fovea::program {
namespace {

const CLI::App& innermost(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : innermost(*chosen.front());
}

std::vector<std::string> known_words(const CLI::App& app, bool option) {
  std::vector<std::string> words;
  if (option) {
    for (const CLI::Option* one : app.get_options()) {
      for (const auto& name : one->get_lnames()) words.push_back("--" + name);
    }
  } else {
    for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
      if (!verb->get_group().empty()) words.push_back(verb->get_name());
    }
  }
  return words;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// The key=value words, as a problem line.
std::string spaced(const std::vector<std::string>& words) {
  std::string line;
  for (const auto& word : words) {
    if (word.find('=') != std::string::npos && !word.starts_with("-")) line += (line.empty() ? "" : " ") + word;
  }
  return line;
}

// Rewords messages that CLI11 writes as arithmetic.
std::string plain_words(const std::string& what) {
  const std::string option = what.substr(0, what.find(':'));
  if (what == "A subcommand is required") return "a verb is missing";
  if (what.find(": At Most 1 required but received") != std::string::npos) return option + " is given more than once";
  if (what.ends_with(" missing") && what.find(" required ") != std::string::npos) return option + " has no value";
  if (const std::size_t at = what.find(" excludes "); at != std::string::npos)
    return what.substr(0, at) + " cannot be combined with " + what.substr(at + std::string_view(" excludes ").size());
  return what;
}

}  // namespace

std::string refusal_of(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& at = innermost(app);
  const std::string name = &at == &app ? app.get_name() : app.get_name() + " " + at.get_name();
  const std::string help = "\n  try:    " + name + " --help\n";
  const auto left = app.remaining(true);
  if (left.empty()) {
    std::string text = name + ": " + plain_words(error.what());
    std::replace(text.begin(), text.end(), '\n', ' ');
    text = wrapped(text, 2);
    return text + (&at == &app ? "\n  verbs:  " + joined(known_words(app, false)) : "") + help;
  }
  // Among the words after a verb, an option is to blame rather than the value after it.
  const auto fault = &at == &app
                         ? left.begin()
                         : std::find_if(left.begin(), left.end(), [](const auto& one) { return one.starts_with("-"); });
  const std::string& whole = fault == left.end() ? left.front() : *fault;
  const std::string word = whole.substr(0, whole.find('='));
  const bool option = word.starts_with("-");
  const std::vector<std::string> known = known_words(at, option);
  std::string near = core::nearest_word(word, known);
  const auto longer = std::find_if(known.begin(), known.end(), [&](const auto& one) { return one.starts_with(word); });
  if (near.empty() && word.size() > 2 && longer != known.end()) near = *longer;  // --vers
  const std::string kind = option ? "option" : &at == &app ? "verb" : "argument";
  const bool is_pair = kind == "argument" && word != whole && at.get_option_no_throw("--problem") != nullptr;
  if (is_pair) return name + ": unknown argument `" + whole + "`\n  hint:   --problem \"" + spaced(left) + "\"" + help;
  return name + ": unknown " + kind + " `" + word + "`" + (near.empty() ? "" : "; did you mean `" + near + "`?") + help;
}

std::vector<std::string> typed_words() {
  std::FILE* const file = std::fopen("/proc/self/cmdline", "r");
  std::string all;
  char buffer[4096];
  for (std::size_t got = 0; file != nullptr && (got = std::fread(buffer, 1, sizeof buffer, file)) > 0;)
    all.append(buffer, got);
  if (file != nullptr) std::fclose(file);
  std::vector<std::string> words;
  for (std::size_t at = 0; at < all.size(); at = all.find('\0', at) + 1) words.emplace_back(all.c_str() + at);
  return words;
}

std::string shell_line(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    const auto is_plain = [](char one) {
      return std::isalnum(static_cast<unsigned char>(one)) != 0 || std::strchr("_./=,:+@%-", one) != nullptr;
    };
    const bool quote = word.empty() || !std::all_of(word.begin(), word.end(), is_plain);
    std::string shown;
    for (const char one : word) shown += quote && one == '\'' ? "'\\''" : std::string(1, one);
    text += (text.empty() ? "" : " ") + (quote ? "'" + shown + "'" : shown);
  }
  return text;
}

std::string shareable_command(const std::vector<std::string>& words) {
  std::vector<std::string> shared;
  for (const std::string& word : words) {
    std::string kept;  // a word may have several paths: "--impl=/home/me/a.so:f,/b.so:g"
    for (std::size_t start = 0; start < word.size();) {
      const std::size_t end = std::min(word.find_first_of(",=", start), word.size() - 1) + 1;
      const std::string part = word.substr(start, end - start);
      const std::size_t slash = part.rfind('/');
      const bool glued = kept.empty() && part.starts_with("-o");  // -o/home/me/run.jsonl
      kept += slash == std::string::npos ? part : (glued ? "-o" : "") + part.substr(slash + 1);
      start = end;
    }
    shared.push_back(kept);
  }
  return shell_line(shared);
}

CLI::Validator not_empty() {
  const auto check = [](const std::string& text) { return std::string(text.empty() ? "is given an empty value" : ""); };
  return {check, ""};
}

CLI::Validator number_within(double least, double most) {
  const auto check = [least, most](const std::string& text) -> std::string {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (!text.empty() && *end == '\0' && value >= least && value <= most) return {};
    return fmt::format("got `{}`, wanted a number from {:g} to {:g}", text, least, most);
  };
  return {check, ""};
}

CLI::Validator whole_number_within(std::uint64_t least, std::uint64_t most) {
  const auto check = [least, most](const std::string& text) -> std::string {
    std::uint64_t value = 0;
    const auto error = std::from_chars(text.data(), text.data() + text.size(), value).ec;
    if (error == std::errc() && text == std::to_string(value) && value >= least && value <= most) return {};
    return fmt::format("got `{}`, wanted a whole number from {} to {} in plain decimal digits", text, least, most);
  };
  return {check, ""};
}

}  // namespace fovea::program
