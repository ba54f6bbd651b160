#pragma once
/// \file
/// Everything for host-proxy send and receive, except the backends: add verbs/ibv.hpp or verbs/soft.hpp.

#include <vccl/base/clock.hpp>
#include <vccl/base/status_text.hpp>
#include <vccl/host/compose.hpp>
#include <vccl/host/context.hpp>
#include <vccl/host/receiver.hpp>
#include <vccl/host/sender.hpp>
#include <vccl/policy/completion.hpp>
#include <vccl/policy/port_policies.hpp>
#include <vccl/policy/replay.hpp>
#include <vccl/policy/timing.hpp>
