// Interrupts such as Ctrl-C: the first asks the sweep to end cleanly, the second ends the process at once.
#pragma once

namespace fovea::program {

// Installs handlers for SIGINT, SIGTERM and SIGHUP.
void watch_interrupts();

bool interrupted();

// Thrown within a cell once interrupted() is true; the cell is abandoned.
struct Interrupted {};

}  // namespace fovea::program
