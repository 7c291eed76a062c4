// What each option means, and which contradict each other.
#include "program/bench/options.h"

#include "core/check.h"
#include "program/bench/presets.h"

namespace fovea::program {
namespace {

// Options that say what is timed.
void add_subject_options(CLI::App* verb, BenchOptions& o) {
  verb->add_option("--preset", o.preset,
                   "grid of problems: quick, report-a, report-b,\nreport-c, report-d2, report-d3, "
                   "report-e,\nh200-dense, choice, cpu-limits, amx-limits")
      ->check(not_empty())
      ->type_name("NAME");
  verb->add_option("--problem", o.problems,
                   "problem line; comma-separated values make a sweep;\nmay be given several times")
      ->take_all()
      ->allow_extra_args(false)
      ->check(not_empty())
      ->type_name("LINE");
  verb->add_option("--impl", o.implementations,
                   "implementations to time: flash, cpu.avx2, naive,\n./lib.so:symbol, kernel.py:function")
      ->check(not_empty())
      ->type_name("LIST");
  verb->add_option("--passes", o.passes, "fwd, bwd, e2e: overrides pass= of the lines")
      ->check(not_empty())
      ->type_name("LIST");
  verb->add_option("--device", o.device, "overrides device= of the lines")->check(CLI::IsMember({"cpu", "cuda"}));
  verb->add_option("--seed", o.seed, "seed of the inputs and of the order of turns")
      ->check(whole_number_within(0, UINT64_MAX))
      ->type_name("N");
  verb->add_option("--scale", o.scale, "scale of the preset (quick)")->check(CLI::IsMember({"quick", "full"}));
  verb->add_option("--with", o.peers,
                   "peers to time, run by --python: torch, or one of\nits kernels such as torch.flash; onnxruntime")
      ->check(not_empty())
      ->type_name("LIST");
  verb->add_option("--against", o.against,
                   "older fovea program; its implementations are timed\ntoo, in turns, under names such as flash@old")
      ->check(not_empty())
      ->type_name("PROGRAM");
  verb->add_flag("--no-saved", o.no_saved,
                 "also time backward of naive, fused.. without the\nprobabilities saved by forward, as naive@no_saved");
  verb->add_option("--python", o.python, "Python that runs peers and kernel.py:function\n(python3)")
      ->check(not_empty())
      ->type_name("PATH");
}

// Options that say how to time, and where the times go.
void add_timing_options(CLI::App* verb, BenchOptions& o) {
  verb->add_option("--timing", o.timing,
                   "GPU only. cold: L2 flushed before each run (the\ndefault). hot: an untimed run first. graph: mean\n"
                   "of up to 100 runs in a CUDA graph. eager: mean of\n"
                   "up to 100 calls in a row. host: how long a call\nkeeps the host busy")
      ->check(CLI::IsMember({"cold", "hot", "graph", "eager", "host"}));
  verb->add_option("--threads", o.threads,
                   "CPU threads (default: FOVEA_THREADS, else all\nprocessors that this process may use)")
      ->check(whole_number_within(1, kMaxThreads))
      ->type_name("N");
  verb->add_option("--repeat-for", o.repeat_for,
                   "longest sampling of a problem and implementation\n(10; quick presets 0.5)")
      ->check(number_within(1e-3, 1e6))
      ->type_name("SECONDS");
  verb->add_option("--timeout", o.timeout, "longest that one run may take (60)")
      ->check(number_within(1e-3, 1e6))
      ->type_name("SECONDS");
  verb->add_option("--memory-limit", o.memory_limit, "memory limit of a problem, as 8G (default:\nall free memory)")
      ->type_name("BYTES");
  verb->add_option("-o,--output", o.output, "file of records: one JSON line per problem and\nimplementation")
      ->check(not_empty())
      ->type_name("FILE");
  verb->add_option("--export-markdown", o.markdown, "also write the table to this file, as Markdown")
      ->check(not_empty())
      ->type_name("FILE");
  verb->add_option("--export-csv", o.csv, "also write the rows of the table to this file, as\nCSV")
      ->check(not_empty())
      ->type_name("FILE");
  verb->add_flag("--resume", o.resume, "continue the file of records");
  verb->add_flag("--force", o.force, "resume a file of another machine or build too");
  verb->add_option("--baseline", o.baseline, "print speed-ups over this implementation")
      ->check(not_empty())
      ->type_name("NAME");
  verb->add_flag("--yes", o.yes, "allow a sweep of over 2000 cells or one hour");
  verb->add_flag("--json", o.json, "print records instead of the table");
}

}  // namespace

void add_bench_options(CLI::App* verb, BenchOptions& o) {
  add_subject_options(verb, o);
  add_timing_options(verb, o);
}

void check_options(const BenchOptions& o) {
  if (o.preset.empty() == o.problems.empty())
    refuse_option("--preset", "wants exactly one of --preset and --problem", o.preset.empty() ? "neither" : "both",
                  "one of them");
  if (o.resume && o.output.empty()) refuse_option("--resume", "no file to resume", "no -o", "-o FILE");
  if (!o.scale.empty() && o.preset.empty())
    refuse_option("--scale", "only presets have a scale", "--problem", "--preset NAME", "leave --scale out");
  if (o.force && !o.resume)
    refuse_option("--force", "only has an effect with --resume", "no --resume", "--resume -o FILE",
                  "leave --force out");
  if (!o.preset.empty() && find_preset(o.preset).limits != nullptr &&
      (o.threads > 0 || !o.implementations.empty() || !o.passes.empty() || !o.device.empty()))
    refuse_option("--preset", "its limits have passes, implementations and threads of their own", o.preset,
                  "no --threads, --impl, --passes and --device");
  if (!o.preset.empty() && find_preset(o.preset).limits != nullptr && (!o.markdown.empty() || !o.csv.empty()))
    refuse_option(o.markdown.empty() ? "--export-csv" : "--export-markdown", "the limits have a table of their own",
                  o.preset, "no --export-markdown and no --export-csv");
  if (!o.python.empty() && o.peers.empty() && o.implementations.find(".py:") == std::string::npos)
    refuse_option("--python", "nothing here runs in Python", o.python, "--with PEERS, or --impl kernel.py:function",
                  "leave --python out");
}

void refuse_option(const std::string& argument, const std::string& problem, const std::string& got,
                   const std::string& wanted, const std::string& hint) {
  core::fail({.status = Status::invalid_argument,
              .argument = argument,
              .problem = problem,
              .got = got,
              .wanted = wanted,
              .hint = hint});
}

}  // namespace fovea::program
