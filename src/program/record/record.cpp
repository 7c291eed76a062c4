// Records to and from JSON, one table of keys per direction; statistics of samples.
#include "program/record/record.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <type_traits>

#include "fovea/error.h"
#include "program/record/whole_number.h"
#include "verification/problem_line.h"

namespace fovea::program {
namespace {

using Json = nlohmann::ordered_json;

double quantile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

template <class T>
Json optional_json(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json json_of(const Source& source) { return {{"commit", source.commit}, {"dirty", source.dirty}}; }

Json json_of(const TimeStatistics& t) {
  return {{"median", t.median}, {"min", t.min}, {"mean", t.mean}, {"std", t.std},
          {"q1", t.q1},         {"q3", t.q3},   {"n", t.n},       {"samples", t.samples}};
}

Json json_of(const RowCeiling& c) {
  return {{"flops_per_s", c.flops_per_s},
          {"probe_before", c.probe_before},
          {"probe_after", c.probe_after},
          {"best_product", c.best_product}};
}

[[noreturn]] void refuse(const std::string& what) { throw std::runtime_error(what); }

const Json& member(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) refuse("key `" + std::string(key) + "` is missing");
  return *found;
}

// Reads a count into an integer type.
template <class T>
T count(const Json& object, const char* key) {
  const std::optional<std::int64_t> number = whole_number(member(object, key));
  if (!number || *number > std::numeric_limits<T>::max())
    refuse("key `" + std::string(key) + "` is no whole number that fits: " + member(object, key).dump());
  if (*number < 0) refuse("key `" + std::string(key) + "` is negative");
  return static_cast<T>(*number);
}

template <class T>
T value(const Json& object, const char* key) {
  const Json& at = member(object, key);
  try {
    return at.get<T>();
  } catch (const Json::exception&) {
    refuse("key `" + std::string(key) + "` has the wrong type");
  }
}

// Reads a count or a measurement, which must not be negative.
template <class T>
T amount(const Json& object, const char* key) {
  if constexpr (std::is_integral_v<T>) return count<T>(object, key);
  const T number = value<T>(object, key);
  if (number < 0) refuse("key `" + std::string(key) + "` is negative");
  return number;
}

// Numbers that JSON cannot hold (NaN, infinity) are written as null.
double number(const Json& object, const char* key) {
  return member(object, key).is_null() ? std::numeric_limits<double>::quiet_NaN() : value<double>(object, key);
}

template <class T>
std::optional<T> optional_amount(const Json& object, const char* key) {
  if (const auto found = object.find(key); found == object.end() || found->is_null()) return std::nullopt;
  return amount<T>(object, key);
}

Source source_of(const Json& object) {
  return {value<std::string>(member(object, "source"), "commit"), value<bool>(member(object, "source"), "dirty")};
}

TimeStatistics time_of(const Json& t) {
  TimeStatistics time{amount<double>(t, "median"),  amount<double>(t, "min"),
                      amount<double>(t, "mean"),    amount<double>(t, "std"),
                      amount<double>(t, "q1"),      amount<double>(t, "q3"),
                      amount<std::int64_t>(t, "n"), value<std::vector<double>>(t, "samples")};
  if (std::any_of(time.samples.begin(), time.samples.end(), [](double sample) { return sample < 0; }))
    refuse("a sample is negative");
  return time;
}

RowCeiling ceiling_of(const Json& c) {
  return {amount<double>(c, "flops_per_s"), amount<double>(c, "probe_before"), amount<double>(c, "probe_after"),
          amount<double>(c, "best_product")};
}

// As today's programs print it: the line of an earlier version may lack keys.
std::string problem_of(const Json& object) {
  try {
    return verification::line_of(verification::parse_case(value<std::string>(object, "problem")));
  } catch (const Error& error) {
    refuse("in the problem line: " + error.details().problem + ", `" + error.details().got + "`");
  }
}

Json parse_object(std::string_view text) {
  Json object = Json::parse(text, nullptr, false);
  if (!object.is_object()) refuse("not a JSON object");
  return object;
}

void want_schema(const Json& object, std::string_view schema) {
  const auto got = value<std::string>(object, "schema");
  if (got != schema) refuse("schema is `" + got + "`, wanted `" + std::string(schema) + "`");
}

}  // namespace

TimeStatistics statistics_of(std::vector<double> samples) {
  TimeStatistics t;
  std::vector<double> sorted = samples;
  std::sort(sorted.begin(), sorted.end());
  t.n = static_cast<std::int64_t>(sorted.size());
  t.min = sorted.front();
  t.median = quantile(sorted, 0.5);
  t.q1 = quantile(sorted, 0.25);
  t.q3 = quantile(sorted, 0.75);
  for (const double s : sorted) t.mean += s / static_cast<double>(t.n);
  for (const double s : sorted) t.std += (s - t.mean) * (s - t.mean);
  t.std = t.n > 1 ? std::sqrt(t.std / static_cast<double>(t.n - 1)) : 0;
  t.samples = std::move(samples);
  return t;
}

bool Row::has_flag(std::string_view flag) const { return std::find(flags.begin(), flags.end(), flag) != flags.end(); }

void Row::fail(const std::string& the_status, const std::string& the_reason) {
  status = the_status;
  reason = the_reason;
  time_s.reset();
  phases.clear();
}

std::string json_line(const Environment& e) {
  Json json{{"schema", kEnvSchema},
            {"machine", e.machine},
            {"date", e.date},
            {"command", e.command},
            {"source", json_of(e.source)}};
  if (!e.source_digest.empty()) json["source_digest"] = e.source_digest;
  json.update(Json{{"version", e.version}, {"threads", e.threads}, {"facts", e.facts}, {"ceilings", e.ceilings}});
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string json_line(const Row& row) {
  Json errors = Json::object();
  for (const auto& [tensor, e] : row.error)
    errors[tensor] = {{"rel_l2", e.rel_l2}, {"max_abs", e.max_abs}, {"ratio_to_plain", e.ratio_to_plain}};
  Json json{{"schema", kRowSchema},
            {"problem", row.problem},
            {"impl", row.impl},
            {"status", row.status},
            {"reason", row.reason},
            {"flags", row.flags},
            {"time_s", row.time_s ? json_of(*row.time_s) : Json(nullptr)},
            {"flops", row.flops},
            {"bytes", row.bytes},
            {"tflops", optional_json(row.tflops)},
            {"ceiling_share", optional_json(row.ceiling_share)},
            {"ceiling", row.ceiling ? json_of(*row.ceiling) : Json(nullptr)},
            {"workspace_bytes", optional_json(row.workspace_bytes)},
            {"saved_bytes", optional_json(row.saved_bytes)},
            {"memory_before_backward_bytes", optional_json(row.memory_before_backward_bytes)},
            {"error", errors},
            {"threads", row.threads},
            {"source", json_of(row.source)},
            {"clock_mhz", optional_json(row.clock_mhz)},
            {"power_w", optional_json(row.power_w)},
            {"timer", row.timer},
            {"machine", row.machine}};
  if (!row.peer.empty()) json["peer"] = row.peer;
  if (row.memory_before_forward_bytes) json["memory_before_forward_bytes"] = *row.memory_before_forward_bytes;
  for (const auto& [phase, time] : row.phases) json["phases"][phase] = json_of(time);
  if (row.launches) {
    json["launches"] = {{"median_s", row.launches->median_s}, {"beyond_s", row.launches->beyond_s}};
    if (row.launches->pooled_beyond_s) json["launches"]["pooled_beyond_s"] = *row.launches->pooled_beyond_s;
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string json_line(const TrainingStep& s) {
  const Json json{{"schema", kTrainingSchema},
                  {"step", s.step},
                  {"loss", s.loss},
                  {"held_out", optional_json(s.held_out)},
                  {"trigram", optional_json(s.trigram)},
                  {"learning_rate", s.learning_rate},
                  {"gradient_norm", s.gradient_norm},
                  {"seconds", s.seconds},
                  {"bytes", s.bytes}};
  return json.dump();
}

std::string json_line(const ProfileRow& row) {
  Json parts = Json::object();
  for (const auto& [name, part] : row.parts)
    parts[name] = {{"calls", part.calls}, {"seconds", part.seconds}, {"flops", part.flops}, {"bytes", part.bytes}};
  Json memory = Json::object();
  for (const auto& [moment, bytes] : row.memory)
    memory[moment] = {{"planned", bytes.planned}, {"measured", optional_json(bytes.measured)}};
  Json json{{"schema", kProfileSchema},
            {"model", row.model},
            {"sizes", row.sizes},
            {"passes", row.passes},
            {"batch", row.batch},
            {"context", row.context},
            {"device", row.device},
            {"status", row.status},
            {"reason", row.reason},
            {"parts", parts},
            {"parameters", row.parameters},
            {"state_bytes", row.state_bytes},
            {"activation_bytes", row.activation_bytes},
            {"workspace_bytes", row.workspace_bytes},
            {"planned_bytes", row.planned_bytes},
            {"measured_bytes", optional_json(row.measured_bytes)},
            {"flops", row.flops},
            {"products_s", optional_json(row.products_s)},
            {"memory", memory},
            {"threads", row.threads}};
  if (!row.largest.empty()) json["largest"] = row.largest;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

namespace {

ProfileRow profile_row_from(const Json& j) {
  want_schema(j, kProfileSchema);
  ProfileRow row{.model = value<std::string>(j, "model"),
                 .sizes = value<std::string>(j, "sizes"),
                 .passes = value<std::string>(j, "passes"),
                 .batch = amount<std::int64_t>(j, "batch"),
                 .context = amount<std::int64_t>(j, "context"),
                 .device = j.contains("device") ? value<std::string>(j, "device") : "cpu",
                 .status = value<std::string>(j, "status"),
                 .reason = value<std::string>(j, "reason"),
                 .parameters = amount<std::int64_t>(j, "parameters"),
                 .state_bytes = amount<std::int64_t>(j, "state_bytes"),
                 .activation_bytes = amount<std::int64_t>(j, "activation_bytes"),
                 .workspace_bytes = amount<std::int64_t>(j, "workspace_bytes"),
                 .planned_bytes = amount<std::int64_t>(j, "planned_bytes"),
                 .measured_bytes = optional_amount<std::int64_t>(j, "measured_bytes"),
                 .flops = amount<double>(j, "flops"),
                 .products_s = optional_amount<double>(j, "products_s"),
                 .threads = amount<int>(j, "threads")};
  if (!member(j, "parts").is_object()) refuse("key `parts` has the wrong type");
  for (const auto& [name, part] : member(j, "parts").items())
    row.parts[name] = {amount<std::int64_t>(part, "calls"), amount<double>(part, "seconds"),
                       amount<double>(part, "flops"), optional_amount<double>(part, "bytes").value_or(0)};
  const Json memory = j.contains("memory") ? member(j, "memory") : Json::object();
  for (const auto& [moment, bytes] : memory.items())
    row.memory[moment] = {amount<std::int64_t>(bytes, "planned"), optional_amount<std::int64_t>(bytes, "measured")};
  if (j.contains("largest")) row.largest = value<std::string>(j, "largest");
  const bool has_parts = row.status == "ok" && row.largest.empty();
  if (has_parts == row.parts.empty()) refuse("parts where status is `" + row.status + "`, or none");
  return row;
}

TrainingStep training_step_from(const Json& j) {
  want_schema(j, kTrainingSchema);
  TrainingStep s{.step = amount<std::int64_t>(j, "step"),
                 .loss = amount<double>(j, "loss"),
                 .held_out = optional_amount<double>(j, "held_out"),
                 .trigram = optional_amount<double>(j, "trigram"),
                 .learning_rate = amount<double>(j, "learning_rate"),
                 .gradient_norm = amount<double>(j, "gradient_norm"),
                 .seconds = amount<double>(j, "seconds"),
                 .bytes = amount<std::int64_t>(j, "bytes")};
  if (s.step < 1) refuse("step is 0");
  return s;
}

Environment environment_from(const Json& j) {
  want_schema(j, kEnvSchema);
  return {value<std::string>(j, "machine"),
          value<std::string>(j, "date"),
          value<std::string>(j, "command"),
          source_of(j),
          j.contains("source_digest") ? value<std::string>(j, "source_digest") : "",
          value<std::string>(j, "version"),
          amount<int>(j, "threads"),
          value<std::map<std::string, std::string>>(j, "facts"),
          value<std::map<std::string, double>>(j, "ceilings")};
}

Row row_from(const Json& j) {
  want_schema(j, kRowSchema);
  Row row;
  row.problem = problem_of(j);
  row.impl = value<std::string>(j, "impl");
  row.status = value<std::string>(j, "status");
  if (std::find(std::begin(kRowStatuses), std::end(kRowStatuses), row.status) == std::end(kRowStatuses))
    refuse("status `" + row.status + "` is unknown");
  row.reason = value<std::string>(j, "reason");
  row.flags = value<std::vector<std::string>>(j, "flags");
  if (!member(j, "time_s").is_null()) row.time_s = time_of(member(j, "time_s"));
  if ((row.status == "ok") != row.time_s.has_value()) refuse("a time where status is `" + row.status + "`, or none");
  if (const auto phases = j.find("phases"); phases != j.end()) {
    if (!phases->is_object()) refuse("key `phases` has the wrong type");
    for (const auto& [phase, time] : phases->items()) row.phases[phase] = time_of(time);
  }
  if (const auto found = j.find("launches"); found != j.end()) {
    row.launches = LaunchShare{amount<double>(*found, "median_s"), value<double>(*found, "beyond_s")};
    if (found->contains("pooled_beyond_s")) row.launches->pooled_beyond_s = value<double>(*found, "pooled_beyond_s");
  }
  row.flops = amount<double>(j, "flops");
  row.bytes = amount<double>(j, "bytes");
  row.tflops = optional_amount<double>(j, "tflops");
  row.ceiling_share = optional_amount<double>(j, "ceiling_share");
  if (const auto c = j.find("ceiling"); c != j.end() && !c->is_null()) row.ceiling = ceiling_of(*c);
  row.workspace_bytes = optional_amount<std::int64_t>(j, "workspace_bytes");
  row.saved_bytes = optional_amount<std::int64_t>(j, "saved_bytes");
  row.memory_before_backward_bytes = optional_amount<std::int64_t>(j, "memory_before_backward_bytes");
  if (j.contains("memory_before_forward_bytes"))
    row.memory_before_forward_bytes = amount<std::int64_t>(j, "memory_before_forward_bytes");
  for (const auto& [tensor, e] : member(j, "error").items())
    row.error[tensor] = {number(e, "rel_l2"), number(e, "max_abs"), number(e, "ratio_to_plain")};
  row.threads = amount<int>(j, "threads");
  row.source = source_of(j);
  row.clock_mhz = optional_amount<double>(j, "clock_mhz");
  row.power_w = optional_amount<double>(j, "power_w");
  row.timer = value<std::string>(j, "timer");
  row.machine = value<std::string>(j, "machine");
  if (j.contains("peer")) row.peer = value<std::string>(j, "peer");
  return row;
}

}  // namespace

Environment environment_of(std::string_view text) { return environment_from(parse_object(text)); }
Row row_of(std::string_view text) { return row_from(parse_object(text)); }

TrainingStep training_step_of(std::string_view text) { return training_step_from(parse_object(text)); }

ProfileRow profile_row_of(std::string_view text) { return profile_row_from(parse_object(text)); }

AnyRecord record_of(std::string_view text) {
  const Json object = parse_object(text);
  const auto schema = value<std::string>(object, "schema");
  if (schema.starts_with("fovea.env/")) return environment_from(object);
  if (schema.starts_with("fovea.train/")) return training_step_from(object);
  if (schema.starts_with("fovea.profile/")) return profile_row_from(object);
  return row_from(object);
}

bool is_failure(std::string_view status) { return status == "mismatch" || status == "crashed" || status == "error"; }

bool same_build(const Environment& a, const Environment& b) {
  const bool commit_tells = !a.source.dirty && a.source.commit != "unknown";
  return a.source == b.source && (commit_tells || a.source_digest == b.source_digest);
}

std::string key_of(std::string_view problem, std::string_view impl, int threads, std::string_view timer) {
  const std::string way = timer.starts_with("cuda_") ? " | " + std::string(timer) : "";
  return std::string(problem) + " | " + std::string(impl) + " | " + std::to_string(threads) + way;
}

std::string key_of(const Row& row) { return key_of(row.problem, row.impl, row.threads, row.timer); }

}  // namespace fovea::program
