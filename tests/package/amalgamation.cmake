# The single header stands for the headers it was made of: the consumer compiles to the same object code with either form, and
# links with a second source that includes it, too; the program runs. What cannot be amalgamated is refused with a sentence.
# -DSOURCE -DSCRATCH -DCXX -DPYTHON [-DFLAGS]
cmake_minimum_required(VERSION 3.25)
set(consumer ${SOURCE}/tests/package/consumer)
set(single ${SCRATCH}/include)
file(REMOVE_RECURSE ${SCRATCH})
file(MAKE_DIRECTORY ${SCRATCH})
separate_arguments(flags UNIX_COMMAND "${FLAGS}")
include(${CMAKE_CURRENT_LIST_DIR}/must.cmake)

must(${PYTHON} ${SOURCE}/cmake/amalgamate.py ${single}/vccl/vccl.hpp)
# The consumer includes two headers by name; both are the one file.
file(WRITE ${single}/vccl/verbs/soft.hpp "#include <vccl/vccl.hpp>\n")
foreach(form headers single)
    if(form STREQUAL "headers")
        set(from ${SOURCE}/include)
    else()
        set(from ${single})
    endif()
    must(${CXX} -std=c++20 -O2 -Wall -Wextra -Werror ${flags} -I${from} -c ${consumer}/main.cpp -o ${SCRATCH}/${form}.o)
endforeach()
must(${CMAKE_COMMAND} -E compare_files ${SCRATCH}/headers.o ${SCRATCH}/single.o)

file(WRITE ${SCRATCH}/second.cpp "#include <vccl/vccl.hpp>\n#include <vccl/vccl.hpp>\nunsigned second() { return vccl::max_lanes; }\n")
must(${CXX} -std=c++20 ${flags} -I${single} -pthread ${SCRATCH}/single.o ${SCRATCH}/second.cpp -lrt -o ${SCRATCH}/program)
must(${SCRATCH}/program)
if(NOT said MATCHES "hello from vccl [0-9]+\\.[0-9]+\\.[0-9]+")
    message(FATAL_ERROR "the program said: ${said}")
endif()

execute_process(COMMAND ${PYTHON} ${SOURCE}/cmake/amalgamate.py ${SCRATCH}/none.hpp vccl/none.hpp RESULT_VARIABLE failed ERROR_VARIABLE said)
if(NOT failed OR NOT said MATCHES "there is no vccl/none.hpp")
    message(FATAL_ERROR "an unknown header was taken: ${said}")
endif()
file(REMOVE_RECURSE ${SCRATCH})
