# What `cmake --install` puts where: both libraries, headers, the program, the CMake package and the pkg-config file.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(FOVEA_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/fovea)

set_target_properties(fovea PROPERTIES EXPORT_NAME fovea_static)
install(TARGETS fovea fovea_shared EXPORT fovea_targets)
install(EXPORT fovea_targets NAMESPACE fovea:: DESTINATION ${FOVEA_PACKAGE_DIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/fovea ${PROJECT_BINARY_DIR}/include/fovea
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
if(FOVEA_BUILD_PROGRAM)
  install(TARGETS fovea_program)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/python/ DESTINATION ${CMAKE_INSTALL_DATADIR}/fovea/python
    FILES_MATCHING PATTERN "fovea" EXCLUDE PATTERN "extension" EXCLUDE PATTERN "__pycache__" EXCLUDE
    PATTERN "*.py" PATTERN "*.j2" PATTERN "page.*" PATTERN "*.toml" PATTERN "*.csv" PATTERN "*.json"
    PATTERN "README.md")
endif()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/fovea-config.cmake.in
  ${PROJECT_BINARY_DIR}/fovea-config.cmake INSTALL_DESTINATION ${FOVEA_PACKAGE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/fovea-config-version.cmake COMPATIBILITY SameMinorVersion)
configure_file(${PROJECT_SOURCE_DIR}/cmake/fovea.pc.in ${PROJECT_BINARY_DIR}/fovea.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/fovea-config.cmake ${PROJECT_BINARY_DIR}/fovea-config-version.cmake
  DESTINATION ${FOVEA_PACKAGE_DIR})
install(FILES ${PROJECT_BINARY_DIR}/fovea.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
