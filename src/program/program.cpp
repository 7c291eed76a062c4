// Parses the verb, runs it, turns errors into one message and an exit code.
#include "program/program.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>
#include <system_error>

#include "baselines/baselines.h"
#include "baselines/cuda/baselines.h"
#include "core/check.h"
#include "core/printable.h"
#include "fovea/error.h"
#include "fovea/version.h"
#include "linear/blas/blas.h"
#include "program/command_line.h"
#include "program/output_file.h"
#include "program/terminal_text.h"
#include "program/verbs.h"
#include "program/worker/device_layers.h"
#include "program/worker/device_reference.h"
#include "verification/attention/operation.h"
#include "verification/layers/operation.h"
#include "verification/linear/operation.h"
#include "verification/model/operation.h"

namespace {

int exit_code(fovea::Status status) { return status == fovea::Status::invalid_argument ? 2 : 1; }

// For a terminal: values of the lines got, wanted and hint go on below their start. A replay stays on one line, to be
// copied.
std::string message_of(const fovea::Error& error) {
  constexpr std::size_t kValues = 10;
  const std::string text = fovea::core::printable_lines(error.what());
  std::string message;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    const std::string line = text.substr(start, end - start);
    const bool copied = line.starts_with("  replay") || line.starts_with("  problem");
    message += (copied ? line : fovea::program::wrapped(line, start == 0 ? 2 : kValues)) + "\n";
    start = end + 1;
  }
  return message;
}

[[noreturn]] void fail_for_memory(const std::string& verb, std::string_view wish) {
  fovea::core::fail({.status = fovea::Status::out_of_memory,
                     .argument = verb,
                     .problem = "no memory for " + std::string(wish),
                     .hint = "see `fovea info` (free memory) and `ulimit -v` (limit of the shell)"});
}

int run(int argc, char** argv) {
  using namespace fovea::program;
  fovea::linear::register_host_libraries(fovea::linear::blas::libraries());
  fovea::linear::blas::register_bare_calls();
  fovea::attention::register_implementations(fovea::baselines::implementations());
  fovea::attention::register_implementations(fovea::cuda::baselines::implementations());
  fovea::verification::evaluate_attention_by(reference_evaluator);
  fovea::verification::evaluate_layers_by(layer_evaluator);
  fovea::verification::register_operation(fovea::verification::linear_operation());
  fovea::verification::register_layers();
  fovea::verification::register_operation(fovea::verification::model_operation());
  CLI::App app{"Checks, measures and explains exact attention and layers; trains a transformer.", "fovea"};
  app.set_version_flag("--version", FOVEA_VERSION_STRING);
  app.require_subcommand(1);
  Action action;
  add_info(app, action);
  add_explain(app, action);
  add_verify(app, action);
  add_bench(app, action);
  add_compare(app, action);
  add_profile(app, action);
  add_train(app, action);
  add_worker(app, action);
  add_report(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::fputs(fovea::core::printable_lines(refusal_of(app, error)).c_str(), stderr);
    return 2;
  }
  const std::string verb = app.get_subcommands().front()->get_name();
  try {
    return action();
  } catch (const std::bad_alloc&) {
    fail_for_memory(verb, "another allocation");
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again) throw;
    fail_for_memory(verb, "another thread or process");
  }
}

// Fails if stdout could not be written, unless the reader of a pipe has closed it.
int end_output(int code) {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  const int error = errno;
  struct stat status {};
  const bool piped = fstat(STDOUT_FILENO, &status) == 0 && (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode));
  if (error == EPIPE || piped) return code;
  std::fprintf(stderr, "fovea: the output could not be written: %s\n", std::strerror(error == 0 ? EIO : error));
  return fovea::program::kOutputLost;
}

}  // namespace

int fovea::program::run_program(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // after `| head` ends, the work continues without output
  std::signal(SIGXFSZ, SIG_IGN);  // at the file size limit, write() fails instead
  // Short output is written once, at the end, where a failure is told with its reason.
  static char output[1 << 16];
  if (isatty(STDOUT_FILENO) == 0) std::setvbuf(stdout, output, _IOFBF, sizeof output);
  int code = 1;
  try {
    code = run(argc, argv);
  } catch (const fovea::Error& error) {
    std::fputs(message_of(error).c_str(), stderr);
    code = exit_code(error.status());
  } catch (const fovea::program::FileRefused& error) {
    std::fprintf(stderr, "fovea: %s\n", fovea::core::printable_lines(error.what()).c_str());
    code = 2;
  } catch (const fovea::program::OutputLost& error) {
    std::fprintf(stderr, "fovea: the output could not be written: %s\n",
                 fovea::core::printable_lines(error.what()).c_str());
    code = fovea::program::kOutputLost;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fovea: %s\n", fovea::core::printable_lines(error.what()).c_str());
  }
  return end_output(code);
}
