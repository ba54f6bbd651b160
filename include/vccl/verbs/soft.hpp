#pragma once
/// \file
/// `verbs::soft`, the software RNIC: models `verbs_backend` without hardware, at packet level, in one process or across
/// processes of one host, with faults on command. The project's default where there is no NIC, its test bed and (with a
/// manual clock) its simulator. Include this; the parts are in soft/.
///
///     auto fabric = soft_fabric::create(soft_topology(2, 2, 2, 2));   // hosts A and B, two dual-port NICs each
///     auto a = fabric->host("A");  auto port = a->open("A.nic0.p0");
///     fabric->command("down A.nic0.p0");

#include <vccl/verbs/soft/completer.hpp>
#include <vccl/verbs/soft/engine.hpp>
#include <vccl/verbs/soft/fabric.hpp>
#include <vccl/verbs/soft/handles.hpp>
#include <vccl/verbs/soft/options.hpp>
#include <vccl/verbs/soft/requester.hpp>
#include <vccl/verbs/soft/responder.hpp>
#include <vccl/verbs/soft/run.hpp>
#include <vccl/verbs/soft/setup.hpp>
#include <vccl/verbs/soft/shapes.hpp>
#include <vccl/verbs/soft/wire.hpp>

namespace vccl::inline v0 {
static_assert(verbs_backend<verbs::soft>);
}  // namespace vccl::inline v0
