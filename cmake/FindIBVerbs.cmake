# Finds rdma-core's libibverbs, which comes without a CMake package of its own: the target IBVerbs::verbs, IBVerbs::mlx5 if its
# direct verbs for ConnectX are there, and IBVerbs_VERSION where pkg-config knows it.
find_package(PkgConfig QUIET)
if(PKG_CONFIG_FOUND)
    pkg_check_modules(PC_IBVerbs QUIET libibverbs)
    set(IBVerbs_VERSION ${PC_IBVerbs_VERSION})
endif()
find_path(IBVerbs_INCLUDE_DIR infiniband/verbs.h HINTS ${PC_IBVerbs_INCLUDE_DIRS})
find_library(IBVerbs_LIBRARY ibverbs HINTS ${PC_IBVerbs_LIBRARY_DIRS})
find_path(IBVerbs_MLX5_INCLUDE_DIR infiniband/mlx5dv.h HINTS ${PC_IBVerbs_INCLUDE_DIRS})
find_library(IBVerbs_MLX5_LIBRARY mlx5 HINTS ${PC_IBVerbs_LIBRARY_DIRS})
mark_as_advanced(IBVerbs_INCLUDE_DIR IBVerbs_LIBRARY IBVerbs_MLX5_INCLUDE_DIR IBVerbs_MLX5_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(IBVerbs REQUIRED_VARS IBVerbs_LIBRARY IBVerbs_INCLUDE_DIR VERSION_VAR IBVerbs_VERSION)

if(IBVerbs_FOUND AND NOT TARGET IBVerbs::verbs)
    add_library(IBVerbs::verbs UNKNOWN IMPORTED)
    set_target_properties(IBVerbs::verbs PROPERTIES
        IMPORTED_LOCATION ${IBVerbs_LIBRARY}
        INTERFACE_INCLUDE_DIRECTORIES ${IBVerbs_INCLUDE_DIR})
endif()
if(TARGET IBVerbs::verbs AND IBVerbs_MLX5_LIBRARY AND IBVerbs_MLX5_INCLUDE_DIR AND NOT TARGET IBVerbs::mlx5)
    add_library(IBVerbs::mlx5 UNKNOWN IMPORTED)
    set_target_properties(IBVerbs::mlx5 PROPERTIES
        IMPORTED_LOCATION ${IBVerbs_MLX5_LIBRARY}
        INTERFACE_INCLUDE_DIRECTORIES ${IBVerbs_MLX5_INCLUDE_DIR}
        INTERFACE_LINK_LIBRARIES IBVerbs::verbs)
endif()
