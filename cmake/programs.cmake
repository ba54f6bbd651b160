# How the project's own programs are built: warnings, tests, examples, benchmarks. Users of the library never see this.

add_library(vccl_warnings INTERFACE)
target_compile_options(vccl_warnings INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Werror>
    $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Wall,-Wextra,-Werror>)

# vccl_hot(TARGET): it runs for longer than it takes to compile, so it is optimised where a preset asks for no optimisation.
function(vccl_hot target)
    if(CMAKE_CXX_FLAGS_RELEASE MATCHES "-O0")
        target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
    endif()
endfunction()

# vccl_tests_use(TARGET label...): a build of the tests of these labels builds it, too
function(vccl_tests_use target)
    foreach(label IN LISTS ARGN)
        if(NOT TARGET tests_${label})
            add_custom_target(tests_${label})
        endif()
        add_dependencies(tests_${label} ${target})
    endforeach()
endfunction()

# vccl_add_test(NAME name SOURCES file... LABELS label... [LIBS lib...] [TIMEOUT seconds] [THREADS] [HOT] [NO_CTEST])
# A doctest executable `test_NAME` and a ctest of the name. THREADS: it starts threads, so it runs under ThreadSanitizer, too.
# HOT: see vccl_hot; begins before others.
# NO_CTEST: only build it (somebody else starts it, say in a guest).
set_property(GLOBAL PROPERTY vccl_test_labels)
function(vccl_add_test)
    cmake_parse_arguments(PARSE_ARGV 0 arg "THREADS;NO_CTEST;HOT" "NAME;TIMEOUT" "SOURCES;LABELS;LIBS")
    if(NOT arg_NAME OR NOT arg_SOURCES OR NOT arg_LABELS OR arg_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "vccl_add_test needs NAME, SOURCES and LABELS; unknown: '${arg_UNPARSED_ARGUMENTS}'")
    endif()
    if(NOT arg_TIMEOUT)
        set(arg_TIMEOUT 120)
    endif()
    add_executable(test_${arg_NAME} ${arg_SOURCES} $<TARGET_OBJECTS:vccl_doctest_main>)
    target_link_libraries(test_${arg_NAME} PRIVATE vccl::testing vccl_warnings ${arg_LIBS})
    if(arg_THREADS)
        list(APPEND arg_LABELS threads)
    endif()
    vccl_tests_use(test_${arg_NAME} ${arg_LABELS})
    if(NOT arg_NO_CTEST)
        add_test(NAME ${arg_NAME} COMMAND test_${arg_NAME} --no-intro)
        set_tests_properties(${arg_NAME} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT})
    endif()
    if(arg_HOT)
        vccl_hot(test_${arg_NAME})
        set_tests_properties(${arg_NAME} PROPERTIES COST 100)
    endif()
endfunction()

# vccl_add_example(NAME name SOURCES file... [LIBS lib...]): the target example_NAME, the program NAME
function(vccl_add_example)
    cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME" "SOURCES;LIBS")
    add_executable(example_${arg_NAME} ${arg_SOURCES})
    set_target_properties(example_${arg_NAME} PROPERTIES OUTPUT_NAME ${arg_NAME}
        RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin/examples)
    target_link_libraries(example_${arg_NAME} PRIVATE vccl::vccl vccl_warnings ${arg_LIBS})
endfunction()

# vccl_add_bench(NAME name SOURCES file... [LIBS lib...]): the target bench_NAME, the program NAME. Its last line is
# `BENCH NAME key=value ...`. Optimised whatever the build type.
function(vccl_add_bench)
    cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME" "SOURCES;LIBS")
    add_executable(bench_${arg_NAME} ${arg_SOURCES})
    set_target_properties(bench_${arg_NAME} PROPERTIES OUTPUT_NAME ${arg_NAME}
        RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin/bench)
    target_compile_options(bench_${arg_NAME} PRIVATE -O2)
    target_link_libraries(bench_${arg_NAME} PRIVATE vccl::vccl vccl_warnings ${arg_LIBS})
endfunction()

# vccl_add_parts(): every folder beneath that has a CMakeLists.txt
function(vccl_add_parts)
    file(GLOB parts CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} */CMakeLists.txt)
    foreach(part IN LISTS parts)
        cmake_path(GET part PARENT_PATH folder)
        add_subdirectory(${folder})
    endforeach()
endfunction()
