#pragma once
/// \file
/// The contract suite of verbs backends: what every model of `verbs_backend` must do, as doctest cases. Test programs only;
/// for the author of a backend, who writes a fixture (testing/contracts/fixture.hpp says what one is) and one line:
///
///     TYPE_TO_STRING(my_fixture);
///     VCCL_BACKEND_CONTRACTS(my_fixture);
///
/// at namespace scope outside any namespace. Every wait is bounded in the fixture's own time; no timing decides a case.
/// Where real devices differ from one another a case accepts the documented alternatives, never "any error".
/// Sources: InfiniBand Architecture Specification 1.x, chapters 9 to 11; the observed behaviour of soft-RoCE.

#include <vccl/testing/contracts/errors.hpp>
#include <vccl/testing/contracts/faults.hpp>
#include <vccl/testing/contracts/fence.hpp>
#include <vccl/testing/contracts/ladder.hpp>
#include <vccl/testing/contracts/queues.hpp>
#include <vccl/testing/contracts/transfer.hpp>

/// Registers all of them for one fixture or several.
#define VCCL_BACKEND_CONTRACTS(...)       \
    VCCL_LADDER_CONTRACTS(__VA_ARGS__);   \
    VCCL_TRANSFER_CONTRACTS(__VA_ARGS__); \
    VCCL_QUEUE_CONTRACTS(__VA_ARGS__);    \
    VCCL_ERROR_CONTRACTS(__VA_ARGS__);    \
    VCCL_FENCE_CONTRACTS(__VA_ARGS__);    \
    VCCL_FAULT_CONTRACTS(__VA_ARGS__)
