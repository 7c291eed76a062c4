// The verbs of the program. Each adds its subcommand, whose callback sets the action to run.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace fovea::program {

// Exit codes: 0 success, 1 a check failed or a comparison was slower, 2 bad usage or input, 3 output could not be
// written, 4 no such device, 130 interrupted.
using Action = std::function<int()>;

void add_info(CLI::App& app, Action& action);
void add_explain(CLI::App& app, Action& action);
void add_verify(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_compare(CLI::App& app, Action& action);
void add_report(CLI::App& app, Action& action);
void add_profile(CLI::App& app, Action& action);
void add_train(CLI::App& app, Action& action);
void add_worker(CLI::App& app, Action& action);  // hidden: the child process of the bench

}  // namespace fovea::program
