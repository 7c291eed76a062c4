// The report as Markdown: the same tables and sentences as the page.
#include <fmt/format.h>

#include "program/report_calls.h"
#include "program/report_html.h"
#include "program/report_observations.h"
#include "program/report_rates.h"
#include "program/report_tables.h"

namespace fovea::program {
namespace {

std::string markdown_list(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += "- " + item + "\n";
  return text.empty() ? text : text + "\n";
}

std::string picture(const Picture& one) {
  return fmt::format("![{}](pictures/{}.png)\n\n<sub>{} {}.</sub>\n\n", one.title, one.name,
                     escape_html(one.description), escape_html(one.conditions));
}

}  // namespace

Report make_report(const Study& study) {
  std::vector<Table> times = rate_tables(study);
  for (Table& table : call_tables(study)) times.push_back(std::move(table));
  for (Table& table : time_tables(study)) times.push_back(std::move(table));
  return {&study,
          headline_of(study),
          observations_of(study),
          summary_table(study),
          std::move(times),
          memory_table(study),
          accuracy_table(study),
          failures_table(study),
          published_pages(study),
          {}};
}

std::string to_markdown(const Report& report) {
  std::string text = "# Attention, measured\n\n" + report.headline + "\n\n";
  for (const std::string& warning : report.study->warnings) text += "> " + warning + "\n\n";
  text += markdown_list(report.observations) + to_markdown(report.summary);
  if (!report.pictures.missing.empty()) text += "> " + report.pictures.missing + "\n\n";
  for (const Picture& one : report.pictures.drawn) {
    if (one.name.rfind("published-", 0) != 0) text += picture(one);
  }
  text += "## Times\n\nFlags: " + flags_legend() + ".\n\n";
  for (const Table& table : report.times) text += to_markdown(table);
  text += "## Memory and accuracy\n\n" + to_markdown(report.memory) + to_markdown(report.accuracy);
  if (!report.failures.rows.empty()) text += to_markdown(report.failures);
  for (const PublishedPage& page : report.pages) {
    text += fmt::format("## Report {}: {}\n\nPublished on {}. {}\n\n", page.report->letter, page.report->title,
                        page.report->hardware, page.rule);
    text += markdown_list(page.comparisons);
    for (const Picture& one : report.pictures.drawn) {
      if (one.name == "published-" + page.report->letter) text += picture(one);
    }
    for (const Table& table : page.tables) text += to_markdown(table);
    text += "What the published figures do not say:\n\n" + markdown_list(page.findings);
  }
  return text;
}

}  // namespace fovea::program
