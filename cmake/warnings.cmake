# Warnings of our own sources; never passed on to those who link us.
function(fovea_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
    -Wno-missing-field-initializers  # named initialisers leave the rest at their defaults on purpose
    $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)  # false alarms of g++ 12 on std::string concatenation
endfunction()

# For targets that read and write text, whose speed nobody waits for: compiled in a third of the time. Eight files at
# once read the headers of CLI11 and json once, so names in unnamed namespaces must differ between files of a target.
function(fovea_text_only target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
endfunction()
