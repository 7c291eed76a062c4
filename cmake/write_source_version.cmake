# Writes ${OUTPUT}: the commit the sources stand at and whether they differ from it. Touches the file only on a change.
execute_process(COMMAND git -C ${SOURCE_DIR} rev-parse --short=12 HEAD
                OUTPUT_VARIABLE COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE FAILED)
if(FAILED)
  set(COMMIT unknown)
endif()
execute_process(COMMAND git -C ${SOURCE_DIR} status --porcelain --untracked-files=no
                OUTPUT_VARIABLE CHANGES ERROR_QUIET)
set(DIRTY false)
if(NOT CHANGES STREQUAL "")
  set(DIRTY true)
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[
// Written by the build: which sources these are.
#pragma once

namespace fovea::program {
inline constexpr char kSourceCommit[] = "@COMMIT@";
inline constexpr bool kSourceDirty = @DIRTY@;
inline constexpr char kBuildCompiler[] = "@COMPILER@";
inline constexpr char kBuildType[] = "@BUILD_TYPE@";
inline constexpr char kSourceFolder[] = "@SOURCE_DIR@";
}  // namespace fovea::program
]] @ONLY)
