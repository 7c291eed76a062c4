// The `fovea` program as a function, for programs that add to it.
#pragma once

namespace fovea::program {

// Runs the verb of the command line and returns the exit code. Every verb knows the operations that were registered
// before.
int run_program(int argc, char** argv);

}  // namespace fovea::program
