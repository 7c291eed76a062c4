// The memory that this process has freed. Pages that are new cost more than the work of a check on them.
#pragma once

namespace fovea::program {

// From now on freed memory stays with the process.
void keep_freed_memory();

// Gives the system what is free now.
void give_freed_memory_back();

}  // namespace fovea::program
