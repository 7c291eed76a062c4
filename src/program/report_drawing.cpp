// Running Python on the description of the pictures, and taking up what it drew.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/check.h"
#include "program/output_file.h"
#include "program/report_pictures.h"
#include "program/report_table.h"

namespace fovea::program {
namespace {

namespace fs = std::filesystem;

struct Outcome {
  int status = -1;
  std::string output;  // standard output and error
};

Outcome run(std::vector<std::string> words) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return {};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);  // nobody would take up what it draws
    dup2(ends[1], 1);
    dup2(ends[1], 2);
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  close(ends[1]);
  Outcome outcome;
  if (child > 0) {
    std::array<char, 4096> buffer{};
    for (ssize_t n = 0; (n = read(ends[0], buffer.data(), buffer.size())) > 0;) {
      outcome.output.append(buffer.data(), static_cast<std::size_t>(n));
    }
    int status = 0;
    waitpid(child, &status, 0);
    outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  }
  close(ends[0]);
  return outcome;
}

// The folder that holds the package fovea_report: the one told, else of an installation, else of the sources.
std::string package_folder() {
  if (const char* const told = std::getenv("FOVEA_PYTHON_FOLDER")) return told;
  std::error_code none;
  const fs::path program = fs::read_symlink("/proc/self/exe", none);
  const fs::path installed = program.parent_path().parent_path() / "share" / "fovea" / "python";
  return fs::exists(installed / "fovea_report", none) ? installed.string() : FOVEA_SOURCE_DIR "/python";
}

// Every picture in both forms.
std::vector<fs::path> files_of(const nlohmann::json& described, const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& one : described) {
    for (const char* end : {".svg", ".png"}) files.push_back(folder / (one.at("name").get<std::string>() + end));
  }
  return files;
}

bool is_drawn(const fs::path& file) {
  std::error_code missing;
  return fs::file_size(file, missing) > 0 && !missing;
}

bool can_draw(const std::string& python) { return run({python, "-c", "import matplotlib"}).status == 0; }

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// From a file of its own to a part of a page: without prologue and namespaces, both of which a page implies.
std::string inline_svg(const std::string& file, const std::string& label) {
  std::string svg = file.substr(std::min(file.find("<svg"), file.size()));
  for (const char* attribute : {" xmlns=\"", " xmlns:xlink=\""}) {
    const std::size_t start = svg.find(attribute);
    if (start == std::string::npos) continue;
    const std::size_t end = svg.find('"', start + std::string_view(attribute).size());
    svg.erase(start, end - start + 1);
  }
  return svg.empty() ? svg : svg.insert(4, " role=\"img\" aria-label=\"" + label + "\"");
}

}  // namespace

std::string drawing_python(const std::string& named) {
  if (!named.empty()) {
    if (can_draw(named)) return named;
    core::fail({Status::invalid_argument,
                "report",
                "python",
                "this Python cannot import matplotlib",
                named,
                "a Python that can",
                "make the environment of pictures with scripts/setup",
                {}});
  }
  std::vector<std::string> candidates;
  if (const char* const told = std::getenv("FOVEA_PYTHON"); told != nullptr && *told != '\0')
    candidates.push_back(told);
  candidates.push_back(FOVEA_SOURCE_DIR "/build/venv/bin/python");
  candidates.push_back("python3");
  for (const std::string& one : candidates) {
    if (can_draw(one)) return one;
  }
  return {};
}

Pictures draw_pictures(const std::string& description, const std::string& directory, const std::string& python) {
  const fs::path folder = directory;
  make_folder(folder);
  write_file(folder / "pictures.json", description + "\n");
  Pictures pictures;
  const auto described = nlohmann::json::parse(description).at("pictures");
  const std::vector<fs::path> files = files_of(described, folder);
  for (const fs::path& file : files) fs::remove(file);
  if (python.empty()) {
    pictures.missing = "Pictures need a Python with matplotlib: run scripts/setup, or name one with --python.";
    return pictures;
  }
  const std::string start =
      fmt::format("import sys; sys.path.insert(0, {}); from fovea_report.__main__ import main; main()",
                  nlohmann::json(package_folder()).dump());
  const Outcome outcome = run({python, "-c", start, (folder / "pictures.json").string(), folder.string()});
  if (outcome.status == kOutputLost) throw OutputLost(folder.string() + ": " + outcome.output);
  const auto undrawn = std::find_if(files.begin(), files.end(), [](const fs::path& file) { return !is_drawn(file); });
  if (outcome.status != 0 || undrawn != files.end()) {
    const std::string without =
        undrawn == files.end() ? "" : python + " left no " + undrawn->filename().string() + ". ";
    pictures.missing = "Drawing failed: " + without + outcome.output;
    return pictures;
  }
  for (const auto& one : described) {
    const std::string name = one.at("name"), title = one.at("title");
    pictures.drawn.push_back({name, title, one.at("conditions"), one.at("description"),
                              inline_svg(text_of(folder / (name + ".svg")), escape_html(title))});
  }
  return pictures;
}

}  // namespace fovea::program
