# Sets DIGEST, of the sources under SOURCE_DIR: of all that is compiled or run on another machine. GPU_DIGEST is without
# the CPU's kernels, which no check on a GPU runs. As a script (cmake -DSOURCE_DIR=. -DPRINT=DIGEST -P) it prints one.
file(GLOB_RECURSE SOURCES LIST_DIRECTORIES false RELATIVE ${SOURCE_DIR} ${SOURCE_DIR}/include/* ${SOURCE_DIR}/src/*
     ${SOURCE_DIR}/cmake/* ${SOURCE_DIR}/tests/cuda/* ${SOURCE_DIR}/tests/attention/random_descriptors.h
     ${SOURCE_DIR}/python/bench/*.py ${SOURCE_DIR}/scripts/gpu_check
     ${SOURCE_DIR}/scripts/gpu_check_cases.py ${SOURCE_DIR}/examples/my_kernel.cu ${SOURCE_DIR}/examples/my_triton.py)
list(SORT SOURCES)
set(DIGEST "")
set(GPU_DIGEST "")
foreach(SOURCE CMakeLists.txt ${SOURCES})
  file(SHA256 ${SOURCE_DIR}/${SOURCE} ONE)
  string(APPEND DIGEST "${ONE} ${SOURCE}\n")
  if(NOT SOURCE MATCHES "^src/cpu/(kernels/.*[.]inl[.]h|simd/|targets/|measure/)")
    string(APPEND GPU_DIGEST "${ONE} ${SOURCE}\n")
  endif()
endforeach()
string(SHA256 DIGEST "${DIGEST}")
string(SHA256 GPU_DIGEST "${GPU_DIGEST}")
if(PRINT)
  execute_process(COMMAND ${CMAKE_COMMAND} -E echo ${${PRINT}})
endif()
