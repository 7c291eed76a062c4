// fovea report: records in, a folder with a page, Markdown, CSV and pictures out.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/printable.h"
#include "program/command_line.h"
#include "program/output_file.h"
#include "program/report_html.h"
#include "program/report_tables.h"
#include "program/verbs.h"

namespace fovea::program {
namespace {

namespace fs = std::filesystem;

struct ReportOptions {
  std::vector<std::string> records;
  std::string folder = "report";
  std::string baseline;
  std::string python;
  bool no_pictures = false, json = false;
};

// The folder that a report is written to. It keeps a list of what a report put there, so that the next one takes that
// away and nothing else.
class ReportFolder {
 public:
  explicit ReportFolder(const fs::path& path) : path_(path) {
    try {
      make_folder(path_ / "tables");
    } catch (const fs::filesystem_error& failed) {
      core::fail({Status::invalid_argument,
                  "report",
                  "--output",
                  "no folder: " + failed.code().message(),
                  path_.string(),
                  "the name of a folder that can be written to",
                  {},
                  {}});
    }
    remove_earlier();
  }

  const fs::path& path() const { return path_; }

  void write(const std::string& name, const std::string& text) {
    write_file(path_ / name, text);
    made(name);
  }

  // Something else wrote this file. The list grows line by line, so that it is true even after an interruption.
  void made(const std::string& name) { write_file(path_ / kList, name + "\n", WriteMode::at_end); }

 private:
  static constexpr const char* kList = "files.txt";

  void remove_earlier() {
    std::ifstream list(path_ / kList);
    std::error_code none;
    for (std::string name; std::getline(list, name);) {
      const fs::path file = fs::path(name).lexically_normal();
      if (!file.empty() && file.is_relative() && *file.begin() != "..") fs::remove(path_ / file, none);
    }
    list.close();
    fs::remove(path_ / kList, none);
  }

  fs::path path_;
};

void write_tables(const Report& report, ReportFolder& folder) {
  std::vector<const Table*> tables{&report.summary, &report.memory, &report.accuracy, &report.failures};
  for (const Table& table : report.times) tables.push_back(&table);
  for (const PublishedPage& page : report.pages) {
    for (const Table& table : page.tables) tables.push_back(&table);
  }
  for (const Table* const table : tables) folder.write("tables/" + table->id + ".csv", to_csv(*table));
}

int run_report(const ReportOptions& options) {
  const Study study = load_study(options.records, options.baseline);
  Report report = make_report(study);
  const std::string python = options.no_pictures ? "" : drawing_python(options.python);
  ReportFolder folder(options.folder);
  folder.write("rows.csv", rows_csv(study));
  write_tables(report, folder);
  if (!options.no_pictures) {
    report.pictures =
        draw_pictures(describe_pictures(study, report.pages), (folder.path() / "pictures").string(), python);
    folder.made("pictures/pictures.json");
    for (const Picture& picture : report.pictures.drawn) {
      for (const char* end : {".svg", ".png"}) folder.made("pictures/" + picture.name + end);
    }
  }
  folder.write("report.md", to_markdown(report));
  folder.write("index.html", to_html(report));
  const std::string page = (folder.path() / "index.html").string();
  if (options.json) {
    const nlohmann::ordered_json json{{"schema", "fovea.report/1"},
                                      {"page", page},
                                      {"headline", report.headline},
                                      {"observations", report.observations}};
    std::printf("%s\n", json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
  } else {
    std::printf("%s\n", core::printable(report.headline).c_str());
    for (const std::string& said : report.observations) std::printf("- %s\n", core::printable(said).c_str());
  }
  for (const std::string& warning : study.warnings) std::fprintf(stderr, "warning: %s\n", warning.c_str());
  if (!report.pictures.missing.empty())
    std::fprintf(stderr, "%s\n", core::printable_lines(report.pictures.missing).c_str());
  if (!options.json) std::printf("%s\n", page.c_str());
  return 0;
}

}  // namespace

void add_report(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("report", "Tables and pictures of one or several records");
  static ReportOptions options;
  verb->add_option("records", options.records, "files that fovea bench wrote")->required()->check(CLI::ExistingFile);
  verb->add_option("-o,--output", options.folder, "folder to write")->check(not_empty())->capture_default_str();
  verb->add_option("--baseline", options.baseline, "implementation that speed-ups are over (default: naive)")
      ->check(not_empty());
  auto* python = verb->add_option("--python", options.python,
                                  "Python with matplotlib (default: FOVEA_PYTHON, build/venv, python3)")
                     ->check(not_empty());
  verb->add_flag("--no-pictures", options.no_pictures, "tables only")->excludes(python);
  verb->add_flag("--json", options.json, "print one JSON object instead of text");
  verb->callback([&action] { action = [] { return run_report(options); }; });
}

}  // namespace fovea::program
