// fovea report: records in, a folder with a page, Markdown, CSV and pictures out.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

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

void write(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path.string());
}

void write_tables(const Report& report, const fs::path& folder) {
  fs::create_directories(folder);
  std::vector<const Table*> tables{&report.summary, &report.memory, &report.accuracy, &report.failures};
  for (const Table& table : report.times) tables.push_back(&table);
  for (const PublishedPage& page : report.pages) {
    for (const Table& table : page.tables) tables.push_back(&table);
  }
  for (const Table* const table : tables) write(folder / (table->id + ".csv"), to_csv(*table));
}

int run_report(const ReportOptions& options) {
  const Study study = load_study(options.records, options.baseline);
  Report report = make_report(study);
  const fs::path folder = options.folder;
  fs::create_directories(folder);
  write(folder / "rows.csv", rows_csv(study));
  write_tables(report, folder / "tables");
  if (!options.no_pictures) {
    report.pictures =
        draw_pictures(describe_pictures(study, report.pages), (folder / "pictures").string(), options.python);
  }
  write(folder / "report.md", to_markdown(report));
  write(folder / "index.html", to_html(report));
  const std::string page = (folder / "index.html").string();
  if (options.json) {
    const nlohmann::ordered_json json{{"schema", "fovea.report/1"},
                                      {"page", page},
                                      {"headline", report.headline},
                                      {"observations", report.observations}};
    std::printf("%s\n", json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
  } else {
    std::printf("%s\n", report.headline.c_str());
    for (const std::string& said : report.observations) std::printf("- %s\n", said.c_str());
  }
  for (const std::string& warning : study.warnings) std::fprintf(stderr, "warning: %s\n", warning.c_str());
  if (!report.pictures.missing.empty()) std::fprintf(stderr, "%s\n", report.pictures.missing.c_str());
  if (!options.json) std::printf("%s\n", page.c_str());
  return 0;
}

}  // namespace

void add_report(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("report", "Tables and pictures of one or several records");
  static ReportOptions options;
  verb->add_option("records", options.records, "files that fovea bench wrote")->required()->check(CLI::ExistingFile);
  verb->add_option("-o,--output", options.folder, "folder to write")->capture_default_str();
  verb->add_option("--baseline", options.baseline, "implementation that speed-ups are over (default: naive)");
  verb->add_option("--python", options.python, "Python with matplotlib (default: FOVEA_PYTHON, build/venv, python3)");
  verb->add_flag("--no-pictures", options.no_pictures, "tables only");
  verb->add_flag("--json", options.json, "print one JSON object instead of text");
  verb->callback([&action] { action = [] { return run_report(options); }; });
}

}  // namespace fovea::program
