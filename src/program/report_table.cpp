// Printing of tables.
#include "program/report_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/printable.h"

namespace fovea::program {
namespace {

std::string escape_markdown(std::string_view text) {
  std::string escaped;
  for (const char c : core::printable_lines(text)) {
    if (c == '|' || c == '\\' || c == '<' || c == '`') escaped += '\\';
    escaped += c == '\n' ? ' ' : c;
  }
  return escaped;
}

std::string head_of(const Column& column) {
  return column.unit.empty() ? column.head : column.head + " (" + column.unit + ")";
}

std::string_view class_of(Emphasis emphasis) {
  switch (emphasis) {
    case Emphasis::none:
      return "";
    case Emphasis::best:
      return "best";
    case Emphasis::loss:
      return "loss";
    case Emphasis::muted:
      return "muted";
    case Emphasis::word:
      return "word";
  }
  return "";
}

std::string html_of(const Cell& cell, const Column& column) {
  std::string classes = column.number ? "n" : "t";
  if (const auto word = class_of(cell.emphasis); !word.empty()) classes += " " + std::string(word);
  std::string html = "<td class=\"" + classes + "\"";
  if (!std::isnan(cell.value)) html += fmt::format(" data-value=\"{:.9g}\"", cell.value);
  if (!cell.note.empty()) html += " title=\"" + escape_html(cell.note) + "\"";
  html += ">";
  const std::string text = escape_html(cell.text);
  html += cell.emphasis == Emphasis::best ? "<b>" + text + "</b>" : text;
  if (!cell.detail.empty()) html += "<small>" + escape_html(cell.detail) + "</small>";
  return html + "</td>";
}

}  // namespace

std::string to_markdown(const Table& table) {
  std::string text = "### " + escape_markdown(table.title) + "\n\n";
  if (table.columns.empty()) return text;
  std::string rule = "|";
  text += "|";
  for (const Column& column : table.columns) {
    text += " " + escape_markdown(head_of(column)) + " |";
    rule += column.number ? "---:|" : "---|";
  }
  text += "\n" + rule + "\n";
  for (const auto& row : table.rows) {
    text += "|";
    for (const Cell& cell : row) {
      std::string one = escape_markdown(cell.text);
      if (cell.emphasis == Emphasis::best) one = "**" + one + "**";
      if (!cell.detail.empty()) one += " (" + escape_markdown(cell.detail) + ")";
      text += " " + one + " |";
    }
    text += "\n";
  }
  return text + "\n" + (table.conditions.empty() ? "" : "<sub>" + escape_html(table.conditions) + "</sub>\n\n");
}

std::string to_csv(const Table& table) {
  std::string text;
  for (const Column& column : table.columns) text += (text.empty() ? "" : ",") + escape_csv(head_of(column));
  text += "\n";
  for (const auto& row : table.rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i > 0) line += ",";
      line += std::isnan(row[i].value) ? escape_csv(row[i].text) : fmt::format("{:.9g}", row[i].value);
    }
    text += line + "\n";
  }
  return text;
}

std::string to_html(const Table& table) {
  std::string html = "<figure class=\"table\" id=\"" + escape_html(table.id) + "\"><h3>" + escape_html(table.title) +
                     "</h3><button class=\"copy\" type=\"button\">Copy as Markdown</button>"
                     "<div class=\"scroll\"><table><thead><tr>";
  for (const Column& column : table.columns) {
    html += std::string("<th scope=\"col\" class=\"") + (column.number ? "n" : "t") + "\">" + escape_html(column.head);
    if (!column.unit.empty()) html += "<small>" + escape_html(column.unit) + "</small>";
    html += "</th>";
  }
  html += "</tr></thead><tbody>\n";
  for (const auto& row : table.rows) {
    html += "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i) html += html_of(row[i], table.columns.at(i));
    html += "</tr>\n";
  }
  return html + "</tbody></table></div><figcaption>" + escape_html(table.conditions) + "</figcaption></figure>\n";
}

std::string escape_html(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string escape_csv(std::string_view text) {
  if (text.find_first_of(",\"\n\r") == std::string_view::npos) return std::string(text);
  std::string escaped = "\"";
  for (const char c : text) {
    if (c == '"') escaped += '"';
    escaped += c;
  }
  return escaped + "\"";
}

std::string format_figure(double value, int digits) {
  if (!std::isfinite(value)) return "-";
  if (value == 0) return "0";
  const int magnitude = static_cast<int>(std::floor(std::log10(std::fabs(value))));
  std::string text = fmt::format("{:.{}f}", value, std::clamp(digits - 1 - magnitude, 0, 9));
  return text;
}

std::string format_milliseconds(double seconds, int digits) { return format_figure(seconds * 1e3, digits); }

std::string format_bytes(double bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  while (bytes >= 1000 && unit < 4) {
    bytes /= 1000;
    ++unit;
  }
  return (unit == 0 ? fmt::format("{:.0f}", bytes) : format_figure(bytes)) + " " + kUnits[unit];
}

std::string format_ratio(double ratio) { return format_figure(ratio) + "\u00d7"; }

std::string format_rate(double flops_per_s) {
  return flops_per_s >= 1e12 ? format_figure(flops_per_s / 1e12) + " TFLOP/s"
                             : format_figure(flops_per_s / 1e9) + " GFLOP/s";
}

}  // namespace fovea::program
