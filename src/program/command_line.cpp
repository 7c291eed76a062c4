// Refusals of the command line.
#include "program/command_line.h"

#include <algorithm>

#include "core/problem_line.h"

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

}  // namespace

std::string refusal_of(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& at = innermost(app);
  const std::string name = &at == &app ? app.get_name() : app.get_name() + " " + at.get_name();
  const std::string help = "\n  try:    " + name + " --help\n";
  const auto left = app.remaining(true);
  if (left.empty()) {
    std::string text = name + ": " + error.what();
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text + (&at == &app ? "\n  verbs:  " + joined(known_words(app, false)) : "") + help;
  }
  const std::string word = left.front().substr(0, left.front().find('='));
  const bool option = word.starts_with("-");
  const std::string near = core::nearest_word(word, known_words(at, option));
  const std::string kind = option ? "option" : &at == &app ? "verb" : "argument";
  return name + ": unknown " + kind + " `" + word + "`" + (near.empty() ? "" : "; did you mean `" + near + "`?") + help;
}

}  // namespace fovea::program
