// Words of the command line that are not understood: one line, the nearest word that would be, and where to look.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace fovea::program {

// What to print for a command line that does not parse; ends with an end of line.
std::string refusal_of(const CLI::App& app, const CLI::ParseError& error);

// The words as one line for a shell, quoted where it needs that.
std::string shell_line(const std::vector<std::string>& words);

// The same for a record that others will read: of every path only the name of the file.
std::string shareable_command(const std::vector<std::string>& words);

// Any text but none: an empty value is a variable of a script that was not set.
CLI::Validator not_empty();

// A number within [least, most]; unlike CLI::Range it refuses NaN.
CLI::Validator number_within(double least, double most);

// A whole number within [least, most] as it would be printed: CLI11 takes 010 for 8 and 2^64 for 2^64 - 1.
CLI::Validator whole_number_within(std::uint64_t least, std::uint64_t most);

}  // namespace fovea::program
