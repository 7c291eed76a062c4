// What a report does to the folder that it is written to.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "run_program.h"

namespace fovea::tests {
namespace {

namespace fs = std::filesystem;

class ReportFolder : public testing::Test {
 protected:
  std::string record(const std::string& problem) {
    const std::string file = folder_ / (std::to_string(++records_) + ".jsonl");
    const Ended run =
        fovea({"bench", "--problem", problem, "--impl", bad_kernel("right"), "--repeat-for", "0.01", "-o", file});
    EXPECT_EQ(run.code, 0) << run.err;
    return file;
  }
  Ended report(const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"report", "-o", folder_ / "out", "--no-pictures"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return fovea(arguments);
  }
  // A Python that has matplotlib, and to draw does these words of the shell.
  std::string python_that(const std::string& words) {
    const std::string file = folder_ / "python";
    write_text(file, "#!/bin/sh\n[ \"$2\" = 'import matplotlib' ] && exit 0\n" + words + "\n");
    fs::permissions(file, fs::perms::owner_all);
    return file;
  }
  std::size_t tables() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_ / "out/tables"), fs::directory_iterator()));
  }
  Folder folder_;
  int records_ = 0;
};

TEST_F(ReportFolder, HoldsNothingOfAnEarlierReportButAllThatIsYours) {
  const std::string many = record("lq=8 d=4 mask=none,causal pass=fwd,bwd"), one = record("lq=8 d=4");
  ASSERT_EQ(report({many}).code, 0);
  const std::size_t of_many = tables();
  write_text(folder_ / "out/tables/mine.csv", "1,2,3");
  write_text(folder_ / "out/mine.txt", "keep me");
  write_text(folder_ / "beside.txt", "keep me too");
  write_text(folder_ / "out/files.txt",
             read_text(folder_ / "out/files.txt") + "../beside.txt\n" + folder_ / "1.jsonl" + "\n");
  ASSERT_EQ(report({one}).code, 0);
  EXPECT_LT(tables(), of_many + 1);
  for (const char* mine : {"out/tables/mine.csv", "out/mine.txt", "beside.txt", "1.jsonl"})
    EXPECT_TRUE(fs::exists(folder_ / mine)) << mine;
}

TEST_F(ReportFolder, IsNotTouchedByWhatIsRefused) {
  const std::string good = record("lq=8 d=4");
  write_text(folder_ / "bad.jsonl", "no record\n");
  for (const auto& refused : std::vector<std::vector<std::string>>{
           {folder_ / "bad.jsonl"}, {folder_ / "none.jsonl"}, {good, "--baseline", "nobody"}}) {
    const Ended run = report(refused);
    EXPECT_EQ(run.code, 2) << run.err;
    EXPECT_FALSE(fs::exists(folder_ / "out"));
  }
  const Ended python = fovea({"report", good, "-o", folder_ / "out", "--python", "/bin/false"});
  EXPECT_EQ(python.code, 2) << python.err;
  EXPECT_FALSE(fs::exists(folder_ / "out"));
}

TEST_F(ReportFolder, LinksNoPictureThatWasNotDrawn) {
  const std::string good = record("lq=8,16 d=4");
  const Ended run = fovea({"report", good, "-o", folder_ / "out", "--python", "/bin/true"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.err.find("Drawing failed: /bin/true left no "), std::string::npos) << run.err;
  for (const char* page : {"out/report.md", "out/index.html"}) {
    const std::string text = read_text(folder_ / page);
    EXPECT_EQ(text.find("pictures/"), std::string::npos) << page;
    EXPECT_NE(text.find("left no"), std::string::npos) << page;
  }
}

TEST_F(ReportFolder, WarnsOfATornLineOnce) {
  const std::string torn = record("lq=8,16 d=4"), whole = read_text(torn);
  write_text(torn, whole.substr(0, whole.size() - 9));
  const Ended run = report({torn});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.err.find("warning: " + torn + ": the last line"), std::string::npos) << run.err;
  EXPECT_EQ(run.err.find(torn), run.err.rfind(torn)) << run.err;
}

TEST_F(ReportFolder, AnUnusableFolderIsNamed) {
  const std::string good = record("lq=8 d=4");
  write_text(folder_ / "out", "a file");
  const Ended run = report({good});
  EXPECT_EQ(run.code, 2) << run.err;
  EXPECT_NE(run.err.find(folder_ / "out"), std::string::npos) << run.err;
  EXPECT_EQ(read_text(folder_ / "out"), "a file");
}

TEST_F(ReportFolder, AFullDiskLosesTheOutput) {
  const std::string good = record("lq=8 d=4");
  const std::vector<std::string> arguments{"report", good, "-o", folder_ / "out", "--no-pictures"};
  // Full before the table of rows, and before the page.
  for (const auto& [size, file] :
       std::vector<std::pair<std::int64_t, std::string>>{{200, "rows.csv"}, {8000, "index.html"}}) {
    const Ended run = fovea(arguments, {.file_size_limit = size});
    EXPECT_EQ(run.code, 3) << run.err;
    EXPECT_NE(run.err.find("could not be written: " + (folder_ / ("out/" + file)) + ": File too large"),
              std::string::npos)
        << run.err;
    EXPECT_EQ(run.out, "");
  }
  EXPECT_EQ(fovea(arguments).code, 0);
}

TEST_F(ReportFolder, PicturesThatFillTheDiskLoseTheOutput) {
  const std::string good = record("lq=8,16 d=4"), python = python_that("echo No space left on device; exit 3");
  const Ended run = fovea({"report", good, "-o", folder_ / "out", "--python", python});
  EXPECT_EQ(run.code, 3) << run.err;
  EXPECT_NE(run.err.find("could not be written: " + (folder_ / "out/pictures: No space left")), std::string::npos)
      << run.err;
}

// The pipe that the Python of the pictures holds open ends with it.
TEST_F(ReportFolder, AnInterruptEndsTheDrawing) {
  const std::string good = record("lq=8,16 d=4"), pipe = folder_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::string python = python_that("exec 9>" + pipe + "; echo begun >&9; exec sleep 3600");
  const int heard = open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  const auto wait_for = [heard](short event) {
    pollfd wait{heard, event, 0};
    EXPECT_EQ(poll(&wait, 1, 60'000), 1);
    return wait.revents;
  };
  const Ended run =
      fovea({"report", good, "-o", folder_ / "out", "--python", python}, {.while_it_runs = [&](pid_t pid) {
              EXPECT_TRUE(wait_for(POLLIN) & POLLIN);
              kill(pid, SIGINT);
            }});
  EXPECT_EQ(run.code, 130);
  char said[16];
  EXPECT_EQ(read(heard, said, sizeof said), 6);
  EXPECT_TRUE(wait_for(0) & POLLHUP) << "it still draws";
  close(heard);
}

}  // namespace
}  // namespace fovea::tests
