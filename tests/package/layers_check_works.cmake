# The layer check must see a broken rule: runs it on small trees that break one each.
cmake_minimum_required(VERSION 3.25)
set(root ${CMAKE_CURRENT_BINARY_DIR}/broken_layers)
file(REMOVE_RECURSE ${root})

function(must_complain name header text sentence)
    file(WRITE ${root}/${name}/vccl/policy/low.hpp "#pragma once\n")
    file(WRITE ${root}/${name}/vccl/host/high.hpp "#pragma once\n")
    file(WRITE ${root}/${name}/${header} "${text}")
    execute_process(COMMAND ${CMAKE_COMMAND} -DSOURCE=${SOURCE} -DINCLUDE=${root}/${name} -P ${SOURCE}/tests/package/layers.cmake
        RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said)
    if(NOT failed OR NOT said MATCHES "${sentence}")
        message(FATAL_ERROR "the layer check overlooked '${name}': ${said}")
    endif()
endfunction()

must_complain(upward vccl/policy/low.hpp "#pragma once\n#include <vccl/host/high.hpp>\n" "a higher layer")
must_complain(umbrella vccl/policy/low.hpp "#pragma once\n#include <vccl/vccl.hpp>\n" "vccl.hpp")
must_complain(no_pragma vccl/policy/low.hpp "// nothing\n" "pragma once")
must_complain(no_layer vccl/extra/low.hpp "#pragma once\n" "is no layer")
must_complain(heavy vccl/policy/low.hpp "#pragma once\n#include <chrono>\n" "too dear")
string(REPEAT "\n" 401 empty_lines)
must_complain(long vccl/policy/low.hpp "#pragma once\n${empty_lines}" "split it")
file(REMOVE_RECURSE ${root})
