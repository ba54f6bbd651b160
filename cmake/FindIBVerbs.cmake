# Finds rdma-core's libibverbs, which comes without a CMake package of its own: the target IBVerbs::verbs, and
# IBVerbs_VERSION where pkg-config knows it.
find_package(PkgConfig QUIET)
if(PKG_CONFIG_FOUND)
    pkg_check_modules(PC_IBVerbs QUIET libibverbs)
    set(IBVerbs_VERSION ${PC_IBVerbs_VERSION})
endif()
find_path(IBVerbs_INCLUDE_DIR infiniband/verbs.h HINTS ${PC_IBVerbs_INCLUDE_DIRS})
find_library(IBVerbs_LIBRARY ibverbs HINTS ${PC_IBVerbs_LIBRARY_DIRS})
mark_as_advanced(IBVerbs_INCLUDE_DIR IBVerbs_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(IBVerbs REQUIRED_VARS IBVerbs_LIBRARY IBVerbs_INCLUDE_DIR VERSION_VAR IBVerbs_VERSION)

if(IBVerbs_FOUND AND NOT TARGET IBVerbs::verbs)
    add_library(IBVerbs::verbs UNKNOWN IMPORTED)
    set_target_properties(IBVerbs::verbs PROPERTIES
        IMPORTED_LOCATION ${IBVerbs_LIBRARY}
        INTERFACE_INCLUDE_DIRECTORIES ${IBVerbs_INCLUDE_DIR})
endif()
