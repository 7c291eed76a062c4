// The `fovea` program.
#include "program/program.h"

int main(int argc, char** argv) { return fovea::program::run_program(argc, argv); }
