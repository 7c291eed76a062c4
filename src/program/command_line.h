// Refusals of the command line: one line with the nearest known word and the help to read.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace fovea::program {

// The message for a command line that does not parse; ends with a line end.
std::string refusal_of(const CLI::App& app, const CLI::ParseError& error);

// The words of the command line.
std::vector<std::string> typed_words();

// The words as one line for a shell, quoted if necessary.
std::string shell_line(const std::vector<std::string>& words);

// The same for a record that others will read: paths are shortened to file names.
std::string shareable_command(const std::vector<std::string>& words);

// Refuses empty text, which usually comes from an unset variable of a script.
CLI::Validator not_empty();

// A number within [least, most]; unlike CLI::Range it refuses NaN.
CLI::Validator number_within(double least, double most);

// A whole number within [least, most] in canonical form. CLI11 itself reads 010 as 8 and 2^64 as 2^64 - 1.
CLI::Validator whole_number_within(std::uint64_t least, std::uint64_t most);

}  // namespace fovea::program
