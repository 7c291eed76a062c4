// The `fovea` program as a function, for programs that add to it.
#pragma once

namespace fovea::program {

// Runs the verb of the command line and returns the exit code. Operations that were registered before take part in
// every verb.
int run_program(int argc, char** argv);

}  // namespace fovea::program
