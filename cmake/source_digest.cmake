# Sets DIGEST, of the sources under SOURCE_DIR; as a script (cmake -DSOURCE_DIR=. -DPRINT=ON -P) it prints it.
# What a record of a check on another machine is compared by: a digest of all that is compiled or run there.
file(GLOB_RECURSE SOURCES LIST_DIRECTORIES false RELATIVE ${SOURCE_DIR} ${SOURCE_DIR}/include/* ${SOURCE_DIR}/src/*
     ${SOURCE_DIR}/cmake/* ${SOURCE_DIR}/tests/cuda/* ${SOURCE_DIR}/tests/attention/random_descriptors.h
     ${SOURCE_DIR}/python/fovea_bench/*.py ${SOURCE_DIR}/scripts/gpu_check ${SOURCE_DIR}/scripts/gpu_check_*.py
     ${SOURCE_DIR}/examples/my_kernel.cu ${SOURCE_DIR}/examples/my_triton.py)
list(SORT SOURCES)
set(DIGEST "")
foreach(SOURCE CMakeLists.txt ${SOURCES})
  file(SHA256 ${SOURCE_DIR}/${SOURCE} ONE)
  string(APPEND DIGEST "${ONE} ${SOURCE}\n")
endforeach()
string(SHA256 DIGEST "${DIGEST}")
if(PRINT)
  execute_process(COMMAND ${CMAKE_COMMAND} -E echo ${DIGEST})
endif()
