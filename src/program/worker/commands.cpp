// Reads replies key by key.
#include "program/worker/commands.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "program/record/whole_number.h"

namespace fovea::program {
namespace {

using Json = nlohmann::ordered_json;

struct WrongForm {
  std::string why;
};

[[noreturn]] void refuse(const char* key, const char* wanted) {
  throw WrongForm{"`" + std::string(key) + "` must be " + wanted};
}

// Null if the key is missing.
Json value_of(const Json& reply, const char* key) {
  const auto found = reply.find(key);
  return found == reply.end() ? Json(nullptr) : *found;
}

std::string text_of(const Json& reply, const char* key) {
  const Json value = value_of(reply, key);
  if (value.is_null()) return "";
  if (!value.is_string()) refuse(key, "a string");
  return value.get<std::string>();
}

std::optional<std::int64_t> bytes_of(const Json& reply, const char* key) {
  const Json value = value_of(reply, key);
  if (value.is_null()) return std::nullopt;
  const std::optional<std::int64_t> bytes = whole_number(value);
  if (!bytes || *bytes < 0) refuse(key, "null or a number of bytes");
  return bytes;
}

std::optional<double> number_of(const Json& reply, const char* key) {
  const Json value = value_of(reply, key);
  if (value.is_null()) return std::nullopt;
  if (!value.is_number()) refuse(key, "null or a number");
  return value.get<double>();
}

// One number per run; NaN is written as null.
std::vector<double> numbers_of(const Json& reply, const char* key, std::size_t runs) {
  const Json values = value_of(reply, key);
  if (values.is_null()) return {};
  if (!values.is_array() || values.size() != runs) refuse(key, "an array with one number per run");
  std::vector<double> numbers;
  for (const Json& value : values) {
    if (!value.is_number() && !value.is_null()) refuse(key, "an array with one number per run");
    numbers.push_back(value.is_null() ? NAN : value.get<double>());
  }
  return numbers;
}

std::vector<bool> booleans_of(const Json& reply, const char* key, std::size_t runs) {
  const Json values = value_of(reply, key);
  if (values.is_null()) return {};
  if (!values.is_array() || values.size() != runs) refuse(key, "an array with one boolean per run");
  std::vector<bool> booleans;
  for (const Json& value : values) {
    if (!value.is_boolean()) refuse(key, "an array with one boolean per run");
    booleans.push_back(value.get<bool>());
  }
  return booleans;
}

template <class Read>
auto understood(WorkerProcess& worker, const Json& command, double timeout_s, Read read) {
  const Json reply = worker.call(command, timeout_s);
  try {
    return read(reply);
  } catch (const WrongForm& wrong) {
    worker.refuse(reply.dump(-1, ' ', false, Json::error_handler_t::replace), wrong.why);
  }
}

}  // namespace

RunReply run_once(WorkerProcess& worker, double timeout_s) {
  return understood(worker, {{"command", "run"}}, timeout_s, [](const Json& reply) {
    return RunReply{text_of(reply, "timer"), text_of(reply, "peer"), bytes_of(reply, "workspace_bytes"),
                    bytes_of(reply, "saved_bytes")};
  });
}

void load_outputs(WorkerProcess& worker, double timeout_s) { worker.call({{"command", "load_outputs"}}, timeout_s); }

void store_outputs(WorkerProcess& worker, double timeout_s) { worker.call({{"command", "store_outputs"}}, timeout_s); }

SampleReply sample_runs(WorkerProcess& worker, int runs, int lead, double timeout_s) {
  const Json command{{"command", "sample"}, {"runs", runs}, {"lead", lead}};
  return understood(worker, command, timeout_s, [count = static_cast<std::size_t>(runs)](const Json& reply) {
    SampleReply sample{numbers_of(reply, "seconds", count), numbers_of(reply, "launches", count),
                       numbers_of(reply, "pooled", count),  booleans_of(reply, "host_bound", count),
                       number_of(reply, "clock_mhz"),       number_of(reply, "power_w")};
    if (sample.seconds.empty()) refuse("seconds", "an array with one number per run");
    for (const double seconds : sample.seconds)
      if (!(seconds >= 0)) refuse("seconds", "no smaller than 0");
    return sample;
  });
}

}  // namespace fovea::program
