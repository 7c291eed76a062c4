// The `fovea` program: parses the verb, runs it, turns errors into one message and an exit code.
#include <cstdio>
#include <exception>

#include "fovea/error.h"
#include "fovea/version.h"
#include "program/record_file.h"
#include "program/verbs.h"

int main(int argc, char** argv) {
  using namespace fovea::program;
  CLI::App app{"Exact attention: check it, measure it, explain it, report it.", "fovea"};
  app.set_version_flag("--version", FOVEA_VERSION_STRING);
  app.require_subcommand(1);
  Action action;
  add_info(app, action);
  add_explain(app, action);
  add_bench(app, action);
  add_compare(app, action);
  add_worker(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return error.get_exit_code() == 0 ? app.exit(error) : (app.exit(error), 2);
  }
  try {
    return action();
  } catch (const fovea::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.status() == fovea::Status::invalid_argument ? 2 : 1;
  } catch (const RecordFileError& error) {
    std::fprintf(stderr, "fovea: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fovea: %s\n", error.what());
    return 1;
  }
}
