// fovea report: starts the Python package that makes reports from records (python/fovea_report).
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "core/printable.h"
#include "program/command_line.h"
#include "program/verbs.h"

namespace fovea::program {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHasModules =
    "import importlib.util as u; raise SystemExit(not all(map(u.find_spec, ('pandas', 'jinja2', 'matplotlib'))))";
constexpr const char* kStart =
    "import sys; sys.path.insert(0, sys.argv.pop(1)); import fovea_report.__main__ as m; sys.exit(m.main())";

struct ReportOptions {
  std::vector<std::string> records;
  std::string folder = "report";
  std::string baseline;
  std::string python;
  bool no_pictures = false, json = false;
};

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

bool can_report(const std::string& python) {
  std::vector<std::string> words{python, "-c", kHasModules};
  const std::vector<char*> arguments = pointers_to(words);
  const pid_t child = fork();
  if (child == 0) {
    std::freopen("/dev/null", "w", stderr);
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  int status = 1;
  if (child < 0 || waitpid(child, &status, 0) != child) return false;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// The Python that the option names. Otherwise the first with the needed packages: FOVEA_PYTHON, the set-up's virtual
// environment, python3 of the path. Empty if none has them.
std::string reporting_python(const std::string& named) {
  std::vector<std::string> candidates;
  const char* const told = std::getenv("FOVEA_PYTHON");
  if (!named.empty()) {
    candidates = {named};
  } else {
    if (told != nullptr && *told != '\0') candidates.emplace_back(told);
    candidates.insert(candidates.end(), {FOVEA_SOURCE_DIR "/build/venv/bin/python", "python3"});
  }
  for (const std::string& one : candidates) {
    if (can_report(one)) return one;
  }
  return {};
}

fs::path program_path() {
  std::error_code none;
  return fs::read_symlink("/proc/self/exe", none);
}

// The folder of the package: the configured one, or of the installation, or of the sources.
std::string package_folder() {
  if (const char* const told = std::getenv("FOVEA_PYTHON_FOLDER")) return told;
  std::error_code none;
  const fs::path installed = program_path().parent_path().parent_path() / "share" / "fovea" / "python";
  return fs::exists(installed / "fovea_report", none) ? installed.string() : FOVEA_SOURCE_DIR "/python";
}

int run_report(const ReportOptions& options) {
  const std::string python = reporting_python(options.python);
  if (python.empty()) {
    std::fprintf(stderr,
                 "fovea: no report: %s lacks pandas, jinja2 or matplotlib\n"
                 "  hint: scripts/setup installs them in build/venv, `pip install .[report]` in another Python;\n"
                 "        --python names that one\n",
                 options.python.empty() ? "every Python here" : core::printable(options.python).c_str());
    return 2;
  }
  std::vector<std::string> words{python, "-c",          kStart, package_folder(), "--program", program_path().string(),
                                 "-o",   options.folder};
  if (!options.baseline.empty()) words.insert(words.end(), {"--baseline", options.baseline});
  if (options.no_pictures) words.emplace_back("--no-pictures");
  if (options.json) words.emplace_back("--json");
  words.emplace_back("--");
  words.insert(words.end(), options.records.begin(), options.records.end());
  execvp(words[0].c_str(), pointers_to(words).data());
  std::fprintf(stderr, "fovea: %s could not be started: %s\n", python.c_str(), std::strerror(errno));
  return 2;
}

}  // namespace

void add_report(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("report", "Make tables and pictures from files of records");
  static ReportOptions options;
  verb->add_option("records", options.records, "files that fovea bench, profile or train wrote")
      ->required()
      ->check(CLI::ExistingFile)
      ->type_name("FILE");
  verb->add_option("-o,--output", options.folder, "folder to write to (report)")
      ->check(not_empty())
      ->type_name("FOLDER");
  verb->add_option("--baseline", options.baseline,
                   "implementation to compute speed-ups over (the\nfirst of the report, usually naive)")
      ->check(not_empty())
      ->type_name("NAME");
  verb->add_option("--python", options.python,
                   "Python with pandas, jinja2 and matplotlib\n(default: FOVEA_PYTHON, build/venv, python3)")
      ->check(not_empty())
      ->type_name("PATH");
  verb->add_flag("--no-pictures", options.no_pictures, "tables only");
  verb->add_flag("--json", options.json, "print one JSON object instead of text");
  verb->callback([&action] { action = [] { return run_report(options); }; });
}

}  // namespace fovea::program
