#pragma once
// What the short C++ blocks of README.md and docs/ take for granted; see check_docs.py.
#include <vccl/base/status_text.hpp>
#include <vccl/vccl.hpp>
#include <vccl/verbs/soft.hpp>

#include <cstdio>
#include <vector>

using namespace vccl::literals;

using sender = vccl::host_sender<vccl::verbs::soft, vccl::on_completion<vccl::counters>>;
using receiver = vccl::host_receiver<vccl::verbs::soft, vccl::on_completion<vccl::counters>>;

#define SNIPPET                                                                                                                  \
    vccl::status snippet([[maybe_unused]] sender& tx, [[maybe_unused]] receiver& rx,                                             \
                         [[maybe_unused]] vccl::host_context<vccl::verbs::soft>& context, [[maybe_unused]] vccl::memory& region, \
                         [[maybe_unused]] vccl::verbs::soft_fabric& fabric)
