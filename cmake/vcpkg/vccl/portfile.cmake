# An overlay port of the checkout that it lies in:  vcpkg install vccl --overlay-ports=cmake/vcpkg
cmake_path(SET SOURCE_PATH NORMALIZE ${CURRENT_PORT_DIR}/../../..)
set(VCPKG_BUILD_TYPE release) # headers only
vcpkg_cmake_configure(
    SOURCE_PATH ${SOURCE_PATH}
    OPTIONS -DVCCL_BUILD_TESTS=OFF -DVCCL_BUILD_EXAMPLES=OFF -DVCCL_BUILD_BENCH=OFF -DVCCL_BUILD_TOOLS=OFF -DVCCL_CUDA=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/vccl)
vcpkg_fixup_pkgconfig()
file(REMOVE_RECURSE ${CURRENT_PACKAGES_DIR}/lib/cmake)
file(INSTALL ${CURRENT_PORT_DIR}/usage DESTINATION ${CURRENT_PACKAGES_DIR}/share/vccl)
vcpkg_install_copyright(FILE_LIST ${SOURCE_PATH}/LICENSE)
