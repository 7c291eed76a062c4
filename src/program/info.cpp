// fovea info: what this machine grants and which implementation takes what.
#include <cstdio>

#include "fovea/attention.h"
#include "program/verbs.h"

namespace fovea::program {

void add_info(CLI::App& app, Action& action) {
  app.add_subcommand("info", "What this machine has, and what runs on it")->callback([&action] {
    action = [] {
      for (const auto& one : implementations()) {
        std::printf("%-24s %s\n", one.name.c_str(), one.unavailable.empty() ? "available" : one.unavailable.c_str());
      }
      return 0;
    };
  });
}

}  // namespace fovea::program
