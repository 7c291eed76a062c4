// Looks up the sources' version, which every build writes anew.
#include "program/machine/session.h"

#include <fmt/format.h>

#include "fovea/version.h"
#include "program/command_line.h"
#include "source_version.h"

namespace fovea::program {

Environment session_environment(const Machine& machine, const std::vector<std::string>& typed, int threads) {
  Environment e;
  e.machine = machine.id();
  e.date = utc_now();
  e.command = shareable_command(typed);
  e.source = {kSourceCommit, kSourceDirty};
  e.source_digest = kSourceDigest;
  e.version = FOVEA_VERSION_STRING;
  e.threads = threads;
  e.facts = machine.facts();
  e.facts["compiler"] = kBuildCompiler;
  e.facts["build"] = kBuildType;
  e.facts["load"] = fmt::format("{:.2f}", load_average());
  return e;
}

}  // namespace fovea::program
