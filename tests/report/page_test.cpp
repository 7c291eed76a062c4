// The page: well-formed, self-contained, escaped; published tables with their own rules; pictures drawn.
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "fixture.h"
#include "fovea/error.h"
#include "program/report_html.h"
#include "program/report_published.h"

namespace fovea::program {
namespace {

// Every element is closed in order; void elements and the contents of style and script aside.
std::string first_fault(std::string html) {
  for (const std::string name : {"style", "script"}) {
    for (std::size_t at = 0; (at = html.find("<" + name + ">", at)) != std::string::npos; ++at) {
      const std::size_t end = html.find("</" + name + ">", at);
      if (end == std::string::npos) return name + " is not closed";
      html.erase(at + name.size() + 2, end - at - name.size() - 2);
    }
  }
  const std::set<std::string> empty{"meta", "link", "br", "img", "hr", "!DOCTYPE"};
  std::vector<std::string> open;
  std::set<std::string> identifiers;
  for (std::size_t at = 0; (at = html.find('<', at)) != std::string::npos;) {
    if (html.compare(at, 4, "<!--") == 0) {
      at = html.find("-->", at);
      continue;
    }
    const std::size_t end = html.find('>', at);
    if (end == std::string::npos) return "a tag is not closed";
    const std::string tag = html.substr(at + 1, end - at - 1);
    if (tag.find('<') != std::string::npos) return "a tag within a tag: " + tag;
    const bool closes = tag[0] == '/';
    std::size_t length = closes ? 1 : 0;
    while (length < tag.size() && std::isspace(static_cast<unsigned char>(tag[length])) == 0) ++length;
    const std::string name = tag.substr(closes ? 1 : 0, length - (closes ? 1 : 0));
    if (closes) {
      if (open.empty() || open.back() != name)
        return "</" + name + "> closes <" + (open.empty() ? "" : open.back()) + ">";
      open.pop_back();
    } else if (empty.count(name) == 0 && tag.back() != '/') {
      open.push_back(name);
    }
    if (const std::size_t id = tag.find(" id=\""); id != std::string::npos) {
      const std::string value = tag.substr(id + 5, tag.find('"', id + 5) - id - 5);
      if (!identifiers.insert(value).second) return "id twice: " + value;
    }
    at = end;
  }
  return open.empty() ? "" : "<" + open.back() + "> is not closed";
}

std::vector<Row> report_rows() {
  std::vector<Row> rows = every_status();
  for (const char* pass : {"fwd", "bwd", "e2e"}) {
    for (const char* length : {"2k", "4k"}) {
      const std::string at = std::string("d=64 dtype=bf16 mask=causal pass=") + pass + " lq=" + length;
      rows.push_back(timed(at, "naive", 10e-3));
      rows.push_back(timed(at, "cpu.avx2", std::string(pass) == "bwd" ? 6e-3 : 4e-3));
    }
  }
  for (const char* length : {"256", "1k"}) {
    const std::string at = std::string("b=8 d=16 dtype=fp32 lq=") + length;
    rows.push_back(timed(at, "naive", 1e-3));
    rows.push_back(timed(at + " pass=bwd", "naive", 2e-3));
  }
  rows.push_back(timed("hq=12 d=64 lq=512 dtype=fp16 mask=causal", "naive", 4e-3));
  rows.push_back(timed("hq=12 d=64 lq=512 dtype=fp16 mask=causal", "fused", 1e-3));
  rows.push_back(timed("hq=12 d=64 lq=512 dtype=fp16 mask=causal", "cpu.avx2", 2e-3));
  return rows;
}

const PublishedPage& page_of(const Report& report, const std::string& letter) {
  for (const PublishedPage& page : report.pages) {
    if (page.report->letter == letter) return page;
  }
  throw std::runtime_error("no page " + letter);
}

TEST(Page, IsWellFormedAndLoadsNothing) {
  const Study study = study_of(report_rows());
  const std::string html = to_html(make_report(study));
  EXPECT_EQ(first_fault(html), "");
  for (const char* outside : {"http:", "https:", "src=", "@import", "//cdn"}) {
    EXPECT_EQ(html.find(outside), std::string::npos) << outside;
  }
  for (const char* word : {">OOM<", ">timeout<", ">mismatch<", "published"}) {
    EXPECT_NE(html.find(word), std::string::npos) << word;
  }
}

TEST(Page, OfCallsAloneHasTheirTables) {
  std::vector<Row> rows = three_ways();
  rows.erase(rows.begin(), rows.begin() + 2);
  const Study study = study_of(rows);
  const Report report = make_report(study);
  EXPECT_EQ(first_fault(to_html(report)), "");
  EXPECT_NE(to_markdown(report).find("### How long a call keeps the host"), std::string::npos);
  EXPECT_NE(report.headline.find("4 cells of calls"), std::string::npos) << report.headline;
}

TEST(Page, OfNoRowsIsStillAPage) {
  const Study study = study_of({});
  EXPECT_EQ(first_fault(to_html(make_report(study))), "");
}

TEST(Page, WordsOfRecordsAreEscaped) {
  const std::string bad = "<script>alert(1)</script>";
  const Study study = study_of({timed("lq=512 d=64", bad, 1e-3), failed("lq=512 d=64", "naive", "error", bad)});
  const Report report = make_report(study);
  const std::string html = to_html(report);
  EXPECT_EQ(html.find(bad), std::string::npos);
  EXPECT_EQ(first_fault(html), "");
  EXPECT_EQ(to_markdown(report).find("| <script>"), std::string::npos);
}

TEST(Page, TheCheckerOfTheseTestsFindsFaults) {
  EXPECT_NE(first_fault("<p><b></p></b>"), "");
  EXPECT_NE(first_fault("<p>"), "");
  EXPECT_NE(first_fault("<p id=\"a\"></p><p id=\"a\"></p>"), "");
}

TEST(Published, OnlyReportsWithSharedFiguresHaveAPage) {
  const Study study = study_of({timed("b=8 d=16 dtype=fp32 lq=256", "naive", 1e-3)});
  const Report report = make_report(study);
  ASSERT_EQ(report.pages.size(), 1u);
  EXPECT_EQ(report.pages[0].report->letter, "D2");
}

TEST(Published, ReportBPrintsTwofoldFrom4kInBold) {
  const Study study = study_of(report_rows());
  const Report report = make_report(study);
  const Table& table = page_of(report, "B").tables.at(0);
  for (const auto& row : table.rows) {
    const bool is_long = row[0].value >= 4096;
    for (std::size_t i = row.size() - 3; i < row.size(); ++i) {
      if (std::isnan(row[i].value)) continue;
      EXPECT_EQ(row[i].emphasis == Emphasis::best, is_long && row[i].value >= 2) << row[0].text << " " << row[i].text;
    }
  }
}

TEST(Published, FiguresHereStandBesideThePublishedOnes) {
  const Study study = study_of(report_rows());
  const Report report = make_report(study);
  const Table& table = page_of(report, "B").tables.at(0);
  const auto& here = table.rows.at(2);
  const auto& published = table.rows.at(3);
  EXPECT_EQ(here[3].text, "here");
  EXPECT_EQ(published[3].text, "published");
  EXPECT_EQ(here[1].text, published[1].text);
}

// The eager form of one device is no baseline for the kernel of another.
TEST(Published, DevicesAreKeptApart) {
  const std::string at = "pass=fwd lq=512 d=64 dtype=bf16 mask=causal device=";
  const Study study = study_of({timed(at + "cpu", "naive", 4e-3), timed(at + "cpu", "cpu.avx2", 1e-3),
                                timed(at + "cuda", "naive", 4e-4), timed(at + "cuda", "cuda.any", 1e-4)});
  const Report report = make_report(study);
  const auto& here = page_of(report, "B").tables.at(0).rows.at(0);
  EXPECT_EQ(here.at(4).text, "4.00") << "PT fwd";
  EXPECT_EQ(here.at(7).text, "1.00") << "TR fwd";
  const auto pictures = nlohmann::json::parse(describe_pictures(study, report.pages));
  for (const auto& one : pictures["pictures"]) {
    if (one["kind"] != "roofline") continue;
    ASSERT_EQ(one["panels"].size(), 2u);
    EXPECT_EQ(one["panels"][0]["points"].size(), 2u);
    EXPECT_EQ(one["panels"][1]["bandwidth"], 0) << "none was measured on the GPU";
  }
}

// A call of a graph is faster than a run after a flush; it is another time.
TEST(Published, OnlyTimesOfARunStandBesideThePublishedOnes) {
  std::vector<Row> rows{timed("device=cuda " + std::string("d=64 dtype=bf16 mask=causal lq=512"), "cuda.any", 20e-6)};
  rows.front().timer = "cuda_events";
  const Study alone = study_of(rows);
  for (const char* timer : {"cuda_events_hot", "cuda_graph", "cuda_host"}) {
    rows.push_back(rows.front());
    rows.back().timer = timer;
    rows.back().time_s = statistics_of({5e-6, 5e-6, 5e-6});
  }
  const Study study = study_of(rows);
  for (const PublishedPage& page : published_pages(study)) {
    for (const Match& match : page.matches) EXPECT_EQ(match.here->row.timer, "cuda_events");
  }
  EXPECT_EQ(published_pages(study).size(), published_pages(alone).size());
  EXPECT_FALSE(published_pages(study).empty());
}

TEST(Published, FindingsAreComputedFromTheTables) {
  const auto findings = [](const std::string& letter) {
    for (const PublishedReport& report : published_reports()) {
      if (report.letter != letter) continue;
      std::string text;
      for (const std::string& one : findings_of(report)) text += one + "\n";
      return text;
    }
    return std::string();
  };
  EXPECT_NE(findings("A").find("in 42 of 48 rows"), std::string::npos) << findings("A");
  EXPECT_NE(findings("B").find("in 5 more less than 0.85"), std::string::npos) << findings("B");
  EXPECT_NE(findings("D2").find("in all 16 rows"), std::string::npos) << findings("D2");
  EXPECT_FALSE(findings("D3").empty());
  EXPECT_FALSE(findings("E").empty());
}

// What a forward alone holds is not what stands between forward and backward.
TEST(Published, MemoryOfD2IsOfTheBackwardRow) {
  const std::string at = "b=8 d=16 dtype=fp32 lq=256";
  Row backward = timed(at + " pass=bwd", "vectorized", 2e-3);
  backward.memory_before_backward_bytes = 3'000'000;
  const Study study = study_of({timed(at, "naive", 1e-3), failed(at + " pass=bwd", "naive", "timeout"),
                                timed(at, "vectorized", 1e-3), backward, timed(at, "fused", 1e-3)});
  const Report report = make_report(study);
  const Table& table = page_of(report, "D2").tables.at(0);
  ASSERT_GE(table.rows.size(), 3u);
  EXPECT_EQ(table.rows[0].at(7).text, "timeout");
  EXPECT_EQ(table.rows[1].at(7).text, "3.00");
  EXPECT_EQ(table.rows[2].at(7).text, "-");
}

// Counted bytes that are as the formula says, then a tenth more.
TEST(Published, MemoryOfD2IsSetAgainstItsFormula) {
  PublishedFigure printed;
  printed.problem = verification::attention_case("pass=bwd b=8 lq=256 d=16 dtype=fp32");
  printed.measurement = "a";
  printed.memory_before_backward_bytes = 20e6;
  Measured here{.row = timed(verification::line_of(printed.problem), "naive", 1e-3), .problem = printed.problem};
  const std::int64_t formula = 8 * (4 * 256 * 16 + 256 * 256 + 256) * 4;
  EXPECT_EQ(eager_bytes(printed.problem.problem), formula);
  here.row.memory_before_backward_bytes = formula;
  EXPECT_NE(memory_against_formula({{&printed, &here}}).find("at most 0 % in 1 cell"), std::string::npos);
  here.row.memory_before_backward_bytes = formula * 11 / 10;
  const std::string said = memory_against_formula({{&printed, &here}});
  EXPECT_NE(said.find("at most 10 %"), std::string::npos) << said;
  EXPECT_NE(said.find("17 MB above"), std::string::npos) << said;
}

TEST(Pictures, AreDrawnAndFitIntoThePage) {
  const Study study = study_of(every_status());
  Report report = make_report(study);
  const std::string folder = scratch("pictures");
  report.pictures = draw_pictures(describe_pictures(study, report.pages), folder, drawing_python(""));
  if (report.pictures.missing.rfind("Pictures need", 0) == 0) GTEST_SKIP() << report.pictures.missing;
  ASSERT_EQ(report.pictures.missing, "");
  std::set<std::string> kinds;
  for (const Picture& one : report.pictures.drawn) {
    kinds.insert(one.name.substr(0, one.name.find('-')));
    EXPECT_GT(std::filesystem::file_size(folder + "/" + one.name + ".png"), 5000u) << one.name;
    EXPECT_FALSE(one.conditions.empty()) << one.name;
    EXPECT_EQ(one.svg.substr(0, 4), "<svg") << one.name;
  }
  EXPECT_EQ(kinds, (std::set<std::string>{"time", "heat", "scaling", "speedup", "memory", "roofline", "published"}));
  const std::string html = to_html(report);
  EXPECT_EQ(first_fault(html), "");
  EXPECT_EQ(html.find("http"), std::string::npos);
}

TEST(Published, TablesAreNamedInOneForm) {
  const Study study = study_of(report_rows());
  for (const PublishedPage& page : make_report(study).pages) {
    for (const Table& table : page.tables) EXPECT_EQ(table.id.find_first_of("ABDE"), std::string::npos) << table.id;
  }
}

TEST(Pictures, APythonThatCannotDrawIsRefused) { EXPECT_THROW((void)drawing_python("/bin/false"), Error); }

}  // namespace
}  // namespace fovea::program
