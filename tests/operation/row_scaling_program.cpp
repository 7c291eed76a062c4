// The program with one operation more.
#include "operation/row_scaling.h"
#include "program/program.h"

int main(int argc, char** argv) {
  fovea::verification::register_operation(fovea::tests::row_scaling());
  return fovea::program::run_program(argc, argv);
}
