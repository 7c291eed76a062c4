// Recursive descent over schema and value.
#include "schema_checker.h"

#include <regex>

namespace fovea::tests {
namespace {

using Json = nlohmann::json;

class Checker {
 public:
  explicit Checker(const Json& root) : root_(root) {}

  std::string check(const Json& schema, const Json& value, const std::string& path) const {
    for (const auto& [keyword, rule] : schema.items()) {
      const std::string wrong = apply(keyword, rule, schema, value, path);
      if (!wrong.empty()) return wrong;
    }
    return "";
  }

 private:
  std::string apply(const std::string& keyword, const Json& rule, const Json& schema, const Json& value,
                    const std::string& path) const {
    const auto require = [&](bool holds) {
      return holds ? ""
                   : path + ": " + keyword + " " + rule.dump() + " does not hold for " + value.dump().substr(0, 80);
    };
    if (keyword == "$schema" || keyword == "title" || keyword == "$defs") return "";
    if (keyword == "$ref") return check(root_.at(Json::json_pointer(rule.get<std::string>().substr(1))), value, path);
    if (keyword == "oneOf") return one_of(rule, value, path);
    if (keyword == "type") return require(has_type(rule, value));
    if (keyword == "const") return require(value == rule);
    if (keyword == "enum") return require(std::find(rule.begin(), rule.end(), value) != rule.end());
    if (keyword == "minimum") return require(!value.is_number() || value.get<double>() >= rule.get<double>());
    if (keyword == "minLength") return require(!value.is_string() || value.get<std::string>().size() >= rule);
    if (keyword == "minItems") return require(!value.is_array() || value.size() >= rule);
    if (keyword == "pattern")
      return require(!value.is_string() ||
                     std::regex_search(value.get<std::string>(), std::regex(rule.get<std::string>())));
    if (keyword == "required") return required(rule, value, path);
    if (keyword == "properties" || keyword == "additionalProperties")
      return members(keyword, rule, schema, value, path);
    if (keyword == "items") return items(rule, value, path);
    return path + ": keyword " + keyword + " is not known to the checker";
  }

  static bool has_type(const Json& rule, const Json& value) {
    if (rule.is_array())
      return std::any_of(rule.begin(), rule.end(), [&value](const Json& one) { return has_type(one, value); });
    if (rule == "integer") return value.is_number_integer();
    if (rule == "number") return value.is_number();
    if (rule == "boolean") return value.is_boolean();
    return rule == value.type_name();
  }

  std::string one_of(const Json& rules, const Json& value, const std::string& path) const {
    std::string reasons;
    int fitting = 0;
    for (const Json& rule : rules) {
      const std::string wrong = check(rule, value, path);
      fitting += wrong.empty() ? 1 : 0;
      reasons += wrong + "; ";
    }
    return fitting == 1 ? "" : path + ": fits " + std::to_string(fitting) + " of oneOf: " + reasons;
  }

  static std::string required(const Json& names, const Json& value, const std::string& path) {
    for (const Json& name : names) {
      if (value.is_object() && !value.contains(name.get<std::string>())) return path + ": lacks " + name.dump();
    }
    return "";
  }

  std::string members(const std::string& keyword, const Json& rule, const Json& schema, const Json& value,
                      const std::string& path) const {
    if (!value.is_object()) return "";
    for (const auto& [name, member] : value.items()) {
      const bool listed = schema.contains("properties") && schema["properties"].contains(name);
      std::string wrong;
      if (keyword == "properties" && listed) wrong = check(rule[name], member, path + "/" + name);
      if (keyword == "additionalProperties" && !listed && rule == false) wrong = path + ": unknown key " + name;
      if (keyword == "additionalProperties" && !listed && rule.is_object())
        wrong = check(rule, member, path + "/" + name);
      if (!wrong.empty()) return wrong;
    }
    return "";
  }

  std::string items(const Json& rule, const Json& value, const std::string& path) const {
    for (std::size_t i = 0; value.is_array() && i < value.size(); ++i) {
      const std::string wrong = check(rule, value[i], path + "/" + std::to_string(i));
      if (!wrong.empty()) return wrong;
    }
    return "";
  }

  const Json& root_;
};

}  // namespace

std::string schema_violation(const Json& schema, const Json& value) { return Checker(schema).check(schema, value, ""); }

}  // namespace fovea::tests
