# Writes ${OUTPUT}: the commit the sources stand at, whether they differ from it, and their digest. Touches the file only on a change.
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
include(${CMAKE_CURRENT_LIST_DIR}/source_digest.cmake)
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[
// Written by the build: which sources these are.
#pragma once

namespace fovea::program {
inline constexpr char kSourceCommit[] = "@COMMIT@";
inline constexpr char kSourceDigest[] = "@DIGEST@";
inline constexpr bool kSourceDirty = @DIRTY@;
inline constexpr char kBuildCompiler[] = "@COMPILER@";
inline constexpr char kBuildType[] = "@BUILD_TYPE@";
inline constexpr char kSourceFolder[] = "@SOURCE_DIR@";
}  // namespace fovea::program
]] @ONLY)
