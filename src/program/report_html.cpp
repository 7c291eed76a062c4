// The page of a report: sections in reading order, pictures before tables.
#include "program/report_html.h"

#include <fmt/format.h>

#include "program/report_embedded.h"
#include "program/report_tables.h"

namespace fovea::program {
namespace {

std::string paragraph(std::string_view words, std::string_view style = "") {
  return fmt::format("<p{}>{}</p>\n", style.empty() ? "" : fmt::format(" class=\"{}\"", style), escape_html(words));
}

std::string html_list(const std::vector<std::string>& items) {
  std::string html = "<ul class=\"observations\">\n";
  for (const std::string& item : items) html += "<li>" + escape_html(item) + "</li>\n";
  return html + "</ul>\n";
}

std::string section(std::string_view id, std::string_view title) {
  return fmt::format("<h2 id=\"{}\">{}</h2>\n", escape_html(id), escape_html(title));
}

std::string to_html(const Picture& picture) {
  const std::string file = "pictures/" + picture.name;
  return fmt::format(
      "<figure class=\"picture\" id=\"picture-{}\">{}<figcaption>{} {}. <a href=\"{}.png\">PNG</a> <a "
      "href=\"{}.svg\">SVG</a>"
      "</figcaption></figure>\n",
      escape_html(picture.name), picture.svg, escape_html(picture.description), escape_html(picture.conditions),
      escape_html(file), escape_html(file));
}

std::string section_id(const PublishedPage& page) { return page.report->preset; }

std::string navigation(const Report& report) {
  std::string html = "<nav><div><a href=\"#summary-section\">Summary</a>";
  if (!report.pictures.drawn.empty()) html += "<a href=\"#pictures\">Pictures</a>";
  html +=
      "<a href=\"#times\">Times</a><a href=\"#memory-section\">Memory</a><a href=\"#accuracy-section\">Accuracy</a>";
  for (const PublishedPage& page : report.pages) {
    html += fmt::format("<a href=\"#{}\">Report {}</a>", section_id(page), page.report->letter);
  }
  return html +
         "<a href=\"#conditions\">Conditions</a><button id=\"theme\" type=\"button\">Light / "
         "dark</button></div></nav>\n";
}

std::string page_section(const Report& report, const PublishedPage& page) {
  std::string html = section(section_id(page), "Report " + page.report->letter + ": " + page.report->title);
  html += paragraph(
      fmt::format("Published on {}. {} of its {} figures were also measured here (fovea bench --preset {} "
                  "--scale full measures all).",
                  page.report->hardware, page.matches.size(), page.report->figures.size(), page.report->preset));
  html += paragraph(page.rule) + html_list(page.comparisons);
  for (const Picture& picture : report.pictures.drawn) {
    if (picture.name == "published-" + page.report->letter) html += to_html(picture);
  }
  for (const Table& table : page.tables) html += to_html(table);
  return html + paragraph("What the published figures do not say:") + html_list(page.findings);
}

std::string conditions_section(const Study& study) {
  std::string html = section("conditions", "Conditions");
  html += paragraph(
      "Every answer was checked against the definition in double precision before it was timed; a wrong "
      "one has no time. Flags: " +
      flags_legend() + ".");
  for (const Environment& environment : study.environments) {
    html += "<dl class=\"facts\">\n";
    const auto add = [&html](std::string_view name, std::string_view value) {
      html += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escape_html(name), escape_html(value));
    };
    add("machine", environment.machine);
    add("date", environment.date);
    add("command", environment.command);
    add("commit", environment.source.commit + (environment.source.dirty ? " (modified)" : ""));
    add("version", environment.version);
    add("threads", std::to_string(environment.threads));
    for (const auto& [name, value] : environment.facts) add(name, value);
    for (const auto& [name, value] : environment.ceilings) {
      const bool is_bandwidth = name.find("bandwidth") != std::string::npos;
      add("ceiling, " + name, is_bandwidth ? format_figure(value / 1e9) + " GB/s" : format_rate(value));
    }
    html += "</dl>\n";
  }
  return html;
}

std::string subtitle_of(const Study& study) {
  const std::vector<const Measured*> rows = study.all();
  return rows.empty() ? "no rows" : conditions_of(rows);
}

std::string body_of(const Report& report) {
  const Study& study = *report.study;
  std::string html = section("summary-section", "Summary");
  for (const std::string& warning : study.warnings) html += paragraph(warning, "notice");
  html += html_list(report.observations) + to_html(report.summary);
  if (!report.pictures.missing.empty()) html += paragraph(report.pictures.missing, "notice");
  if (!report.pictures.drawn.empty()) html += section("pictures", "Pictures");
  for (const Picture& picture : report.pictures.drawn) {
    if (picture.name.rfind("published-", 0) != 0) html += to_html(picture);
  }
  html += section("times", "Times");
  for (const Table& table : report.times) html += to_html(table);
  html += section("memory-section", "Memory") + to_html(report.memory);
  html += section("accuracy-section", "Accuracy") + to_html(report.accuracy);
  if (!report.failures.rows.empty()) html += section("failures", "Cells without a time") + to_html(report.failures);
  for (const PublishedPage& page : report.pages) html += page_section(report, page);
  return html + conditions_section(study);
}

}  // namespace

std::string to_html(const Report& report) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>Fovea report</title>\n"
      "<link rel=\"icon\" href=\"data:,\">\n<style>\n{}</style>\n</head>\n<body>\n"
      "<header><h1>Attention, measured</h1>\n{}{}</header>\n{}<main>\n{}</main>\n"
      "<footer><p class=\"quiet\">Made by fovea report from the records alone. Columns sort by a click on their head; "
      "all rows are in rows.csv.</p></footer>\n<script>\n{}</script>\n</body>\n</html>\n",
      kPageStyle, paragraph(subtitle_of(*report.study), "facts"), paragraph(report.headline, "headline"),
      navigation(report), body_of(report), kPageScript);
}

}  // namespace fovea::program
