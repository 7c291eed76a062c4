# Warnings of our own sources; never passed on to those who link us.
function(fovea_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
    -Wno-missing-field-initializers  # named initialisers leave the rest at their defaults on purpose
    $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)  # false alarms of g++ 12 on std::string concatenation
endfunction()

# For targets that read and write text, whose speed nobody waits for: compiled in two thirds of the time.
function(fovea_text_only target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()
