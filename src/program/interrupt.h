// Ctrl-C and its kin: the first asks the sweep to end politely, the second leaves at once.
#pragma once

namespace fovea::program {

// Installs handlers for SIGINT, SIGTERM and SIGHUP.
void watch_interrupts();

bool interrupted();

// Thrown from the middle of a cell once interrupted() is true; the cell is abandoned.
struct Interrupted {};

}  // namespace fovea::program
