// One plain environment and rows that differ in what a test asks for.
#include "made_records.h"

namespace fovea::tests {

using namespace program;

Environment made_environment() {
  Environment environment;
  environment.machine = "A processor, 2 processors, 24 GiB";
  environment.date = "2026-01-31T12:00:00Z";
  environment.command = "fovea bench";
  environment.source = {"0123456789abcdef", false};
  environment.version = "0.1.0";
  environment.threads = 1;
  environment.facts = {{"compiler", "GNU 12.2.0"}, {"build", "Release"}};
  return environment;
}

Environment environment_of_another_commit() {
  Environment environment = made_environment();
  environment.source.commit = "fedcba9876543210";
  return environment;
}

Row made_row(const std::string& problem, const std::string& impl, std::vector<double> samples) {
  Row row;
  row.problem = "op=attention " + problem;
  row.impl = impl;
  row.status = "ok";
  row.time_s = statistics_of(std::move(samples));
  row.flops = row.bytes = 1e6;
  row.tflops = row.flops / row.time_s->median / 1e12;
  row.threads = 1;
  row.source = made_environment().source;
  row.timer = "steady_clock";
  row.machine = made_environment().machine;
  return row;
}

Row failed_row(const std::string& problem, const std::string& impl, const std::string& status) {
  Row row = made_row(problem, impl, {1});
  row.status = status;
  row.reason = "made to fail";
  row.time_s.reset();
  row.tflops.reset();
  return row;
}

std::string text_of(const Environment& environment, const std::vector<Row>& rows) {
  std::string text = json_line(environment) + "\n";
  for (const Row& row : rows) text += json_line(row) + "\n";
  return text;
}

}  // namespace fovea::tests
