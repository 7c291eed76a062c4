# Decides whether the CUDA backend is built: sets FOVEA_HAS_CUDA, enables the language, chooses the architectures.
set(FOVEA_HAS_CUDA OFF)
if(NOT FOVEA_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "FOVEA_CUDA is `${FOVEA_CUDA}`, wanted AUTO, ON or OFF")
endif()
if(FOVEA_CUDA STREQUAL "OFF")
  return()
endif()
# Machine code for the chips that are common, and PTX of the oldest for every other one from sm_80 on. The user's
# CMAKE_CUDA_ARCHITECTURES replaces the list; `native` builds for the GPU of this machine only. It must be set before
# the language is enabled, which would put the compiler's own default into the cache.
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 80-virtual)
  # Machine code for compute capability 12.0, and of attention's kernels for 8.6, from the PTX of 8.0: the compiler proper
  # runs once for all three. This PTX, which has no clusters and no PDL, is what `make gpu-check PARTS=portable` runs.
  set(FOVEA_CUDA_CODE_FOR_120 "--generate-code=arch=compute_80,code=[sm_120]")
  set(FOVEA_CUDA_CODE_FOR_86 "--generate-code=arch=compute_80,code=[sm_86]")
  set(FOVEA_CUDA_CHECK_ARCHITECTURES 90a-real 80-virtual)
endif()
include(CheckLanguage)
check_language(CUDA)
# 12.8 is the first that has cudaStreamGetDevice and makes machine code for compute capability 12.0. Operands of asm that
# are text (ptx/wgmma.cuh) and the division of shared memory as a launch's attribute came with 12.5.
set(wanted 12.8)
set(obstacle)
if(NOT CMAKE_CUDA_COMPILER)
  set(obstacle "no CUDA compiler was found")
else()
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --version OUTPUT_VARIABLE said ERROR_QUIET)
  if(said MATCHES "release ([0-9]+[.][0-9]+)" AND CMAKE_MATCH_1 VERSION_LESS wanted)
    set(obstacle "${CMAKE_CUDA_COMPILER} is of CUDA ${CMAKE_MATCH_1}, wanted ${wanted} or newer")
  endif()
endif()
if(obstacle)
  if(FOVEA_CUDA STREQUAL "ON")
    message(FATAL_ERROR "FOVEA_CUDA is ON, but ${obstacle}; set CMAKE_CUDA_COMPILER or FOVEA_CUDA=AUTO")
  endif()
  message(STATUS "Built without CUDA: ${obstacle}")
  return()
endif()
# Ends with the names in the list that the kernels cannot be compiled for.
function(refuse_older_architectures architectures)
  set(older)
  foreach(one IN LISTS architectures)
    if(one MATCHES "^all(-major)?$" OR (one MATCHES "^([0-9]+)" AND CMAKE_MATCH_1 LESS 80))
      list(APPEND older ${one})
    endif()
  endforeach()
  if(older)
    list(JOIN older " " older)
    message(FATAL_ERROR "CMAKE_CUDA_ARCHITECTURES has ${older}: the kernels need compute capability 8.0, which is 80, or "
      "higher; name these, or build with FOVEA_CUDA=OFF")
  endif()
endfunction()
refuse_older_architectures("${CMAKE_CUDA_ARCHITECTURES}")
enable_language(CUDA)
if(CMAKE_CUDA_ARCHITECTURES STREQUAL "native" AND NOT CMAKE_CUDA_ARCHITECTURES_NATIVE)
  message(FATAL_ERROR "CMAKE_CUDA_ARCHITECTURES is native, but this machine has no GPU that the driver shows; name "
    "architectures, such as 90-real, or build with FOVEA_CUDA=OFF")
endif()
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25.1 does not know that nvcc speaks C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
find_package(CUDAToolkit REQUIRED)
set(FOVEA_HAS_CUDA ON)
set(FOVEA_CUDA_PRIVATE_LIBRARIES " -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt")  # for pkg-config
set(FOVEA_CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}")
if(FOVEA_CUDA_ARCHITECTURES STREQUAL "native" AND CMAKE_CUDA_ARCHITECTURES_NATIVE)
  set(FOVEA_CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES_NATIVE}")
  refuse_older_architectures("${FOVEA_CUDA_ARCHITECTURES}")
endif()
# A register that spills inside a main loop costs more than any tile can win: the build fails, with the compiler that the
# tiles were chosen with. Others hand out registers in their own way.
set(FOVEA_CUDA_SPILLS -Xptxas=--warn-on-spills)
if(CMAKE_CUDA_COMPILER_VERSION MATCHES "^13[.]0[.]")
  string(APPEND FOVEA_CUDA_SPILLS ",--warning-as-error")
endif()
# Machine code for compute capability 9.0 is made with the instructions that only this one has: sm_90a.
if("90" IN_LIST FOVEA_CUDA_ARCHITECTURES)
  list(APPEND FOVEA_CUDA_ARCHITECTURES 90-virtual)
endif()
list(TRANSFORM FOVEA_CUDA_ARCHITECTURES REPLACE "^90(-real)?$" "90a-real")
# Programs that check have machine code for Hopper only, unless the user names architectures: the driver compiles their PTX
# for another GPU when they start.
if(NOT FOVEA_CUDA_CHECK_ARCHITECTURES)
  set(FOVEA_CUDA_CHECK_ARCHITECTURES "${FOVEA_CUDA_ARCHITECTURES}")
endif()
