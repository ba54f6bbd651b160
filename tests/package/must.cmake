# must(COMMAND...): runs it; what it printed is in `said`; a failure ends the script with that.
function(must)
    execute_process(COMMAND ${ARGN} RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said)
    if(failed)
        list(JOIN ARGN " " command)
        message(FATAL_ERROR "${command}\n${said}")
    endif()
    set(said "${said}" PARENT_SCOPE)
endfunction()
