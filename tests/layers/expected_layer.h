// Layers in double precision, written from their formulas alone: every sum is a plain loop.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "layer_call.h"

namespace fovea::layers {

struct Matrix {
  std::int64_t rows = 0, columns = 0;
  std::vector<double> values = {};
  Matrix() = default;
  Matrix(std::int64_t r, std::int64_t c) : rows(r), columns(c), values(static_cast<std::size_t>(r * c)) {}
  double& operator()(std::int64_t r, std::int64_t c) { return values[static_cast<std::size_t>(r * columns + c)]; }
  double operator()(std::int64_t r, std::int64_t c) const { return values[static_cast<std::size_t>(r * columns + c)]; }
};
using Matrices = std::map<std::string, Matrix>;

// The call's inputs: x, x_kv, dy, each weight by its projection's name, each bias as NAME.bias.
Matrices inputs_of(const LayerCall& call);

// y from the inputs.
Matrix expected_y(const LayerProblem& problem, const Matrices& inputs);
// dx, dx_kv and dNAME and dNAME.bias of every projection.
Matrices expected_gradients(const LayerProblem& problem, const Matrices& inputs);

double largest_of(const Matrix& m);
// The largest difference as a share of `scale`.
double difference(const std::vector<float>& values, const Matrix& expected, double scale);
// The most that a result may be off, as a share of its largest value: activations are rounded to the type a few times
// on the way to each.
double tolerance(DType dtype);

// What is wrong with the call's results; empty if nothing is.
std::string fault_of(const LayerCall& call);

}  // namespace fovea::layers
