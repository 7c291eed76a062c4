// Memory that this process has freed and allocates again. New pages from the system cost more than the work on them.
#pragma once

namespace fovea::program {

// From now on freed memory stays with the process.
void keep_freed_memory();

// Gives the system what is free now.
void give_freed_memory_back();

}  // namespace fovea::program
