#pragma once
/// \file
/// All stock port policies in one include. Called by no one: pick a policy by its type.

#include <vccl/policy/lanes.hpp>
#include <vccl/policy/port.hpp>
#include <vccl/policy/port_adjacent_gpu.hpp>
#include <vccl/policy/port_combine.hpp>
#include <vccl/policy/port_nearest.hpp>
#include <vccl/policy/port_same_nic.hpp>
