// The `fovea` program with the emulated kernels as further implementations: fovea_emulated verify --impl emulated.amx
#include "engine.h"
#include "program/program.h"

int main(int argc, char** argv) {
  fovea::cpu::register_emulated();
  return fovea::program::run_program(argc, argv);
}
